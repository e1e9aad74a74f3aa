//! Copies bytes between two connected sockets in both directions.
//!
//! * A FIN in one direction is forwarded and leaves the other direction open (half-close).
//! * Backpressure: nothing is read before the previous bytes are written, so a slow reader slows down the writer and nothing is
//!   queued.
//! * An RST on one side resets the other side, so that an aborted connection does not look complete.

use std::future::poll_fn;
use std::io::{Error, ErrorKind, Result};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWriteExt, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

use crate::buffers::Buffer;
use crate::sockets;

/// Copies bytes in both directions, and calls `up` and `down` with the size of every chunk written. The sockets are closed with FIN
/// only if both sides have ended; after an error, and if this future is dropped, both are reset.
pub(crate) async fn relay(mut client: TcpStream, mut target: TcpStream, up: impl Fn(usize), down: impl Fn(usize)) {
    let on_bytes = {
        let (from_client, to_client) = client.split();
        let (from_target, to_target) = target.split();
        tokio::try_join!(copy_one_way(from_client, to_target, up), copy_one_way(from_target, to_client, down))
    };
    if on_bytes.is_ok() {
        sockets::close_with_fin(&client);
        sockets::close_with_fin(&target);
    }
}

async fn copy_one_way(mut from: ReadHalf<'_>, mut to: WriteHalf<'_>, on_bytes: impl Fn(usize)) -> Result<()> {
    while let Some((buffer, filled)) = poll_fn(|context| poll_read_chunk(&mut from, context)).await? {
        let mut rest = buffer.get(..filled).unwrap_or_default();
        while !rest.is_empty() {
            let written = write_some(&from, &mut to, rest).await?;
            on_bytes(written);
            rest = rest.get(written..).unwrap_or_default();
        }
    }
    to.shutdown().await
}

/// Reads the next chunk; `None` at the end. Holds no buffer while there is nothing to read.
fn poll_read_chunk(from: &mut ReadHalf<'_>, context: &mut Context<'_>) -> Poll<Result<Option<(Buffer, usize)>>> {
    let mut buffer = Buffer::take();
    let mut unfilled = ReadBuf::new(&mut buffer);
    ready!(Pin::new(from).poll_read(context, &mut unfilled))?;
    let filled = unfilled.filled().len();
    Poll::Ready(Ok((filled > 0).then_some((buffer, filled))))
}

/// Writes some bytes to `to`. Watches `from` for errors meanwhile, because nothing reads from it while `to` is slow.
async fn write_some(from: &ReadHalf<'_>, to: &mut WriteHalf<'_>, bytes: &[u8]) -> Result<usize> {
    tokio::select! {
        biased;
        written = to.write(bytes) => match written? {
            0 => Err(Error::from(ErrorKind::WriteZero)),
            written => Ok(written),
        },
        broken = from.ready(Interest::ERROR) => Err(broken.err().unwrap_or(Error::from(ErrorKind::ConnectionReset))),
    }
}
