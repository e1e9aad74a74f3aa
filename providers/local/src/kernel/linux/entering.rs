//! A netlink socket in another network namespace.
//!
//! A socket belongs to the namespace of the thread that opens it, and stays there wherever it is used. So a thread of its own
//! enters the namespace, opens the socket and ends: no thread that others use ever leaves our namespace. The file work, which
//! may block, is there as well.
//!
//! The socket is opened anew each time. One that were kept would keep a removed namespace alive, and would go on talking to
//! it when there is a new one of the same name.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sched::{CloneFlags, setns};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::proto::Connection;
use rtnetlink::{Handle, new_connection};
use tokio::runtime;
use tokio::sync::oneshot;

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub(super) enum EnterError {
    #[error("there is none; make it (ip netns add), or take it from the machine")]
    Missing,
    #[error("its file cannot be opened ({0}); look at the path and the rights")]
    Unreadable(io::Error),
    #[error(
        "it cannot be entered: that needs CAP_SYS_ADMIN; run the cloud as root, or switch routes of the kernel off"
    )]
    Forbidden,
    #[error("it cannot be entered ({0}); look whether the path is one of a network namespace")]
    Refused(Errno),
    #[error("no netlink socket can be opened there ({0})")]
    NoSocket(io::Error),
    #[error("no thread can be had to enter it ({0})")]
    NoThread(io::Error),
}

/// Says early, and not with every route, that the rights are missing: entering the namespace where one is needs them, too.
pub(super) fn may_enter() -> Result<(), EnterError> {
    let probe = || enter(Path::new("/proc/thread-self/ns/net"));
    let thread = thread::Builder::new().name("may-enter".to_owned()).spawn(probe).map_err(EnterError::NoThread)?;
    thread.join().unwrap_or(Err(EnterError::Forbidden))
}

/// Opens a socket in the namespace at this path.
pub(super) async fn connect(path: PathBuf) -> Result<Handle, EnterError> {
    let (home, (tell, told)) = (runtime::Handle::current(), oneshot::channel());
    let work = move || {
        // Nobody listens if it took too long.
        let _ = tell.send(enter(&path).and_then(|()| open(&home)));
    };
    thread::Builder::new().name("enter-netns".to_owned()).spawn(work).map_err(EnterError::NoThread)?;
    let (connection, handle) =
        told.await.unwrap_or_else(|_| Err(EnterError::NoThread(io::Error::other("it ended early"))))?;
    // It ends when the handle is dropped.
    tokio::spawn(connection);
    Ok(handle)
}

/// Moves this thread.
fn enter(path: &Path) -> Result<(), EnterError> {
    // Whatever the path leads to, opening it must not block; a pipe would.
    let file = File::options().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path).map_err(|error| {
        if error.kind() == io::ErrorKind::NotFound { EnterError::Missing } else { EnterError::Unreadable(error) }
    })?;
    setns(&file, CloneFlags::CLONE_NEWNET).map_err(|errno| match errno {
        Errno::EPERM => EnterError::Forbidden,
        errno => EnterError::Refused(errno),
    })
}

fn open(home: &runtime::Handle) -> Result<(Connection<RouteNetlinkMessage>, Handle), EnterError> {
    // The socket is to be driven by the runtime that waits for it.
    let _at_home = home.enter();
    let (connection, handle, _) = new_connection().map_err(EnterError::NoSocket)?;
    Ok((connection, handle))
}
