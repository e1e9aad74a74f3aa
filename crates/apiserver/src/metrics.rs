//! Metrics at `/metrics`, with upstream's metric names.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::resources::RESOURCES;
use crate::state::State;

/// Labels of the request counter: what was requested, and the status of the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestKind {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub verb: &'static str,
    /// The plural name, such as `nodes`.
    pub resource: &'static str,
    /// The subresource, such as `status`; empty for the object itself.
    pub subresource: &'static str,
    /// The HTTP status code of the response.
    pub code: u16,
}

/// Counters of resource requests.
#[derive(Debug, Default)]
pub(crate) struct Requests(Mutex<BTreeMap<RequestKind, u64>>);

impl Requests {
    pub(crate) fn count(&self, kind: RequestKind) {
        *self.lock().entry(kind).or_default() += 1;
    }

    pub(crate) fn counts(&self) -> BTreeMap<RequestKind, u64> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<RequestKind, u64>> {
        // A panic in another thread cannot leave a counter inconsistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The metrics in Prometheus text format.
pub(crate) fn render(state: &State) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(text, "# HELP apiserver_storage_objects Number of stored objects, by resource.");
    let _ = writeln!(text, "# TYPE apiserver_storage_objects gauge");
    for resource in RESOURCES.iter().filter(|r| !r.is_virtual() && r.view.is_none()) {
        let count = state.store.count(resource.storage);
        let _ = writeln!(text, "apiserver_storage_objects{{resource=\"{}\"}} {count}", resource.named().qualified());
    }
    let _ = writeln!(text, "# HELP apiserver_longrunning_requests Number of open watches.");
    let _ = writeln!(text, "# TYPE apiserver_longrunning_requests gauge");
    let _ = writeln!(text, "apiserver_longrunning_requests{{verb=\"WATCH\"}} {}", state.watch_cuts.receiver_count());
    let _ = writeln!(text, "# HELP bowline_apiserver_revision Current revision of the store.");
    let _ = writeln!(text, "# TYPE bowline_apiserver_revision gauge");
    let _ = writeln!(text, "bowline_apiserver_revision {}", state.store.revision());
    render_requests(&mut text, &state.requests.counts());
    text
}

fn render_requests(text: &mut String, counts: &BTreeMap<RequestKind, u64>) {
    let _ = writeln!(
        text,
        "# HELP apiserver_request_total Number of resource requests, by verb, resource, subresource and HTTP status code."
    );
    let _ = writeln!(text, "# TYPE apiserver_request_total counter");
    for (RequestKind { verb, resource, subresource, code }, count) in counts {
        // upstream: only this metric has verbs in upper case.
        let verb = verb.to_ascii_uppercase();
        let _ = writeln!(
            text,
            "apiserver_request_total{{code=\"{code}\",resource=\"{resource}\",subresource=\"{subresource}\",verb=\"{verb}\"}} {count}"
        );
    }
}
