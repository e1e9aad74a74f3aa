//! TCP: connections are accepted, filtered, given to a target and carried.
//!
//! ```text
//!  accept ──► filter ──► room? ──► pick ──► connect ──► PROXY header ──► relay until both ends are done
//!               │ reset    │ wait, or another makes room  │ fails: pick another; none: reset
//! ```

use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time;

use crate::connections::Progress;
use crate::crowd::{Crowd, Seat};
use crate::frontend::{Frontend, Rules};
use crate::pool::Lease;
use crate::relay::relay;
use crate::workers::{Load, Worker};
use crate::{open_files, proxy, sockets};

/// How long accepting rests when it cannot go on, such as without a free file descriptor.
const REST: Duration = Duration::from_millis(100);

/// Accepts connections for one frontend, on one worker.
pub(crate) struct Acceptor {
    pub(crate) listener: TcpListener,
    pub(crate) frontend: Arc<Frontend>,
    /// Bounds the connections that are open at once.
    pub(crate) crowd: Arc<Crowd>,
    /// Those that may carry what is accepted.
    pub(crate) crew: Arc<[Worker]>,
    /// The one that accepts.
    pub(crate) here: Worker,
}

impl Acceptor {
    /// Accepts until the frontend is stopped.
    pub(crate) async fn serve(self) {
        self.frontend.stop.run_until_cancelled(self.accept()).await;
    }

    async fn accept(&self) {
        loop {
            match self.listener.accept().await {
                Ok((client, peer)) => {
                    sockets::prepare(&client);
                    self.admit(client, peer).await;
                }
                // It was gone before it was accepted; the next one may be fine.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    let listener = self.frontend.address;
                    tracing::warn!(%listener, %error, "cannot accept connections; trying again soon");
                    time::sleep(REST).await;
                }
            }
        }
    }

    async fn admit(&self, client: TcpStream, peer: SocketAddr) {
        let rules = self.frontend.rules();
        if !rules.filter.allows(peer.ip()) {
            self.frontend.counters.denied.add(1);
            return;
        }
        let progress = Arc::new(Progress::new(rules.idle_timeout));
        // Only one more than there is room for is taken from the queue of the kernel: it waits here, the others there.
        let Some(seat) = self.crowd.admit(&self.frontend, peer.ip(), &progress).await else { return };
        let worker = self.here.or_lighter(&self.crew);
        // It fails only where nothing can be watched any more; the client is closed then.
        let Ok(client) = self.hand_over(client, worker) else { return };
        let task = seat.task();
        let presence = Presence::new(&self.frontend, worker.carry(), seat);
        let frontend = Arc::clone(&self.frontend);
        let connection = Connection { frontend, rules, progress: Arc::clone(&progress), peer };
        self.frontend.connections.enter(progress, |number| {
            let carried = async move {
                let _presence = presence.entered(number);
                connection.carry(client).await;
            };
            let handle = worker.runtime.spawn(carried).abort_handle();
            task.get_or_init(|| handle.clone());
            handle
        });
    }

    /// From now on the runtime of that worker watches the connection.
    fn hand_over(&self, client: TcpStream, worker: &Worker) -> Result<TcpStream> {
        if worker.is(&self.here) {
            return Ok(client);
        }
        let client = client.into_std()?;
        let _entered = worker.runtime.enter();
        TcpStream::from_std(client)
    }
}

/// A connection that was let in.
struct Connection {
    frontend: Arc<Frontend>,
    rules: Arc<Rules>,
    progress: Arc<Progress>,
    peer: SocketAddr,
}

impl Connection {
    async fn carry(&self, client: TcpStream) {
        let Some((target, lease)) = self.connect(&client).await else {
            self.frontend.counters.failed.add(1);
            return;
        };
        lease.established();
        self.progress.established(lease.closed().clone());
        let up = |bytes| self.moved(bytes, &self.frontend.counters.bytes_in);
        let down = |bytes| self.moved(bytes, &self.frontend.counters.bytes_out);
        relay(client, target, up, down).await;
    }

    /// The first target that answers, each asked at most once.
    async fn connect(&self, client: &TcpStream) -> Option<(TcpStream, Lease)> {
        let mut refused = Vec::new();
        while let Some(lease) = self.rules.pool.pick(self.peer.ip(), &refused) {
            let dialled = time::timeout(self.rules.connect_timeout, self.dial_when_possible(lease.address(), client));
            match dialled.await.unwrap_or_else(|_| Err(Error::from(ErrorKind::TimedOut))) {
                Ok(target) => return Some((target, lease)),
                Err(error) => {
                    lease.failed();
                    self.tell(&lease, &error);
                }
            }
            refused.push(lease.address());
        }
        None
    }

    /// That this process has too many files open is not the fault of the target, and passes.
    async fn dial_when_possible(&self, target: SocketAddr, client: &TcpStream) -> Result<TcpStream> {
        loop {
            match self.dial(target, client).await {
                Err(error) if open_files::are_too_many(&error) => time::sleep(REST).await,
                dialled => return dialled,
            }
        }
    }

    async fn dial(&self, target: SocketAddr, client: &TcpStream) -> Result<TcpStream> {
        let socket = if target.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.set_nodelay(true)?;
        let mut stream = socket.connect(target).await?;
        sockets::prepare(&stream);
        if let Some(version) = self.rules.proxy_protocol {
            // On a wildcard address only the connection knows where the client went.
            let arrived_at = client.local_addr()?;
            stream.write_all(&proxy::header(version, self.peer, arrived_at)).await?;
        }
        Ok(stream)
    }

    fn moved(&self, bytes: usize, counter: &crate::frontend::Count) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        counter.add(bytes);
        self.progress.moved(bytes);
    }

    fn tell(&self, lease: &Lease, error: &Error) {
        tracing::debug!(listener = %self.frontend.address, target = %lease.address(), %error, "a target does not answer");
    }
}

/// Counts a connection as open and takes its room for as long as it lives.
struct Presence {
    frontend: Arc<Frontend>,
    number: Option<u64>,
    _load: Load,
    _seat: Seat,
}

impl Presence {
    fn new(frontend: &Arc<Frontend>, load: Load, seat: Seat) -> Presence {
        frontend.counters.accepted.add(1);
        frontend.counters.open.add(1);
        Presence { frontend: Arc::clone(frontend), number: None, _load: load, _seat: seat }
    }

    /// Its task runs under this number.
    fn entered(mut self, number: u64) -> Presence {
        self.number = Some(number);
        self
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.frontend.counters.open.sub(1);
        // A task that is dropped before it ran may be dropped while it is being entered; the sweep finds that.
        if let Some(number) = self.number {
            self.frontend.connections.leave(number);
        }
    }
}
