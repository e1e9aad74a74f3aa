//! Flows of datagrams.

use std::sync::Arc;

use tokio::net::UdpSocket;
use tokio_util::sync::CancellationToken;

use crate::frontend::Frontend;

/// Carries datagrams until `stop` is cancelled.
pub(crate) async fn serve(_socket: UdpSocket, _frontend: Arc<Frontend>, _flows: usize, stop: CancellationToken) {
    stop.cancelled().await;
}
