//! Replies of a target, forwarded to the client.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::task::yield_now;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{BATCH, MAX_DATAGRAM};
use crate::flow_table::LastActivity;
use crate::frontend::Frontend;

thread_local! {
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; MAX_DATAGRAM].into());
}

/// Forwards the replies of one flow.
pub(super) struct Replies {
    pub(super) client: SocketAddr,
    pub(super) upstream: Arc<UdpSocket>,
    pub(super) listener: Arc<UdpSocket>,
    pub(super) frontend: Arc<Frontend>,
    pub(super) last_activity: Arc<LastActivity>,
}

/// Result of a reply task.
pub(super) struct Ended {
    pub(super) client: SocketAddr,
    pub(super) upstream: u64,
    pub(super) reason: EndReason,
}

pub(super) enum EndReason {
    /// The target was removed, and its drain timeout has expired.
    Closed,
    /// The target has returned an ICMP unreachable error.
    Unreachable,
}

// === impl Replies ===

impl Replies {
    /// Forwards replies until the target is removed or unreachable.
    pub(super) async fn run(self, upstream: u64, closed: CancellationToken) -> Ended {
        let reason = tokio::select! {
            () = closed.cancelled() => EndReason::Closed,
            () = self.forward_until_unreachable() => EndReason::Unreachable,
        };
        Ended { client: self.client, upstream, reason }
    }

    async fn forward_until_unreachable(&self) {
        loop {
            // An ICMP error makes the socket ready with an error and nothing to read.
            let Ok(ready) = self.upstream.ready(Interest::READABLE | Interest::ERROR).await else { return };
            if ready.is_error() && self.error().is_some_and(|error| is_unreachable(&error)) {
                return;
            }
            match BUFFER.with_borrow_mut(|buffer| self.forward_batch(buffer)) {
                Ok(()) => yield_now().await,
                Err(error) if is_unreachable(&error) => return,
                Err(_) => {}
            }
        }
    }

    fn error(&self) -> Option<io::Error> {
        // `WouldBlock` clears Tokio's error readiness until the next error.
        let taken =
            || -> io::Result<()> { Err(self.upstream.take_error()?.unwrap_or(io::ErrorKind::WouldBlock.into())) };
        self.upstream.try_io(Interest::ERROR, taken).err()
    }

    fn forward_batch(&self, buffer: &mut [u8]) -> io::Result<()> {
        for _ in 0..BATCH {
            let length = self.upstream.try_recv(buffer)?;
            self.last_activity.record(Instant::now());
            let datagram = buffer.get(..length).unwrap_or_default();
            // Dropped if the socket buffer is full.
            if let Ok(sent) = self.listener.try_send_to(datagram, self.client) {
                self.frontend.counters.bytes_out.add(sent as u64);
            }
        }
        Ok(())
    }
}

/// Returns whether the target is unreachable: port, host or network. Any other error, such as a datagram that is too long, concerns
/// that datagram only.
pub(super) fn is_unreachable(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
    matches!(error.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable)
}
