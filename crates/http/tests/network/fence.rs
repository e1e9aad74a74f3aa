//! A write is not sent after the lease has expired, whichever task holds it.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bowline_http::{Client, Options, Proxies, Tls};
use bowline_runtime::Fence;
use bowline_runtime::testing::block_thread_during;
use bytes::Bytes;
use http::Request;

/// Duration of the lease, and of the pause of the process after it.
const TERM: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_millis(200);

/// A server in a thread of its own, which runs while the runtime of the client is blocked, and reports requests.
fn server() -> (u16, mpsc::Receiver<Instant>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, arrivals) = mpsc::channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            if stream.read(&mut [0; 1024]).is_ok_and(|bytes| bytes > 0) {
                let _ = sender.send(Instant::now());
            }
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        }
    });
    (port, arrivals)
}

#[tokio::test]
async fn a_write_is_not_sent_after_the_lease_has_expired() {
    let (port, arrivals) = server();
    let options = Options { tls: Tls::default(), proxies: Proxies::default(), timeout: Duration::from_secs(10) };
    let client = Client::new(options).unwrap();
    let mut sent = 0;
    for hops in 0..12 {
        let fence = Fence::open();
        let _term = fence.term_until("main", tokio::time::Instant::now() + TERM);
        let request = Request::post(format!("http://127.0.0.1:{port}/")).body(Bytes::from("x")).unwrap();
        let blocked_at = block_thread_during(fence.guard(client.send(request)), hops, PAUSE).await;
        // Gives the server time to read requests in transit.
        std::thread::sleep(TERM / 4);
        for arrival in arrivals.try_iter() {
            assert!(arrival < blocked_at + TERM, "sent too late, after {hops} hops");
            sent += 1;
        }
    }
    assert!(sent > 0, "no request was sent in time: there are too few hops");
}
