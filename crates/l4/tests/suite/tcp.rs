//! How TCP connections are carried: real sockets on loopback addresses.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use crate::support::*;
use bowline_l4::{DataPlane, Limits, Target};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// A balancer in front of one target, whose side of connections the test plays itself.
async fn in_front_of_one() -> (DataPlane, SocketAddr, TcpListener) {
    let target = TcpListener::bind((fresh_address(), 0)).await.unwrap();
    let (plane, address) = (plane(), fresh_address());
    plane.set("a", balancer(address, &[target.local_addr().unwrap()])).await.unwrap();
    (plane, SocketAddr::new(address, PORT), target)
}

async fn pair(address: SocketAddr, target: &TcpListener) -> (TcpStream, TcpStream) {
    let client = soon("connect", TcpStream::connect(address)).await.unwrap();
    let (server, _) = soon("accept", target.accept()).await.unwrap();
    (client, server)
}

#[tokio::test]
async fn bytes_go_both_ways_and_are_counted() {
    let (plane, address, echo) = (plane(), fresh_address(), Echo::start().await);
    plane.set("a", balancer(address, &[echo.address])).await.unwrap();
    let mut client = Client::connect(address).await;
    client.talk("hello").await.unwrap();
    let open = counters(&plane);
    assert_eq!((open.accepted, open.open, open.failed, open.denied), (1, 1, 0, 0));
    assert_eq!((targets(&plane)[0].open, targets(&plane)[0].total), (1, 1));
    drop(client);
    eventually("closed", || counters(&plane).open == 0 && targets(&plane)[0].open == 0).await;
    assert_eq!((counters(&plane).bytes_in, counters(&plane).bytes_out), (5, 21 + 5));
    assert_eq!(targets(&plane)[0].total, 1);
}

#[tokio::test]
async fn much_goes_through_unchanged_on_threads_of_its_own() {
    let plane = DataPlane::new(Limits { threads: 2, ..Limits::default() });
    let (address, echo) = (fresh_address(), Echo::start().await);
    plane.set("a", balancer(address, &[echo.address])).await.unwrap();
    let clients = (0..8u8).map(|number| async move {
        let mut client = Client::connect(address).await;
        let sent: Vec<u8> = (0..3_000_000u32).map(|at| (at.wrapping_mul(31) >> 3) as u8 ^ number).collect();
        let (mut reader, mut writer) = client.stream.split();
        let mut received = Vec::new();
        let send = async {
            writer.write_all(&sent).await?;
            writer.shutdown().await
        };
        let both = async { tokio::try_join!(send, reader.read_to_end(&mut received)) };
        soon("transfer", both).await.unwrap();
        assert!(sent == received, "client {number} got other bytes than it sent");
    });
    for task in clients.map(|client| tokio::spawn(client)).collect::<Vec<_>>() {
        task.await.unwrap();
    }
    plane.shutdown(PATIENCE).await;
}

#[tokio::test]
async fn a_client_that_is_done_sending_still_gets_its_answer() {
    let (_plane, address, target) = in_front_of_one().await;
    let (mut client, mut server) = pair(address, &target).await;
    client.write_all(b"question").await.unwrap();
    client.shutdown().await.unwrap();
    let mut question = Vec::new();
    soon("question", server.read_to_end(&mut question)).await.unwrap();
    assert_eq!(question, b"question");
    server.write_all(b"answer").await.unwrap();
    drop(server);
    let mut answer = Vec::new();
    soon("answer", client.read_to_end(&mut answer)).await.unwrap();
    assert_eq!(answer, b"answer");
}

#[tokio::test]
async fn a_target_that_is_done_sending_still_gets_what_the_client_sends() {
    let (_plane, address, target) = in_front_of_one().await;
    let (mut client, mut server) = pair(address, &target).await;
    server.shutdown().await.unwrap();
    assert_eq!(soon("end", client.read(&mut [0])).await.unwrap(), 0);
    client.write_all(b"more").await.unwrap();
    let mut more = [0; 4];
    soon("more", server.read_exact(&mut more)).await.unwrap();
    assert_eq!(&more, b"more");
}

