//! One socket of a simulated node, and those who come to it.
//!
//! What is answered can change while it is open. A connection belongs to the Pod that took it and ends with that Pod; it
//! also ends with the door.

use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{Semaphore, watch};

use super::answer::{converse, greeting, report};
use super::decide::{Answer, Backend, Socket, Transport};

/// The pause after a connection could not be accepted: there are too many files, and that does not change at once.
const REST: Duration = Duration::from_millis(50);

/// The largest datagram.
const DATAGRAM: usize = 64 * 1024;

/// An open socket; dropping it closes it, and all connections that came in by it.
pub(super) struct AccessControl {
    answer: watch::Sender<Answer>,
}

/// Who answers at a door.
#[derive(Clone)]
struct Host {
    /// Its end is the end of the door.
    answer: watch::Receiver<Answer>,
    turn: Arc<AtomicUsize>,
}

impl AccessControl {
    pub(super) async fn open(
        socket: Socket,
        answer: Answer,
        places: Arc<Semaphore>,
        turn: Arc<AtomicUsize>,
    ) -> io::Result<AccessControl> {
        let (answer, now) = watch::channel(answer);
        let host = Host { answer: now, turn };
        match socket.transport {
            Transport::Tcp => drop(tokio::spawn(host.receive(TcpListener::bind(socket.address).await?, places))),
            Transport::Udp => drop(tokio::spawn(host.reply(UdpSocket::bind(socket.address).await?))),
        }
        Ok(AccessControl { answer })
    }

    /// From now on it is answered like this.
    pub(super) fn answer_with(&self, answer: Answer) {
        self.answer.send_if_modified(|now| {
            let differs = *now != answer;
            *now = answer;
            differs
        });
    }
}

impl Host {
    /// Takes connections until the door is closed.
    async fn receive(self, listener: TcpListener, places: Arc<Semaphore>) {
        let mut door = self.answer.clone();
        loop {
            let next = async { (places.clone().acquire_owned().await, listener.accept().await) };
            let (place, accepted) = tokio::select! {
                next = next => next,
                () = closed(&mut door) => return,
            };
            let Ok((stream, client)) = accepted else {
                tokio::time::sleep(REST).await;
                continue;
            };
            let host = self.clone();
            tokio::spawn(async move {
                // A client that hangs up in the middle has its reasons.
                let _ = host.welcome(stream, client).await;
                drop(place);
            });
        }
    }

    async fn welcome(mut self, stream: TcpStream, client: SocketAddr) -> io::Result<()> {
        let answer = self.answer.borrow().clone();
        match answer {
            Answer::Health { namespace, service, local } => report(stream, &namespace, &service, local).await,
            Answer::Pods { pods, sticky } => {
                let Some(backend) = pick(&pods, sticky.then(|| hash(client.ip())), &self.turn) else { return Ok(()) };
                let greeting = greeting(backend, client);
                tokio::select! {
                    done = converse(stream, &greeting) => done,
                    () = gone(&mut self.answer, backend) => Ok(()),
                }
            }
        }
    }

    /// Answers datagrams until the door is closed. Those of one client socket are one flow, and go to one Pod.
    async fn reply(self, socket: UdpSocket) {
        let mut door = self.answer.clone();
        let mut datagram = vec![0; DATAGRAM];
        loop {
            let received = tokio::select! {
                received = socket.recv_from(&mut datagram) => received,
                () = closed(&mut door) => return,
            };
            // An error here is an earlier answer that nobody took.
            let Ok((length, client)) = received else { continue };
            let Answer::Pods { pods, .. } = self.answer.borrow().clone() else { continue };
            let Some(backend) = pick(&pods, Some(hash(client)), &self.turn) else { continue };
            let mut answer = greeting(backend, client).into_bytes();
            answer.extend(datagram.iter().take(length));
            let _ = socket.send_to(&answer, client).await;
        }
    }
}

