//! Connection between two agents that a test can break.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// TCP proxy in front of an agent.
#[derive(Clone)]
pub(crate) struct Link {
    pub(crate) address: SocketAddr,
    broken: Arc<watch::Sender<bool>>,
}

impl Link {
    /// Forwards to this address until the runtime ends.
    pub(crate) async fn to(target: SocketAddr) -> Link {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let link = Link { address: listener.local_addr().unwrap(), broken: Arc::new(watch::Sender::new(false)) };
        let broken = link.broken.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(forward(client, target, broken.subscribe()));
            }
        });
        link
    }

    /// Breaks the link, and its connections, or repairs it.
    pub(crate) fn set_broken(&self, broken: bool) {
        self.broken.send_replace(broken);
    }
}

async fn forward(mut client: TcpStream, target: SocketAddr, mut broken: watch::Receiver<bool>) {
    if *broken.borrow() {
        return;
    }
    let Ok(mut server) = TcpStream::connect(target).await else { return };
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
        _ = broken.wait_for(|broken| *broken) => {}
    }
}
