//! TCP connections through a data plane, with real sockets on loopback addresses.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use crate::support::*;
use bowline_l4::{DataPlane, Limits, Target};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Starts a load balancer with one target, whose connections the test accepts itself.
async fn with_one_target() -> (DataPlane, SocketAddr, TcpListener) {
    let target = TcpListener::bind((fresh_address(), 0)).await.unwrap();
    let (plane, address) = (plane(), fresh_address());
    plane.set("a", load_balancer(address, &[target.local_addr().unwrap()])).await.unwrap();
    (plane, SocketAddr::new(address, PORT), target)
}

async fn connect_pair(address: SocketAddr, target: &TcpListener) -> (TcpStream, TcpStream) {
    let client = within_timeout("connect", TcpStream::connect(address)).await.unwrap();
    let (server, _) = within_timeout("accept", target.accept()).await.unwrap();
    (client, server)
}

#[tokio::test]
async fn bytes_are_copied_in_both_directions_and_counted() {
    let (plane, address, echo) = (plane(), fresh_address(), Echo::start().await);
    plane.set("a", load_balancer(address, &[echo.address])).await.unwrap();
    let mut client = Client::connect(address).await;
    client.echo("hello").await.unwrap();
    let open = counters(&plane);
    assert_eq!((open.accepted, open.open, open.failed, open.denied), (1, 1, 0, 0));
    assert_eq!((targets(&plane)[0].open, targets(&plane)[0].total), (1, 1));
    drop(client);
    eventually("closed", || counters(&plane).open == 0 && targets(&plane)[0].open == 0).await;
    assert_eq!((counters(&plane).bytes_in, counters(&plane).bytes_out), (5, 21 + 5));
    assert_eq!(targets(&plane)[0].total, 1);
}

#[tokio::test]
async fn large_transfers_on_worker_threads_are_unchanged() {
    let plane = DataPlane::new(Limits { threads: 2, ..Limits::default() });
    let (address, echo) = (fresh_address(), Echo::start().await);
    plane.set("a", load_balancer(address, &[echo.address])).await.unwrap();
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
        within_timeout("transfer", both).await.unwrap();
        assert!(sent == received, "client {number} received other bytes than it sent");
    });
    for task in clients.map(|client| tokio::spawn(client)).collect::<Vec<_>>() {
        task.await.unwrap();
    }
    plane.shutdown(TIMEOUT).await;
}

#[tokio::test]
async fn a_client_that_half_closes_still_gets_the_response() {
    let (_plane, address, target) = with_one_target().await;
    let (mut client, mut server) = connect_pair(address, &target).await;
    client.write_all(b"question").await.unwrap();
    client.shutdown().await.unwrap();
    let mut question = Vec::new();
    within_timeout("question", server.read_to_end(&mut question)).await.unwrap();
    assert_eq!(question, b"question");
    server.write_all(b"answer").await.unwrap();
    drop(server);
    let mut answer = Vec::new();
    within_timeout("answer", client.read_to_end(&mut answer)).await.unwrap();
    assert_eq!(answer, b"answer");
}

#[tokio::test]
async fn a_target_that_half_closes_still_gets_data_of_the_client() {
    let (_plane, address, target) = with_one_target().await;
    let (mut client, mut server) = connect_pair(address, &target).await;
    server.shutdown().await.unwrap();
    assert_eq!(within_timeout("end", client.read(&mut [0])).await.unwrap(), 0);
    client.write_all(b"more").await.unwrap();
    let mut more = [0; 4];
    within_timeout("more", server.read_exact(&mut more)).await.unwrap();
    assert_eq!(&more, b"more");
}

