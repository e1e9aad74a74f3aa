//! Moving bytes between two connected sockets, both ways, until both are done.
//!
//! * The end of one way (FIN) is passed on and leaves the other way open.
//! * Nothing is read before what was read is written: a slow reader slows its writer down, and nothing piles up here.
//! * If either side breaks off (RST), so is the other: an end that was not meant as one must not look like one.

use std::future::poll_fn;
use std::io::{Error, ErrorKind, Result};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWriteExt, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

use crate::buffers::Buffer;
use crate::sockets;

/// Moves bytes both ways. `up` and `down` are called with the size of every piece that was handed on. Only if both sides have ended are they closed
/// regularly: after an error, and if this is dropped, both are reset.
pub(crate) async fn relay(mut client: TcpStream, mut target: TcpStream, up: impl Fn(usize), down: impl Fn(usize)) {
    let moved = {
        let (from_client, to_client) = client.split();
        let (from_target, to_target) = target.split();
        tokio::try_join!(one_way(from_client, to_target, up), one_way(from_target, to_client, down))
    };
    if moved.is_ok() {
        sockets::end_regularly(&client);
        sockets::end_regularly(&target);
    }
}

async fn one_way(mut from: ReadHalf<'_>, mut to: WriteHalf<'_>, moved: impl Fn(usize)) -> Result<()> {
    while let Some((buffer, filled)) = poll_fn(|context| poll_piece(&mut from, context)).await? {
        let mut rest = buffer.get(..filled).unwrap_or_default();
        while !rest.is_empty() {
            let written = write_some(&from, &mut to, rest).await?;
            moved(written);
            rest = rest.get(written..).unwrap_or_default();
        }
    }
    to.shutdown().await
}

/// The next bytes, or none at the end. Holds no buffer while there is nothing to read.
fn poll_piece(from: &mut ReadHalf<'_>, context: &mut Context<'_>) -> Poll<Result<Option<(Buffer, usize)>>> {
    let mut buffer = Buffer::take();
    let mut unfilled = ReadBuf::new(&mut buffer);
    ready!(Pin::new(from).poll_read(context, &mut unfilled))?;
    let filled = unfilled.filled().len();
    Poll::Ready(Ok((filled > 0).then_some((buffer, filled))))
}

/// Nobody reads from `from` while `to` is slow, so that its breaking off has to be watched for.
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
