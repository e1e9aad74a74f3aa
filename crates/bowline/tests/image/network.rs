//! A network in which only loopback exists, so that a test may take any port of it.

use std::panic::resume_unwind;
use std::thread;

use nix::sched::{CloneFlags, unshare};
use rtnetlink::LinkUnspec;

use crate::support::skip;

/// Loopback has this number everywhere.
const LOOPBACK: u32 = 1;

/// Runs a test there, on a thread of its own: what it starts, threads and processes, is there too. Says so if this machine
/// does not permit it.
pub(crate) fn alone<T: Future<Output = ()>>(test: impl FnOnce() -> T + Send + 'static) {
    let run = || {
        if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
            return skip(&format!("no network namespace to be had, which takes root: {error}"));
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