#[tokio::test]
async fn a_reset_by_the_target_is_a_reset_for_the_client() {
    let (plane, address, target) = in_front_of_one().await;
    let (mut client, server) = pair(address, &target).await;
    server.set_zero_linger().unwrap();
    drop(server);
    let error = soon("reset", client.read(&mut [0])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    eventually("closed", || counters(&plane).open == 0).await;
}

#[tokio::test]
async fn a_reset_by_the_client_is_a_reset_for_the_target() {
    let (plane, address, target) = in_front_of_one().await;
    let (client, mut server) = pair(address, &target).await;
    client.set_zero_linger().unwrap();
    drop(client);
    let error = soon("reset", server.read(&mut [0])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    eventually("closed", || counters(&plane).open == 0).await;
}

/// Writes until nothing more is taken for a while. Tells how much was.
async fn fill(writer: &mut TcpStream) -> usize {
    let (piece, mut taken) = (vec![0; 64 * 1024], 0);
    while let Ok(Ok(written)) = tokio::time::timeout(Duration::from_millis(300), writer.write(&piece)).await {
        taken += written;
        assert!(taken < 256 * 1024 * 1024, "nothing holds the writer back");
    }
    taken
}

#[tokio::test]
async fn a_target_that_does_not_read_holds_the_client_back_and_gets_everything_later() {
    let (plane, address, target) = in_front_of_one().await;
    let (mut client, mut server) = pair(address, &target).await;
    let taken = fill(&mut client).await;
    assert!(counters(&plane).bytes_in <= taken as u64);
    client.shutdown().await.unwrap();
    let mut got = Vec::new();
    soon("all", server.read_to_end(&mut got)).await.unwrap();
    assert_eq!(got.len(), taken);
}

#[tokio::test]
async fn a_client_that_breaks_off_while_its_target_does_not_read_is_noticed() {
    let (plane, address, target) = in_front_of_one().await;
    let (mut client, _server) = pair(address, &target).await;
    fill(&mut client).await;
    client.set_zero_linger().unwrap();
    drop(client);
    eventually("closed", || counters(&plane).open == 0).await;
}

/// An address at which nobody listens.
async fn nobody() -> SocketAddr {
    TcpListener::bind((fresh_address(), 0)).await.unwrap().local_addr().unwrap()
}

#[tokio::test]
async fn another_target_is_tried_when_one_refuses() {
    let (plane, address, echo) = (plane(), fresh_address(), Echo::start().await);
    let dead = nobody().await;
    plane.set("a", balancer(address, &[dead, echo.address])).await.unwrap();
    for _ in 0..4 {
        assert_eq!(Client::connect(address).await.target, echo.address);
    }
    let totals: Vec<_> = targets(&plane).iter().map(|target| target.total).collect();
    assert_eq!(totals, [0, 4]);
    assert_eq!(counters(&plane).failed, 0);
}

#[tokio::test]
async fn another_target_is_tried_when_one_does_not_answer_in_time() {
    // A listener whose queue is full drops what asks for a connection.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(fresh_address(), 0)).unwrap();
    let silent = socket.listen(0).unwrap();
    let silent_address = silent.local_addr().unwrap();
    let mut queued = Vec::new();
    while let Ok(Ok(stream)) =
        tokio::time::timeout(Duration::from_millis(300), TcpStream::connect(silent_address)).await
    {
        queued.push(stream);
        assert!(queued.len() < 100, "the queue never fills");
    }
    let (plane, address, echo) = (plane(), fresh_address(), Echo::start().await);
    let mut config = balancer(address, &[silent_address, echo.address]);
    config.listeners[0].connect_timeout = Duration::from_millis(100);
    plane.set("a", config).await.unwrap();
    for _ in 0..2 {
        assert_eq!(Client::connect(address).await.target, echo.address);
    }
}

#[tokio::test]
async fn a_client_is_reset_when_no_target_answers() {
    let (plane, address) = (plane(), fresh_address());
    plane.set("a", balancer(address, &[nobody().await, nobody().await])).await.unwrap();
    assert!(reset(SocketAddr::new(address, PORT)).await);
    eventually("closed", || counters(&plane).open == 0).await;
    assert_eq!((counters(&plane).accepted, counters(&plane).failed), (1, 1));
    assert!(targets(&plane).iter().all(|target| target.open == 0 && target.total == 0));
}

#[tokio::test]
async fn a_client_is_reset_when_there_is_no_target() {
    let (plane, address) = (plane(), fresh_address());
    plane.set("a", balancer(address, &[])).await.unwrap();
    assert!(reset(SocketAddr::new(address, PORT)).await);
    eventually("counted", || counters(&plane).failed == 1).await;
}

#[tokio::test]
async fn those_who_may_not_connect_are_reset_and_counted() {
    let (plane, address, echo) = (plane(), fresh_address(), Echo::start().await);
    let mut config = balancer(address, &[echo.address]);
    config.allow = vec!["192.0.2.0/24".parse().unwrap()];
    plane.set("a", config).await.unwrap();
    assert!(reset(SocketAddr::new(address, PORT)).await);
    eventually("counted", || counters(&plane).denied == 1).await;
    assert_eq!((counters(&plane).accepted, targets(&plane)[0].total), (0, 0));
}

#[tokio::test]
async fn targets_get_their_turns() {
    let (plane, address) = (plane(), fresh_address());
    let (one, other) = (Echo::start().await, Echo::start().await);
    plane.set("a", balancer(address, &[one.address, other.address])).await.unwrap();
    for _ in 0..6 {
        Client::connect(address).await;
    }
    assert!(targets(&plane).iter().all(|target| target.total == 3));
}

#[tokio::test]
async fn a_connection_on_which_nothing_happens_is_closed_and_counted() {
    let (plane, address, echo) = (plane(), fresh_address(), Echo::start().await);
    let mut config = balancer(address, &[echo.address]);
    config.listeners[0].idle_timeout = Duration::from_millis(100);
    plane.set("a", config).await.unwrap();
    Client::connect(address).await.cut().await;
    eventually("counted", || counters(&plane).idled == 1 && counters(&plane).open == 0).await;
}

#[tokio::test]
async fn more_connections_than_there_is_room_for_wait_for_their_turn() {
    let plane = DataPlane::new(Limits { connections: 2, ..Limits::default() });
    let (address, echo) = (fresh_address(), Echo::start().await);
    plane.set("a", balancer(address, &[echo.address])).await.unwrap();
    let first = Client::connect(address).await;
    let _second = Client::connect(address).await;
    let mut waiting = (0..3).map(|_| tokio::spawn(Client::connect(address))).collect::<Vec<_>>();
    // Time for them to be let in, if they were.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(counters(&plane).open, 2);
    drop(first);
    for waited in waiting.drain(..) {
        let mut client = waited.await.unwrap();
        client.talk("at last").await.unwrap();
        assert!(counters(&plane).open <= 2);
    }
    assert_eq!(counters(&plane).accepted, 5);
}

#[tokio::test]
async fn ipv6_works_like_ipv4() {
    if TcpListener::bind("[::1]:0").await.is_err() {
        eprintln!("SKIPPED: this machine has no IPv6 loopback address");
        return;
    }
    let echo = Echo::start_at("[::1]:0".parse().unwrap()).await;
    // After the target has its port, so that it cannot be given this one.
    let address = TcpListener::bind("[::1]:0").await.unwrap().local_addr().unwrap();
    let plane = plane();
    let mut config = balancer(address.ip(), &[echo.address]);
    config.listeners[0].port = address.port();
    config.listeners[0].targets = vec![Target::new(echo.address)];
    let status = plane.set("a", config).await.unwrap();
    assert_eq!(status.listeners[0].error, None);
    Client::try_connect(address).await.unwrap().talk("hello").await.unwrap();
}

#[tokio::test]
async fn a_target_is_told_who_the_client_is_before_anything_else() {
    let target = TcpListener::bind((fresh_address(), 0)).await.unwrap();
    let (plane, address) = (plane(), fresh_address());
    let mut config = balancer(address, &[target.local_addr().unwrap()]);
    config.listeners[0].proxy_protocol = Some(bowline_l4::ProxyProtocol::V1);
    plane.set("a", config).await.unwrap();
    let (mut client, mut server) = pair(SocketAddr::new(address, PORT), &target).await;
    client.write_all(b"body").await.unwrap();
    let me = client.local_addr().unwrap();
    let expected = format!("PROXY TCP4 {} {} {} {}\r\nbody", me.ip(), address, me.port(), PORT);
    let mut got = vec![0; expected.len()];
    soon("header", server.read_exact(&mut got)).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&got), expected);
}

