//! Netlink socket, in this or another network namespace.
//!
//! A socket belongs to the namespace of the thread that opens it, wherever it is used later. A dedicated thread therefore enters
//! the namespace, opens the socket and exits, and no shared thread ever changes its namespace. File operations, which may block,
//! also run on that thread.
//!
//! A socket is opened for every sync. A cached one would keep a deleted namespace alive, and would not reach a new namespace of
//! the same name.

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

use crate::kernel_routes::Namespace;

/// Directory of named namespaces, where `ip netns add` creates them.
const NAMED: &str = "/run/netns";

/// Reason why a socket cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum EnterError {
    #[error("does not exist; create it with `ip netns add`, or remove networkNamespace from the machine")]
    Missing,
    #[error("cannot open the file ({0}); check the path and its permissions")]
    Unreadable(io::Error),
    #[error("entering requires CAP_SYS_ADMIN; run the cloud as root, or disable kernel routes")]
    Forbidden,
    #[error("cannot enter ({0}); check that the path is a network namespace")]
    Failed(Errno),
    #[error("cannot open a netlink socket ({0})")]
    NoSocket(io::Error),
    #[error("cannot start a thread ({0})")]
    NoThread(io::Error),
}

/// Checks the privileges once at the start, by entering the current namespace, which needs the same ones.
pub(super) fn check_privileges() -> Result<(), EnterError> {
    let probe = || enter(Path::new("/proc/thread-self/ns/net"));
    let thread = thread::Builder::new().name("check-netns".to_owned()).spawn(probe).map_err(EnterError::NoThread)?;
    thread.join().unwrap_or(Err(EnterError::Forbidden))
}

/// Opens a socket in the namespace.
pub(super) async fn connect(namespace: &Namespace) -> Result<Handle, EnterError> {
    let (connection, handle) = match namespace.name() {
        None => open(&runtime::Handle::current())?,
        Some(name) => open_in(path(name)).await?,
    };
    // The connection ends when the handle is dropped.
    tokio::spawn(connection);
    Ok(handle)
}

/// Path of a namespace.
fn path(name: &str) -> PathBuf {
    // `join` with an absolute path returns that path.
    Path::new(NAMED).join(name)
}

/// Opens a socket in the namespace at this path.
async fn open_in(path: PathBuf) -> Result<(Connection<RouteNetlinkMessage>, Handle), EnterError> {
    let (runtime, (sender, receiver)) = (runtime::Handle::current(), oneshot::channel());
    let work = move || {
        // The receiver is dropped after a timeout.
        let _ = sender.send(enter(&path).and_then(|()| open(&runtime)));
    };
    thread::Builder::new().name("enter-netns".to_owned()).spawn(work).map_err(EnterError::NoThread)?;
    receiver.await.unwrap_or_else(|_| Err(EnterError::NoThread(io::Error::other("the thread exited early"))))
}

/// Moves the current thread into the namespace.
fn enter(path: &Path) -> Result<(), EnterError> {
    // Opening must not block, for instance on a pipe.
    let file = File::options().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path).map_err(|error| {
        if error.kind() == io::ErrorKind::NotFound { EnterError::Missing } else { EnterError::Unreadable(error) }
    })?;
    setns(&file, CloneFlags::CLONE_NEWNET).map_err(|errno| match errno {
        Errno::EPERM => EnterError::Forbidden,
        errno => EnterError::Failed(errno),
    })
}

fn open(runtime: &runtime::Handle) -> Result<(Connection<RouteNetlinkMessage>, Handle), EnterError> {
    // Registers the socket with the runtime of the caller.
    let _guard = runtime.enter();
    let (connection, handle, _) = new_connection().map_err(EnterError::NoSocket)?;
    Ok((connection, handle))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_under_run_netns_and_a_path_is_used_as_is() {
        assert_eq!(path("worker-1"), Path::new("/run/netns/worker-1"));
        assert_eq!(path("/proc/42/ns/net"), Path::new("/proc/42/ns/net"));
    }
}
