//! What the server says of itself at `/metrics`, in the names a real one uses.

use std::fmt::Write as _;

use crate::resources::RESOURCES;
use crate::state::State;

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
    text
}
