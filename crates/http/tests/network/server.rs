//! A small test server with configurable misbehaviour.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// Behaviour of the server on a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behaviour {
    /// Responds to each request with its request line.
    KeepAlive,
    /// The same, and closes the connection without announcing it.
    ClosesAfterEach,
    /// The same for the first request of a connection; reads the second request and closes the connection.
    ClosesOnSecond,
    /// Reads the request, and closes the connection.
    ClosesWithoutResponse,
    /// Closes the connection in the middle of a response.
    Truncates,
    /// Responds with another protocol.
    NotHttp,
    /// Reads the request, and never responds.
    NoResponse,
}

pub(crate) struct Server {
    port: u16,
    scheme: &'static str,
    recorded: Arc<Recorded>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Recorded {
    connections: AtomicUsize,
    requests: Mutex<Vec<String>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    pub(crate) async fn start(behaviour: Behaviour) -> Server {
        Server::listen("http", behaviour, None).await
    }

    pub(crate) async fn secure(acceptor: TlsAcceptor) -> Server {
        Server::listen("https", Behaviour::KeepAlive, Some(acceptor)).await
    }

    /// Returns the URL of a closed port.
    pub(crate) async fn closed_port() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        format!("http://{}/", listener.local_addr().unwrap())
    }

    async fn listen(scheme: &'static str, behaviour: Behaviour, tls: Option<TlsAcceptor>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, recorded) = (listener.local_addr().unwrap().port(), Arc::new(Recorded::default()));
        let shared = recorded.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                shared.connections.fetch_add(1, Ordering::SeqCst);
                let (recorded, tls) = (shared.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, behaviour, &recorded).await,
                        // A client that rejects the certificate has disconnected.
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, behaviour, &recorded).await;
                            }
                        }
                    }
                });
            }
        });
        Server { port, scheme, recorded, task }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        self.at("127.0.0.1", path)
    }

    /// Returns the URL with another host name.
    pub(crate) fn at(&self, host: &str, path: &str) -> String {
        format!("{}://{host}:{}{path}", self.scheme, self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn connections(&self) -> usize {
        self.recorded.connections.load(Ordering::SeqCst)
    }

    /// Returns the request lines of all requests.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.recorded.requests.lock().unwrap().clone()
    }
}

async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, behaviour: Behaviour, recorded: &Recorded) {
    let mut count = 0;
    while let Some(head) = read_request(&mut stream).await {
        count += 1;
        let line = head.lines().next().unwrap_or_default().to_owned();
        recorded.requests.lock().unwrap().push(line.clone());
        let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{line}", line.len());
        let sent = match behaviour {
            Behaviour::ClosesOnSecond if count == 2 => return,
            Behaviour::KeepAlive | Behaviour::ClosesAfterEach | Behaviour::ClosesOnSecond => response,
            Behaviour::ClosesWithoutResponse => return,
            Behaviour::Truncates => response[..response.len() - 3].to_owned(),
            Behaviour::NotHttp => "220 mail.example.com ESMTP\r\n".to_owned(),
            Behaviour::NoResponse => {
                tokio::time::sleep(Duration::from_secs(3600)).await;
                return;
            }
        };
        if stream.write_all(sent.as_bytes()).await.is_err() || stream.flush().await.is_err() {
            return;
        }
        if !matches!(behaviour, Behaviour::KeepAlive | Behaviour::ClosesOnSecond) {
            let _ = stream.shutdown().await;
            return;
        }
    }
}

/// Reads a request and returns its head; `None` if the connection ends.
pub(crate) async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        bytes.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(bytes).ok()?;
    let length = head
        .to_ascii_lowercase()
        .lines()
        .find_map(|line| line.strip_prefix("content-length:").and_then(|length| length.trim().parse::<usize>().ok()));
    stream.read_exact(&mut vec![0; length.unwrap_or(0)]).await.ok()?;
    Some(head)
}
