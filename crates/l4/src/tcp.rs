//! TCP: accepts, filters and limits connections, connects them to a target and relays the data.
//!
//! ```text
//!  accept ──► filter ──► connection limit ──► pick ──► connect ──► PROXY header ──► relay until both ends are done
//!               │ reset    │ wait, evict or reject        │ fails: pick another; none: reset
//! ```

use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time;

use crate::connection_limit::{ConnectionLimit, Slot};
use crate::connections::Progress;
use crate::frontend::{Frontend, Settings};
use crate::pool::Lease;
use crate::relay::relay;
use crate::workers::{LoadGuard, Worker};
use crate::{open_files, proxy_protocol, sockets};

/// Pause after an error of accept or connect that is likely to persist, such as a lack of file descriptors.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Accepts connections for one frontend, on one worker.
pub(crate) struct Acceptor {
    pub(crate) listener: TcpListener,
    pub(crate) frontend: Arc<Frontend>,
    /// Limit on concurrent connections of the data plane.
    pub(crate) connection_limit: Arc<ConnectionLimit>,
    /// Workers that may handle accepted connections.
    pub(crate) workers: Arc<[Worker]>,
    /// Worker that accepts.
    pub(crate) worker: Worker,
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
                // The client closed the connection before it was accepted.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    let listener = self.frontend.address;
                    tracing::warn!(%listener, %error, "cannot accept connections; retrying");
                    time::sleep(RETRY_INTERVAL).await;
                }
            }
        }
    }

    async fn admit(&self, client: TcpStream, peer: SocketAddr) {
        let settings = self.frontend.settings();
        if !settings.filter.allows(peer.ip()) {
            self.frontend.counters.denied.add(1);
            return;
        }
        let progress = Arc::new(Progress::new(settings.idle_timeout));
        // At the limit, one accepted connection waits here and the others in the accept queue of the kernel.
        let Some(slot) = self.connection_limit.admit(&self.frontend, peer.ip(), &progress).await else { return };
        let worker = self.worker.or_least_loaded(&self.workers);
        // Fails only if the runtime cannot register another socket; the client is then reset.
        let Ok(client) = self.hand_over(client, worker) else { return };
        let task = slot.task();
        let open = OpenConnection::new(&self.frontend, worker.assign(), slot);
        let frontend = Arc::clone(&self.frontend);
        let connection = Connection { frontend, settings, progress: Arc::clone(&progress), peer };
        self.frontend.connections.insert(progress, |number| {
            let run = async move {
                let _open = open.inserted(number);
                connection.run(client).await;
            };
            let handle = worker.runtime.spawn(run).abort_handle();
            task.get_or_init(|| handle.clone());
            handle
        });
    }

    /// Moves the connection to the runtime of that worker.
    fn hand_over(&self, client: TcpStream, worker: &Worker) -> Result<TcpStream> {
        if worker.is_same(&self.worker) {
            return Ok(client);
        }
        let client = client.into_std()?;
        let _entered = worker.runtime.enter();
        TcpStream::from_std(client)
    }
}

/// An accepted connection.
struct Connection {
    frontend: Arc<Frontend>,
    settings: Arc<Settings>,
    progress: Arc<Progress>,
    peer: SocketAddr,
}

impl Connection {
    async fn run(&self, client: TcpStream) {
        let Some((target, lease)) = self.connect(&client).await else {
            self.frontend.counters.failed.add(1);
            return;
        };
        lease.established();
        self.progress.established(lease.closed().clone());
        let up = |bytes| self.record_bytes(bytes, &self.frontend.counters.bytes_in);
        let down = |bytes| self.record_bytes(bytes, &self.frontend.counters.bytes_out);
        relay(client, target, up, down).await;
    }

    /// Connects to the first target that answers; each is tried at most once.
    async fn connect(&self, client: &TcpStream) -> Option<(TcpStream, Lease)> {
        let mut refused = Vec::new();
        while let Some(lease) = self.settings.pool.pick(self.peer.ip(), &refused) {
            let dialled = time::timeout(self.settings.connect_timeout, self.dial_with_retry(lease.address(), client));
            match dialled.await.unwrap_or_else(|_| Err(Error::from(ErrorKind::TimedOut))) {
                Ok(target) => return Some((target, lease)),
                Err(error) => {
                    lease.failed();
                    self.log_failure(&lease, &error);
                }
            }
            refused.push(lease.address());
        }
        None
    }

    /// Retries while this process has too many open files, which is temporary and not the fault of the target.
    async fn dial_with_retry(&self, target: SocketAddr, client: &TcpStream) -> Result<TcpStream> {
        loop {
            match self.dial(target, client).await {
                Err(error) if open_files::is_exhausted(&error) => time::sleep(RETRY_INTERVAL).await,
                dialled => return dialled,
            }
        }
    }

    async fn dial(&self, target: SocketAddr, client: &TcpStream) -> Result<TcpStream> {
        let socket = if target.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.set_nodelay(true)?;
        let mut stream = socket.connect(target).await?;
        sockets::prepare(&stream);
        if let Some(version) = self.settings.proxy_protocol {
            // On a wildcard address only the connection knows the address that the client connected to.
            let arrived_at = client.local_addr()?;
            stream.write_all(&proxy_protocol::header(version, self.peer, arrived_at)).await?;
        }
        Ok(stream)
    }

    fn record_bytes(&self, bytes: usize, counter: &crate::frontend::Count) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        counter.add(bytes);
        self.progress.add_bytes(bytes);
    }

    fn log_failure(&self, lease: &Lease, error: &Error) {
        tracing::debug!(listener = %self.frontend.address, target = %lease.address(), %error, "cannot connect to target");
    }
}

/// Counts a connection as open and holds its slot until dropped.
struct OpenConnection {
    frontend: Arc<Frontend>,
    number: Option<u64>,
    _load: LoadGuard,
    _slot: Slot,
}

impl OpenConnection {
    fn new(frontend: &Arc<Frontend>, load: LoadGuard, slot: Slot) -> OpenConnection {
        frontend.counters.accepted.add(1);
        frontend.counters.open.add(1);
        OpenConnection { frontend: Arc::clone(frontend), number: None, _load: load, _slot: slot }
    }

    /// Sets the number of the connection.
    fn inserted(mut self, number: u64) -> OpenConnection {
        self.number = Some(number);
        self
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.frontend.counters.open.sub(1);
        // A task may be dropped before it ran, while it is being inserted; the sweep removes such an entry.
        if let Some(number) = self.number {
            self.frontend.connections.remove(number);
        }
    }
}
