//! Socket options of TCP connections.
//!
//! A connection that is closed with FIN looks complete to its peer. Therefore each socket is set to close with RST from the start
//! (`SO_LINGER` of 0), and only a connection that both sides have ended is closed with FIN. When a task is aborted for any reason,
//! the peer notices.

use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// Detects a dead peer after about two minutes.
const KEEPALIVE: TcpKeepalive =
    TcpKeepalive::new().with_time(Duration::from_secs(60)).with_interval(Duration::from_secs(15)).with_retries(4);

/// Sets the options of every connection. Errors are ignored: such a socket is about to fail anyway.
pub(crate) fn prepare(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    let _ = socket.set_linger(Some(Duration::ZERO));
    let _ = socket.set_tcp_keepalive(&KEEPALIVE);
}

/// Lets the socket close with FIN, after all pending data is delivered.
pub(crate) fn close_with_fin(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_linger(None);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn keepalive_and_linger_are_set() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        prepare(&stream);
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(60));
        assert_eq!(socket.linger().unwrap(), Some(Duration::ZERO));
        close_with_fin(&stream);
        assert_eq!(socket.linger().unwrap(), None);
    }
}
