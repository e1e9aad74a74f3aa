//! Watching: list, watch, and again after a cut, a 410 or a restart of the API server.

use bowline_core::Node;
use bowline_runtime::Shutdown;

use crate::Store;

/// Feeds `store` with all Nodes until shutdown is requested.
pub async fn watch_nodes(client: kube::Client, store: Store<Node>, shutdown: Shutdown) {
    let _ = (client, store, shutdown);
    todo!()
}
