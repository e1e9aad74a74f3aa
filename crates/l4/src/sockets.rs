//! Options of the sockets of a TCP connection.
//!
//! A connection that is closed with FIN looks complete to its peer. So each socket is set to be closed with RST from the start, and
//! only a connection whose both sides have ended is closed with FIN: a task that is aborted, for whatever reason, cuts a connection
//! in a way that the peer notices.

use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// A peer that has vanished without a word is noticed after about two minutes.
const KEEPALIVE: TcpKeepalive =
    TcpKeepalive::new().with_time(Duration::from_secs(60)).with_interval(Duration::from_secs(15)).with_retries(4);

/// Sets what holds for every connection. A socket that takes no option is about to fail anyway.
pub(crate) fn prepare(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    let _ = socket.set_linger(Some(Duration::ZERO));
    let _ = socket.set_tcp_keepalive(&KEEPALIVE);
}

/// Both sides have ended: what is still on its way arrives, and then FIN.
pub(crate) fn end_regularly(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_linger(None);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_peer_that_has_vanished_is_looked_for() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        prepare(&stream);
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(60));
        assert_eq!(socket.linger().unwrap(), Some(Duration::ZERO));
        end_regularly(&stream);
        assert_eq!(socket.linger().unwrap(), None);
    }
}
