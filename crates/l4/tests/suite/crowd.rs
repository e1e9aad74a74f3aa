//! Who gets room when all connections are taken: real sockets on loopback addresses.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::support::*;
use bowline_l4::{DataPlane, Limits};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpSocket, TcpStream};

const ROOM: usize = 10;

/// Room for few connections, of which none makes room because it is silent.
fn small_plane() -> DataPlane {
    DataPlane::new(Limits { connections: ROOM, yield_after: PATIENCE * 100, ..Limits::default() })
}

/// A connection from this address of the client.
async fn from(client: [u8; 4], address: IpAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((client, 0).into()).unwrap();
    soon("connect", socket.connect(SocketAddr::new(address, PORT))).await.unwrap()
}

/// Whether the target's greeting arrives; if not, the connection is reset.
async fn is_served(stream: &mut TcpStream) -> bool {
    soon("greeting or reset", stream.read_exact(&mut [0; 21])).await.is_ok()
}

async fn hoard(client: [u8; 4], address: IpAddr) -> Vec<TcpStream> {
    let mut hoard = Vec::new();
    for _ in 0..ROOM {
        hoard.push(from(client, address).await);
        assert!(is_served(hoard.last_mut().unwrap()).await);
    }
    hoard
}

/// How many of them were reset. Nothing arrives on the others.
async fn cut(hoard: &mut [TcpStream]) -> usize {
    let mut cut = 0;
    for stream in hoard {
        let read = tokio::time::timeout(Duration::from_millis(20), stream.read(&mut [0])).await;
        cut += usize::from(matches!(read, Ok(Err(_))));
    }
    cut
}

#[tokio::test]
async fn a_client_that_holds_all_connections_does_not_starve_other_load_balancers() {
    for threads in [0, 2] {
        let limits = Limits { connections: ROOM, yield_after: PATIENCE * 100, threads, ..Limits::default() };
        let (plane, echo) = (DataPlane::new(limits), Echo::start().await);
        let addresses = [fresh_address(), fresh_address()];
        plane.set("a", balancer(addresses[0], &[echo.address])).await.unwrap();
        plane.set("b", balancer(addresses[1], &[echo.address])).await.unwrap();
        let mut held = hoard([127, 0, 0, 1], addresses[0]).await;
        // One more, which waits in front of all others.
        let _waiting = from([127, 0, 0, 1], addresses[0]).await;
        let mut others = Vec::new();
        for _ in 0..ROOM / 2 {
            others.push(from([127, 0, 0, 1], addresses[1]).await);
            assert!(is_served(others.last_mut().unwrap()).await);
        }
        let displaced = counters(&plane).displaced as usize;
        assert!((ROOM / 2..=ROOM / 2 + 2).contains(&displaced), "{displaced}");
        assert!(cut(&mut held).await >= ROOM / 2);
    }
}

#[tokio::test]
async fn a_client_that_holds_all_connections_does_not_starve_other_clients() {
    let (plane, address, echo) = (small_plane(), fresh_address(), Echo::start().await);
    plane.set("a", balancer(address, &[echo.address])).await.unwrap();
    let mut held = hoard([127, 0, 0, 1], address).await;
    let mut other = from([127, 0, 0, 2], address).await;
    assert!(is_served(&mut other).await);
    assert_eq!(cut(&mut held).await, 1);
    // With one more than its share, the first client gets nothing new.
    let mut more = from([127, 0, 0, 1], address).await;
    assert!(!is_served(&mut more).await);
    assert_eq!((counters(&plane).displaced, counters(&plane).open), (2, ROOM as u64));
}

#[tokio::test]
async fn the_connection_that_has_been_silent_longest_makes_room() {
    let yield_after = Duration::from_millis(600);
    let plane = DataPlane::new(Limits { connections: 2, yield_after, ..Limits::default() });
    let (address, echo) = (fresh_address(), Echo::start().await);
    plane.set("a", balancer(address, &[echo.address])).await.unwrap();
    let (mut busy, idle) = (Client::connect(address).await, Client::connect(address).await);
    let new = tokio::spawn(Client::connect(address));
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        busy.talk("still here").await.unwrap();
    }
    idle.cut().await;
    new.await.unwrap().talk("at last").await.unwrap();
    busy.talk("and still here").await.unwrap();
    assert_eq!(counters(&plane).displaced, 1);
}
