//! One listening socket of a simulated node, and its connections.
//!
//! The answer can change while the socket is open. A connection belongs to the Pod that was picked for it, and is closed when that
//! Pod is removed or the listener is closed.

use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{Semaphore, watch};

use super::answer::{greeting, serve_client, serve_health};
use super::decide::{Answer, Backend, Socket, Transport};

/// Pause after a failed accept, usually because of too many open files.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Maximum size of a datagram.
const MAX_DATAGRAM: usize = 64 * 1024;

/// An open socket. Dropping it closes the socket and all of its connections.
pub(super) struct Listener {
    answer: watch::Sender<Answer>,
}

/// Handles the connections of a listener.
#[derive(Clone)]
struct Handler {
    /// Closed when the listener is dropped.
    answer: watch::Receiver<Answer>,
    next_pod: Arc<AtomicUsize>,
}

impl Listener {
    pub(super) async fn open(
        socket: Socket,
        answer: Answer,
        permits: Arc<Semaphore>,
        next_pod: Arc<AtomicUsize>,
    ) -> io::Result<Listener> {
        let (answer, now) = watch::channel(answer);
        let handler = Handler { answer: now, next_pod };
        match socket.transport {
            Transport::Tcp => drop(tokio::spawn(handler.accept(TcpListener::bind(socket.address).await?, permits))),
            Transport::Udp => drop(tokio::spawn(handler.serve_udp(UdpSocket::bind(socket.address).await?))),
        }
        Ok(Listener { answer })
    }

    /// Changes the answer.
    pub(super) fn set_answer(&self, answer: Answer) {
        self.answer.send_if_modified(|now| {
            let differs = *now != answer;
            *now = answer;
            differs
        });
    }
}

impl Handler {
    /// Accepts connections until the listener is dropped.
    async fn accept(self, listener: TcpListener, permits: Arc<Semaphore>) {
        let mut answer = self.answer.clone();
        loop {
            let next = async { (permits.clone().acquire_owned().await, listener.accept().await) };
            let (permit, accepted) = tokio::select! {
                next = next => next,
                () = closed(&mut answer) => return,
            };
            let Ok((stream, client)) = accepted else {
                tokio::time::sleep(RETRY_INTERVAL).await;
                continue;
            };
            let handler = self.clone();
            tokio::spawn(async move {
                // An error means that the client closed the connection.
                let _ = handler.serve(stream, client).await;
                drop(permit);
            });
        }
    }

    async fn serve(mut self, stream: TcpStream, client: SocketAddr) -> io::Result<()> {
        let answer = self.answer.borrow().clone();
        match answer {
            Answer::Health { namespace, service, local } => serve_health(stream, &namespace, &service, local).await,
            Answer::Pods { pods, sticky } => {
                let Some(backend) = pick(&pods, sticky.then(|| hash(client.ip())), &self.next_pod) else {
                    return Ok(());
                };
                let greeting = greeting(backend, client);
                tokio::select! {
                    done = serve_client(stream, &greeting) => done,
                    () = backend_removed(&mut self.answer, backend) => Ok(()),
                }
            }
        }
    }

    /// Answers datagrams until the listener is dropped. The datagrams of one client socket are one flow and reach one Pod.
    async fn serve_udp(self, socket: UdpSocket) {
        let mut answer = self.answer.clone();
        let mut datagram = vec![0; MAX_DATAGRAM];
        loop {
            let received = tokio::select! {
                received = socket.recv_from(&mut datagram) => received,
                () = closed(&mut answer) => return,
            };
            // An error here is an ICMP error for an earlier reply.
            let Ok((length, client)) = received else { continue };
            let Answer::Pods { pods, .. } = self.answer.borrow().clone() else { continue };
            let Some(backend) = pick(&pods, Some(hash(client)), &self.next_pod) else { continue };
            let mut reply = greeting(backend, client).into_bytes();
            reply.extend(datagram.iter().take(length));
            let _ = socket.send_to(&reply, client).await;
        }
    }
}

fn pick<'a>(pods: &'a [Backend], fixed: Option<usize>, next_pod: &AtomicUsize) -> Option<&'a Backend> {
    let number = fixed.unwrap_or_else(|| next_pod.fetch_add(1, Ordering::Relaxed));
    pods.get(number.checked_rem(pods.len())?)
}

