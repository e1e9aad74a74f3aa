//! A network namespace with only loopback, in which a test can use any port.

use std::panic::resume_unwind;
use std::thread;

use nix::sched::{CloneFlags, unshare};
use rtnetlink::LinkUnspec;

use crate::support::skip;

/// Interface index of loopback.
const LOOPBACK: u32 = 1;

/// Runs a test in its own network namespace and thread; its threads and processes are in the namespace, too. Skips the test if
/// namespaces are not permitted.
pub(crate) fn alone<T: Future<Output = ()>>(test: impl FnOnce() -> T + Send + 'static) {
    let run = || {
        if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
            return skip(&format!("cannot create a network namespace, which needs root: {error}"));
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            bring_up_loopback().await;
            test().await;
        });
    };
    if let Err(panic) = thread::spawn(run).join() {
        resume_unwind(panic);
    }
}

async fn bring_up_loopback() {
    let (connection, handle, _) = rtnetlink::new_connection().unwrap();
    tokio::spawn(connection);
    handle.link().set(LinkUnspec::new_with_index(LOOPBACK).up().build()).execute().await.unwrap();
}