/// Accepts nothing, and has no room for a connection that could wait: packets to it are dropped.
async fn black_hole() -> (TcpListener, Vec<TcpStream>) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(fresh_address(), 0)).unwrap();
    let listener = socket.listen(1).unwrap();
    let mut waiting = Vec::new();
    while let Ok(Ok(stream)) =
        tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(listener.local_addr().unwrap())).await
    {
        waiting.push(stream);
    }
    (listener, waiting)
}

#[tokio::test]
async fn a_target_that_swallows_everything_is_found_without_a_health_check() {
    let (plane, address, echo) = (plane(), fresh_address(), Echo::start().await);
    let (hole, _waiting) = black_hole().await;
    let mut config = balancer(address, &[hole.local_addr().unwrap(), echo.address]);
    config.listeners[0].connect_timeout = Duration::from_millis(250);
    plane.set("a", config.clone()).await.unwrap();
    let mut slow = 0;
    for _ in 0..20 {
        let began = std::time::Instant::now();
        assert_eq!(Client::connect(address).await.target, echo.address);
        slow += u32::from(began.elapsed() > Duration::from_millis(200));
    }
    assert!((1..=3).contains(&slow), "{slow} of 20 clients waited for the target that swallows everything");
    // Alone it is tried all the same, and the client is reset.
    config.listeners[0].targets.truncate(1);
    plane.set("a", config).await.unwrap();
    assert!(reset(SocketAddr::new(address, PORT)).await);
}