fn hash(client: impl Hash) -> usize {
    let mut hasher = DefaultHasher::new();
    client.hash(&mut hasher);
    hasher.finish() as usize
}

/// Waits until the listener is dropped.
async fn closed(answer: &mut watch::Receiver<Answer>) {
    // `wait_for` fails when the sender is dropped.
    let _ = answer.wait_for(|_| false).await.is_err();
}

/// Waits until this Pod is no longer a backend of the listener.
async fn backend_removed(answer: &mut watch::Receiver<Answer>, backend: &Backend) {
    let has = |answer: &Answer| matches!(answer, Answer::Pods { pods, .. } if pods.contains(backend));
    let _ = answer.wait_for(|answer| !has(answer)).await.is_err();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::decide::pods_of;
    use std::collections::BTreeSet;
    use std::net::Ipv4Addr;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    async fn open(transport: Transport, answer: Answer) -> (Listener, SocketAddr) {
        let free = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let socket = Socket { address: free, transport };
        (Listener::open(socket, answer, Arc::new(Semaphore::new(9)), Arc::default()).await.unwrap(), free)
    }

    async fn get(address: SocketAddr) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        let mut received = String::new();
        stream.read_to_string(&mut received).await.unwrap();
        received.split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    #[tokio::test]
    async fn pods_answer_in_turn_with_their_names() {
        let (_listener, address) = open(Transport::Tcp, pods_of(&["p", "q"])).await;
        let answers = [get(address).await, get(address).await];
        for (answer, pod) in answers.iter().zip(["p", "q"]) {
            let expected = format!("hello from {pod} on n; you are 127.0.0.1:");
            assert!(answer.starts_with(&expected), "{answer}");
        }
    }

    #[tokio::test]
    async fn with_session_affinity_a_client_stays_with_one_pod() {
        let Answer::Pods { pods, .. } = pods_of(&["p", "q", "r"]) else { return };
        let (_listener, address) = open(Transport::Tcp, Answer::Pods { pods, sticky: true }).await;
        let mut seen = BTreeSet::new();
        for _ in 0..4 {
            seen.insert(get(address).await.split_whitespace().nth(2).unwrap().to_owned());
        }
        assert_eq!(seen.len(), 1, "{seen:?}");
    }

    #[tokio::test]
    async fn a_connection_ends_with_its_pod_and_the_others_continue() {
        let (listener, address) = open(Transport::Tcp, pods_of(&["p", "q"])).await;
        let mut connections = Vec::new();
        for _ in 0..2 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(b"ahoy\n").await.unwrap();
            let mut received = [0; 256];
            let length = stream.read(&mut received).await.unwrap();
            connections.push((stream, String::from_utf8_lossy(&received[..length]).into_owned()));
        }
        listener.set_answer(pods_of(&["q"]));
        for (mut stream, received) in connections {
            if received.contains("from p ") {
                // Closed after the echoed data.
                stream.read_to_end(&mut Vec::new()).await.unwrap();
            } else {
                // The echo of the first line may arrive in a second read.
                stream.write_all(b"still there?\n").await.unwrap();
                let mut echo = String::new();
                while !echo.contains("still there?\n") {
                    let mut piece = [0; 64];
                    let length = stream.read(&mut piece).await.unwrap();
                    assert!(length > 0, "closed after {echo:?}");
                    echo += &String::from_utf8_lossy(&piece[..length]);
                }
            }
        }
    }

    #[tokio::test]
    async fn connections_end_with_the_listener() {
        let (listener, address) = open(Transport::Tcp, pods_of(&["p"])).await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"ahoy\n").await.unwrap();
        stream.read_u8().await.unwrap();
        drop(listener);
        stream.read_to_end(&mut Vec::new()).await.unwrap();
    }

    #[tokio::test]
    async fn datagrams_are_echoed_after_the_greeting() {
        let (_listener, address) = open(Transport::Udp, pods_of(&["p"])).await;
        let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        client.send_to(b"ahoy", address).await.unwrap();
        let mut received = [0; 256];
        let length = client.recv(&mut received).await.unwrap();
        let own = client.local_addr().unwrap();
        assert_eq!(String::from_utf8_lossy(&received[..length]), format!("hello from p on n; you are {own}\nahoy"));
    }
}