fn pick<'a>(pods: &'a [Backend], fixed: Option<usize>, turn: &AtomicUsize) -> Option<&'a Backend> {
    let number = fixed.unwrap_or_else(|| turn.fetch_add(1, Ordering::Relaxed));
    pods.get(number.checked_rem(pods.len())?)
}

fn hash(client: impl Hash) -> usize {
    let mut hasher = DefaultHasher::new();
    client.hash(&mut hasher);
    hasher.finish() as usize
}

/// Waits until the door is closed.
async fn closed(door: &mut watch::Receiver<Answer>) {
    // The only error is what is waited for: nobody can change the answer any more.
    let _ = door.wait_for(|_| false).await.is_err();
}

/// Waits until this Pod takes no traffic here any more.
async fn gone(door: &mut watch::Receiver<Answer>, backend: &Backend) {
    let has = |answer: &Answer| matches!(answer, Answer::Pods { pods, .. } if pods.contains(backend));
    let _ = door.wait_for(|answer| !has(answer)).await.is_err();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::decide::pods_of;
    use std::collections::BTreeSet;
    use std::net::Ipv4Addr;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    async fn open(transport: Transport, answer: Answer) -> (AccessControl, SocketAddr) {
        let free = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let socket = Socket { address: free, transport };
        (AccessControl::open(socket, answer, Arc::new(Semaphore::new(9)), Arc::default()).await.unwrap(), free)
    }

    async fn get(address: SocketAddr) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        let mut heard = String::new();
        stream.read_to_string(&mut heard).await.unwrap();
        heard.split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    #[tokio::test]
    async fn pods_take_turns_and_say_who_they_are() {
        let (_door, address) = open(Transport::Tcp, pods_of(&["p", "q"])).await;
        let answers = [get(address).await, get(address).await];
        for (answer, pod) in answers.iter().zip(["p", "q"]) {
            let expected = format!("hello from {pod} on n; you are 127.0.0.1:");
            assert!(answer.starts_with(&expected), "{answer}");
        }
    }

    #[tokio::test]
    async fn one_client_stays_with_one_pod_if_the_service_says_so() {
        let Answer::Pods { pods, .. } = pods_of(&["p", "q", "r"]) else { return };
        let (_door, address) = open(Transport::Tcp, Answer::Pods { pods, sticky: true }).await;
        let mut seen = BTreeSet::new();
        for _ in 0..4 {
            seen.insert(get(address).await.split_whitespace().nth(2).unwrap().to_owned());
        }
        assert_eq!(seen.len(), 1, "{seen:?}");
    }

    #[tokio::test]
    async fn a_connection_ends_with_its_pod_and_the_others_go_on() {
        let (door, address) = open(Transport::Tcp, pods_of(&["p", "q"])).await;
        let mut connections = Vec::new();
        for _ in 0..2 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(b"ahoy\n").await.unwrap();
            let mut heard = [0; 256];
            let length = stream.read(&mut heard).await.unwrap();
            connections.push((stream, String::from_utf8_lossy(&heard[..length]).into_owned()));
        }
        door.answer_with(pods_of(&["q"]));
        for (mut stream, heard) in connections {
            if heard.contains("from p ") {
                // Closed, at the end of what was echoed.
                stream.read_to_end(&mut Vec::new()).await.unwrap();
            } else {
                // The echo of the first words may come in a second piece.
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
    async fn connections_end_with_the_door() {
        let (door, address) = open(Transport::Tcp, pods_of(&["p"])).await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"ahoy\n").await.unwrap();
        stream.read_u8().await.unwrap();
        drop(door);
        stream.read_to_end(&mut Vec::new()).await.unwrap();
    }

    #[tokio::test]
    async fn datagrams_are_echoed_behind_the_name() {
        let (_door, address) = open(Transport::Udp, pods_of(&["p"])).await;
        let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        client.send_to(b"ahoy", address).await.unwrap();
        let mut heard = [0; 256];
        let length = client.recv(&mut heard).await.unwrap();
        let own = client.local_addr().unwrap();
        assert_eq!(String::from_utf8_lossy(&heard[..length]), format!("hello from p on n; you are {own}\nahoy"));
    }
}