#[tokio::test]
async fn a_reset_by_the_target_is_forwarded_to_the_client() {
    let (plane, address, target) = with_one_target().await;
    let (mut client, server) = connect_pair(address, &target).await;
    server.set_zero_linger().unwrap();
    drop(server);
    let error = within_timeout("reset", client.read(&mut [0])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    eventually("closed", || counters(&plane).open == 0).await;
}

#[tokio::test]
async fn a_reset_by_the_client_is_forwarded_to_the_target() {
    let (plane, address, target) = with_one_target().await;
    let (client, mut server) = connect_pair(address, &target).await;
    client.set_zero_linger().unwrap();
    drop(client);
    let error = within_timeout("reset", server.read(&mut [0])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    eventually("closed", || counters(&plane).open == 0).await;
}

/// Writes until the socket blocks. Returns the number of bytes written.
async fn fill(writer: &mut TcpStream) -> usize {
    let (piece, mut taken) = (vec![0; 64 * 1024], 0);
    while let Ok(Ok(written)) = tokio::time::timeout(Duration::from_millis(300), writer.write(&piece)).await {
        taken += written;
        assert!(taken < 256 * 1024 * 1024, "there is no backpressure");
    }
    taken
}

#[tokio::test]
async fn a_target_that_does_not_read_blocks_the_client_and_gets_everything_later() {
    let (plane, address, target) = with_one_target().await;
    let (mut client, mut server) = connect_pair(address, &target).await;
    let taken = fill(&mut client).await;
    assert!(counters(&plane).bytes_in <= taken as u64);
    client.shutdown().await.unwrap();
    let mut got = Vec::new();
    within_timeout("all", server.read_to_end(&mut got)).await.unwrap();
    assert_eq!(got.len(), taken);
}

#[tokio::test]
async fn a_reset_by_the_client_is_detected_while_the_target_does_not_read() {
    let (plane, address, target) = with_one_target().await;
    let (mut client, _server) = connect_pair(address, &target).await;
    fill(&mut client).await;
    client.set_zero_linger().unwrap();
    drop(client);
    eventually("closed", || counters(&plane).open == 0).await;
}

/// Returns an address without a listener.
async fn closed_port() -> SocketAddr {
    TcpListener::bind((fresh_address(), 0)).await.unwrap().local_addr().unwrap()
}

#[tokio::test]
async fn another_target_is_tried_when_one_refuses() {
    let (plane, address, echo) = (plane(), fresh_address(), Echo::start().await);
    let dead = closed_port().await;
    plane.set("a", load_balancer(address, &[dead, echo.address])).await.unwrap();
    for _ in 0..4 {
        assert_eq!(Client::connect(address).await.target, echo.address);
    }
    let totals: Vec<_> = targets(&plane).iter().map(|target| target.total).collect();
    assert_eq!(totals, [0, 4]);
    assert_eq!(counters(&plane).failed, 0);
}

#[tokio::test]
async fn another_target_is_tried_after_the_connect_timeout() {
    // A listener whose accept queue is full drops SYN packets.
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
    let mut config = load_balancer(address, &[silent_address, echo.address]);
    config.listeners[0].connect_timeout = Duration::from_millis(100);
    plane.set("a", config).await.unwrap();
    for _ in 0..2 {
        assert_eq!(Client::connect(address).await.target, echo.address);
    }
}

#[tokio::test]
async fn a_client_is_reset_when_no_target_answers() {
    let (plane, address) = (plane(), fresh_address());
    plane.set("a", load_balancer(address, &[closed_port().await, closed_port().await])).await.unwrap();
    assert!(reset(SocketAddr::new(address, PORT)).await);
    eventually("closed", || counters(&plane).open == 0).await;
    assert_eq!((counters(&plane).accepted, counters(&plane).failed), (1, 1));
    assert!(targets(&plane).iter().all(|target| target.open == 0 && target.total == 0));
}

#[tokio::test]
async fn a_client_is_reset_when_there_is_no_target() {
    let (plane, address) = (plane(), fresh_address());
    plane.set("a", load_balancer(address, &[])).await.unwrap();
    assert!(reset(SocketAddr::new(address, PORT)).await);
    eventually("counted", || counters(&plane).failed == 1).await;
}

#[tokio::test]
async fn denied_clients_are_reset_and_counted() {
    let (plane, address, echo) = (plane(), fresh_address(), Echo::start().await);
    let mut config = load_balancer(address, &[echo.address]);
    config.allow = vec!["192.0.2.0/24".parse().unwrap()];
    plane.set("a", config).await.unwrap();
    assert!(reset(SocketAddr::new(address, PORT)).await);
    eventually("counted", || counters(&plane).denied == 1).await;
    assert_eq!((counters(&plane).accepted, targets(&plane)[0].total), (0, 0));
}

#[tokio::test]
async fn targets_are_used_in_turn() {
    let (plane, address) = (plane(), fresh_address());
    let (one, other) = (Echo::start().await, Echo::start().await);
    plane.set("a", load_balancer(address, &[one.address, other.address])).await.unwrap();
    for _ in 0..6 {
        Client::connect(address).await;
    }
    assert!(targets(&plane).iter().all(|target| target.total == 3));
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_counted() {
    let (plane, address, echo) = (plane(), fresh_address(), Echo::start().await);
    let mut config = load_balancer(address, &[echo.address]);
    config.listeners[0].idle_timeout = Duration::from_millis(100);
    plane.set("a", config).await.unwrap();
    Client::connect(address).await.expect_reset().await;
    eventually("counted", || counters(&plane).idled == 1 && counters(&plane).open == 0).await;
}

#[tokio::test]
async fn connections_above_the_limit_wait() {
    let plane = DataPlane::new(Limits { connections: 2, ..Limits::default() });
    let (address, echo) = (fresh_address(), Echo::start().await);
    plane.set("a", load_balancer(address, &[echo.address])).await.unwrap();
    let first = Client::connect(address).await;
    let _second = Client::connect(address).await;
    let mut waiting = (0..3).map(|_| tokio::spawn(Client::connect(address))).collect::<Vec<_>>();
    // Time in which they would be admitted.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(counters(&plane).open, 2);
    drop(first);
    for waited in waiting.drain(..) {
        let mut client = waited.await.unwrap();
        client.echo("at last").await.unwrap();
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
    // After the target has its port, so that it cannot get this one.
    let address = TcpListener::bind("[::1]:0").await.unwrap().local_addr().unwrap();
    let plane = plane();
    let mut config = load_balancer(address.ip(), &[echo.address]);
    config.listeners[0].port = address.port();
    config.listeners[0].targets = vec![Target::new(echo.address)];
    let status = plane.set("a", config).await.unwrap();
    assert_eq!(status.listeners[0].error, None);
    Client::try_connect(address).await.unwrap().echo("hello").await.unwrap();
}

#[tokio::test]
async fn a_target_gets_the_proxy_protocol_header_first() {
    let target = TcpListener::bind((fresh_address(), 0)).await.unwrap();
    let (plane, address) = (plane(), fresh_address());
    let mut config = load_balancer(address, &[target.local_addr().unwrap()]);
    config.listeners[0].proxy_protocol = Some(bowline_l4::ProxyProtocol::V1);
    plane.set("a", config).await.unwrap();
    let (mut client, mut server) = connect_pair(SocketAddr::new(address, PORT), &target).await;
    client.write_all(b"body").await.unwrap();
    let me = client.local_addr().unwrap();
    let expected = format!("PROXY TCP4 {} {} {} {}\r\nbody", me.ip(), address, me.port(), PORT);
    let mut got = vec![0; expected.len()];
    within_timeout("header", server.read_exact(&mut got)).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&got), expected);
}

/// Returns a listener that accepts nothing and whose accept queue is full, so that the kernel drops SYN packets.
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
async fn a_black_hole_is_ejected_without_a_health_check() {
    let (plane, address, echo) = (plane(), fresh_address(), Echo::start().await);
    let (hole, _waiting) = black_hole().await;
    let mut config = load_balancer(address, &[hole.local_addr().unwrap(), echo.address]);
    config.listeners[0].connect_timeout = Duration::from_millis(250);
    plane.set("a", config.clone()).await.unwrap();
    let mut slow = 0;
    for _ in 0..20 {
        let began = std::time::Instant::now();
        assert_eq!(Client::connect(address).await.target, echo.address);
        slow += u32::from(began.elapsed() > Duration::from_millis(200));
    }
    assert!((1..=3).contains(&slow), "{slow} of 20 clients waited for the black hole");
    // As the only target it is tried nevertheless, and the client is reset.
    config.listeners[0].targets.truncate(1);
    plane.set("a", config).await.unwrap();
    assert!(reset(SocketAddr::new(address, PORT)).await);
}
