//! Backend and client of a measurement: what a load balancer has to forward.

use std::error::Error;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// First byte of a connection: the request to the backend.
pub(crate) const STREAM: u8 = b's';
pub(crate) const ECHO: u8 = b'e';
pub(crate) const ONCE: u8 = b'o';

/// Concurrent connections of a client.
const CONNECTIONS: usize = 64;

// === The backend ===

/// Answers connections for ever. Calls `ready` once it accepts them.
pub(crate) async fn backend(address: SocketAddr, ready: impl FnOnce()) -> Result<()> {
    let socket = if address.is_ipv4() { tokio::net::TcpSocket::new_v4()? } else { tokio::net::TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let listener = socket.listen(4096)?;
    ready();
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream));
        }
    }
}

async fn answer(mut stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    match stream.read_u8().await? {
        STREAM => {
            let piece = vec![7; 256 * 1024];
            loop {
                stream.write_all(&piece).await?;
            }
        }
        ECHO => {
            // Allocated at the first request, so that idle connections cost the backend little.
            stream.write_u8(ECHO).await?;
            stream.readable().await?;
            let mut message = [0; 64];
            loop {
                stream.read_exact(&mut message).await?;
                stream.write_all(&message).await?;
            }
        }
        _ => Ok(stream.write_u8(ONCE).await?),
    }
}

// === The client ===

/// Work that was done, and the time it took.
#[derive(Clone, Copy)]
pub(crate) struct Work {
    pub(crate) amount: f64,
    pub(crate) seconds: f64,
}

/// Opens a connection with a request.
pub(crate) async fn request(address: SocketAddr, what: u8) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    stream.write_u8(what).await?;
    Ok(stream)
}

/// Receives data on many connections for a time. The amount is in MiB.
pub(crate) async fn throughput(address: SocketAddr, time: Duration) -> Result<Work> {
    let (begun, end) = (Instant::now(), Instant::now() + time);
    let readers: Vec<_> = (0..CONNECTIONS).map(|_| tokio::spawn(read_until(address, end))).collect();
    let mut bytes = 0;
    for reader in readers {
        bytes += reader.await??;
    }
    Ok(Work { amount: bytes as f64 / (1024.0 * 1024.0), seconds: begun.elapsed().as_secs_f64() })
}

async fn read_until(address: SocketAddr, end: Instant) -> Result<usize> {
    let mut stream = request(address, STREAM).await?;
    let (mut buffer, mut bytes) = (vec![0; 256 * 1024], 0);
    while Instant::now() < end {
        bytes += stream.read(&mut buffer).await?;
    }
    stream.set_zero_linger()?;
    Ok(bytes)
}

/// Opens connections, each with one response, for a time. The amount is their number.
pub(crate) async fn new_connections(address: SocketAddr, time: Duration) -> Result<Work> {
    let (begun, end) = (Instant::now(), Instant::now() + time);
    let clients: Vec<_> = (0..CONNECTIONS).map(|_| tokio::spawn(connect_until(address, end))).collect();
    let mut count = 0;
    for client in clients {
        count += client.await??;
    }
    Ok(Work { amount: f64::from(count), seconds: begun.elapsed().as_secs_f64() })
}

async fn connect_until(address: SocketAddr, end: Instant) -> Result<u32> {
    let mut count = 0;
    while Instant::now() < end {
        let mut stream = request(address, ONCE).await?;
        let mut answer = Vec::with_capacity(1);
        stream.read_to_end(&mut answer).await?;
        if answer != [ONCE] {
            return Err("a connection got no response".into());
        }
        count += 1;
    }
    Ok(count)
}
