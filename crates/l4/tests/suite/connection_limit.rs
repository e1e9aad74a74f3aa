//! Fair shares at the connection limit, with real sockets on loopback addresses.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::support::*;
use bowline_l4::{DataPlane, Limits};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpSocket, TcpStream};

const LIMIT: usize = 10;

/// Creates a data plane with a low connection limit, without eviction of idle connections.
fn small_plane() -> DataPlane {
    DataPlane::new(Limits { connections: LIMIT, evict_idle_after: TIMEOUT * 100, ..Limits::default() })
}

/// Connects from this client address.
async fn connect_from(client: [u8; 4], address: IpAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((client, 0).into()).unwrap();
    within_timeout("connect", socket.connect(SocketAddr::new(address, PORT))).await.unwrap()
}

/// Returns whether the target's greeting arrives; otherwise the connection is reset.
async fn is_served(stream: &mut TcpStream) -> bool {
    within_timeout("greeting or reset", stream.read_exact(&mut [0; 21])).await.is_ok()
}

async fn connect_up_to_limit(client: [u8; 4], address: IpAddr) -> Vec<TcpStream> {
    let mut connections = Vec::new();
    for _ in 0..LIMIT {
        connections.push(connect_from(client, address).await);
        assert!(is_served(connections.last_mut().unwrap()).await);
    }
    connections
}

/// Returns the number of connections that were reset. Nothing arrives on the others.
async fn count_reset(connections: &mut [TcpStream]) -> usize {
    let mut reset = 0;
    for stream in connections {
        let read = tokio::time::timeout(Duration::from_millis(20), stream.read(&mut [0])).await;
        reset += usize::from(matches!(read, Ok(Err(_))));
    }
    reset
}

#[tokio::test]
async fn a_client_that_holds_all_connections_does_not_starve_other_load_balancers() {
    for threads in [0, 2] {
        let limits = Limits { connections: LIMIT, evict_idle_after: TIMEOUT * 100, threads, ..Limits::default() };
        let (plane, echo) = (DataPlane::new(limits), Echo::start().await);
        let addresses = [fresh_address(), fresh_address()];
        plane.set("a", load_balancer(addresses[0], &[echo.address])).await.unwrap();
        plane.set("b", load_balancer(addresses[1], &[echo.address])).await.unwrap();
        let mut connections = connect_up_to_limit([127, 0, 0, 1], addresses[0]).await;
        // One more connection, which waits before all others.
        let _waiting = connect_from([127, 0, 0, 1], addresses[0]).await;
        let mut others = Vec::new();
        for _ in 0..LIMIT / 2 {
            others.push(connect_from([127, 0, 0, 1], addresses[1]).await);
            assert!(is_served(others.last_mut().unwrap()).await);
        }
        let displaced = counters(&plane).displaced as usize;
        assert!((LIMIT / 2..=LIMIT / 2 + 2).contains(&displaced), "{displaced}");
        assert!(count_reset(&mut connections).await >= LIMIT / 2);
    }
}

#[tokio::test]
async fn a_client_that_holds_all_connections_does_not_starve_other_clients() {
    let (plane, address, echo) = (small_plane(), fresh_address(), Echo::start().await);
    plane.set("a", load_balancer(address, &[echo.address])).await.unwrap();
    let mut connections = connect_up_to_limit([127, 0, 0, 1], address).await;
    let mut other = connect_from([127, 0, 0, 2], address).await;
    assert!(is_served(&mut other).await);
    assert_eq!(count_reset(&mut connections).await, 1);
    // Above its share, the first client gets no new connection.
    let mut more = connect_from([127, 0, 0, 1], address).await;
    assert!(!is_served(&mut more).await);
    assert_eq!((counters(&plane).displaced, counters(&plane).open), (2, LIMIT as u64));
}

#[tokio::test]
async fn the_connection_that_has_been_idle_longest_is_evicted() {
    let evict_idle_after = Duration::from_millis(600);
    let plane = DataPlane::new(Limits { connections: 2, evict_idle_after, ..Limits::default() });
    let (address, echo) = (fresh_address(), Echo::start().await);
    plane.set("a", load_balancer(address, &[echo.address])).await.unwrap();
    let (mut busy, idle) = (Client::connect(address).await, Client::connect(address).await);
    let new = tokio::spawn(Client::connect(address));
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        busy.echo("still here").await.unwrap();
    }
    idle.expect_reset().await;
    new.await.unwrap().echo("at last").await.unwrap();
    busy.echo("and still here").await.unwrap();
    assert_eq!(counters(&plane).displaced, 1);
}
