//! What the server says of itself at `/metrics`, in the names a real one uses.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::resources::RESOURCES;
use crate::state::State;

/// A kind of request, and how it was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestKind {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub verb: &'static str,
    /// The plural, such as `nodes`.
    pub resource: &'static str,
    /// `status` and the like; empty for the object itself.
    pub subresource: &'static str,
    /// The HTTP status of the answer.
    pub code: u16,
}

/// How often each kind of request about a resource was answered.
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
        // A counter is whole whatever happened to whoever counted before.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The Prometheus text.
pub(crate) fn render(state: &State) -> String {
    let mut text = String::new();
    // Writing into a String cannot fail.
    let _ = writeln!(text, "# HELP apiserver_storage_objects Objects kept, by resource.");
    let _ = writeln!(text, "# TYPE apiserver_storage_objects gauge");
    for resource in RESOURCES.iter().filter(|r| !r.is_virtual() && r.view.is_none()) {
        let count = state.store.count(resource.storage);
        let _ = writeln!(text, "apiserver_storage_objects{{resource=\"{}\"}} {count}", resource.named().qualified());
    }
    let _ = writeln!(text, "# HELP apiserver_longrunning_requests Watches now open.");
    let _ = writeln!(text, "# TYPE apiserver_longrunning_requests gauge");
    let _ = writeln!(text, "apiserver_longrunning_requests{{verb=\"WATCH\"}} {}", state.watch_cuts.receiver_count());
    let _ = writeln!(text, "# HELP bowline_apiserver_revision The latest revision of anything.");
    let _ = writeln!(text, "# TYPE bowline_apiserver_revision gauge");
    let _ = writeln!(text, "bowline_apiserver_revision {}", state.store.revision());
    render_requests(&mut text, &state.requests.counts());
    text
}

fn render_requests(text: &mut String, counts: &BTreeMap<RequestKind, u64>) {
    let _ = writeln!(text, "# HELP apiserver_request_total Requests about resources, by how they were answered.");
    let _ = writeln!(text, "# TYPE apiserver_request_total counter");
    for (RequestKind { verb, resource, subresource, code }, count) in counts {
        // upstream: verbs are in capitals here and nowhere else.
        let verb = verb.to_ascii_uppercase();
        let _ = writeln!(
            text,
            "apiserver_request_total{{code=\"{code}\",resource=\"{resource}\",subresource=\"{subresource}\",verb=\"{verb}\"}} {count}"
        );
    }
}
