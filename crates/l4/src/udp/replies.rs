//! What a target answers, on its way back to the client.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::task::yield_now;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{BATCH, LONGEST};
use crate::flows::LastHeard;
use crate::frontend::Frontend;

thread_local! {
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; LONGEST].into());
}

/// The way back of one flow.
pub(super) struct Replies {
    pub(super) client: SocketAddr,
    pub(super) upstream: Arc<UdpSocket>,
    pub(super) socket: Arc<UdpSocket>,
    pub(super) frontend: Arc<Frontend>,
    pub(super) heard: Arc<LastHeard>,
}

/// Why no more answers come on a route.
pub(super) struct Ended {
    pub(super) client: SocketAddr,
    pub(super) route: u64,
    pub(super) why: Why,
}

pub(super) enum Why {
    /// The target was removed, and its drain time is up.
    Closed,
    /// Nothing listens there.
    Dead,
}

// === impl Replies ===

impl Replies {
    /// Carries answers until there are no more.
    pub(super) async fn run(self, route: u64, closed: CancellationToken) -> Ended {
        let why = tokio::select! {
            () = closed.cancelled() => Why::Closed,
            () = self.carry_until_dead() => Why::Dead,
        };
        Ended { client: self.client, route, why }
    }

    async fn carry_until_dead(&self) {
        loop {
            // That nothing listens there comes as an error, without anything to read.
            let Ok(ready) = self.upstream.ready(Interest::READABLE | Interest::ERROR).await else { return };
            if ready.is_error() && self.error().is_some_and(|error| is_dead(&error)) {
                return;
            }
            match BUFFER.with_borrow_mut(|buffer| self.carry_some(buffer)) {
                Ok(()) => yield_now().await,
                Err(error) if is_dead(&error) => return,
                Err(_) => {}
            }
        }
    }

    fn error(&self) -> Option<io::Error> {
        // Without one the socket counts as free of errors again, until the next.
        let taken =
            || -> io::Result<()> { Err(self.upstream.take_error()?.unwrap_or(io::ErrorKind::WouldBlock.into())) };
        self.upstream.try_io(Interest::ERROR, taken).err()
    }

    fn carry_some(&self, buffer: &mut [u8]) -> io::Result<()> {
        for _ in 0..BATCH {
            let length = self.upstream.try_recv(buffer)?;
            self.heard.note(Instant::now());
            let datagram = buffer.get(..length).unwrap_or_default();
            // If there is no room for it, it is lost.
            if let Ok(sent) = self.socket.try_send_to(datagram, self.client) {
                self.frontend.counters.bytes_out.add(sent as u64);
            }
        }
        Ok(())
    }
}

/// Whether sending on makes no sense: an ICMP message said that nothing listens there, or nobody knows the way. Anything
/// else, such as a datagram that is too long, is a matter of this datagram.
pub(super) fn is_dead(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
    matches!(error.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable)
}
