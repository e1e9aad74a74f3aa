//! A small server that can be told to behave badly.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// What it does with a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behaviour {
    /// Answers each request with its first line.
    Keeps,
    /// Likewise, and ends the connection without a word.
    ClosesAfterEach,
    /// Likewise for the first of a connection; reads the second and ends the connection.
    ClosesOnTheSecond,
    /// Reads, and ends the connection.
    Hangs,
    /// Ends the connection in the middle of an answer.
    EndsEarly,
    /// Answers something else.
    SpeaksNonsense,
    /// Reads, and says nothing.
    IsSilent,
}

pub(crate) struct Server {
    port: u16,
    scheme: &'static str,
    seen: Arc<Seen>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
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
        Server::listen("https", Behaviour::Keeps, Some(acceptor)).await
    }

    /// A URL at which nobody listens any more.
    pub(crate) async fn nobody() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        format!("http://{}/", listener.local_addr().unwrap())
    }

    async fn listen(scheme: &'static str, behaviour: Behaviour, tls: Option<TlsAcceptor>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, seen) = (listener.local_addr().unwrap().port(), Arc::new(Seen::default()));
        let told = seen.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                told.connections.fetch_add(1, Ordering::SeqCst);
                let (seen, tls) = (told.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, behaviour, &seen).await,
                        // A client that does not like us has gone by now.
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, behaviour, &seen).await;
                            }
                        }
                    }
                });
            }
        });
        Server { port, scheme, seen, task }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        self.at("127.0.0.1", path)
    }

    /// Under another name for the same machine.
    pub(crate) fn at(&self, host: &str, path: &str) -> String {
        format!("{}://{host}:{}{path}", self.scheme, self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    /// The first lines of all requests.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.seen.requests.lock().unwrap().clone()
    }
}

async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, behaviour: Behaviour, seen: &Seen) {
    let mut count = 0;
    while let Some(head) = read_request(&mut stream).await {
        count += 1;
        let line = head.lines().next().unwrap_or_default().to_owned();
        seen.requests.lock().unwrap().push(line.clone());
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{line}", line.len());
        let said = match behaviour {
            Behaviour::ClosesOnTheSecond if count == 2 => return,
            Behaviour::Keeps | Behaviour::ClosesAfterEach | Behaviour::ClosesOnTheSecond => answer,
            Behaviour::Hangs => return,
            Behaviour::EndsEarly => answer[..answer.len() - 3].to_owned(),
            Behaviour::SpeaksNonsense => "220 mail.example.com ESMTP\r\n".to_owned(),
            Behaviour::IsSilent => {
                tokio::time::sleep(Duration::from_secs(3600)).await;
                return;
            }
        };
        if stream.write_all(said.as_bytes()).await.is_err() || stream.flush().await.is_err() {
            return;
        }
        if !matches!(behaviour, Behaviour::Keeps | Behaviour::ClosesOnTheSecond) {
            let _ = stream.shutdown().await;
            return;
        }
    }
}

/// The head of a request, whose body has been read too; nothing if the connection ends.
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
