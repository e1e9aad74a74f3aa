//! The HTTP API.

use std::net::SocketAddr;

use crate::LocalCloud;

/// A cloud that listens.
pub struct Server {}

impl Server {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        todo!()
    }

    /// Ends it: what is under way is answered.
    pub async fn shutdown(self) {
        todo!()
    }
}

/// Serves `cloud` at this address; port 0 picks a free one.
pub async fn serve(cloud: LocalCloud, listen: SocketAddr) -> std::io::Result<Server> {
    let _ = (cloud, listen);
    todo!()
}
