//! Fence for write requests.
//!
//! Dropping the future of a request is not enough: the request may already be queued in its connection task, which sends it
//! the next time it runs, even after the process was paused. Write requests therefore use separate connections, whose tasks
//! check the fence every time they are polled:
//!
//! ```text
//!  write ──► fence ──► connection ──► its task ──► fence ──► socket
//!  read  ────────────► connection ──► its task ────────────► socket
//! ```
//!
//! Two gaps remain: a process that is paused in the few instructions between the check and the system call, and data that the
//! kernel had already accepted.

use std::pin::Pin;

use bowline_runtime::{Fence, Fenced};
use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use tower::{BoxError, service_fn};

/// Executor that runs connection tasks while a fence is open. Once it is closed, a task ends and closes its connection.
#[derive(Clone)]
pub(crate) struct FencedExecutor(pub(crate) Fence);

impl hyper::rt::Executor<Pin<Box<dyn Future<Output = ()> + Send>>> for FencedExecutor {
    fn execute(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        let fence = self.0.clone();
        tokio::spawn(async move { fence.guard(task).await });
    }
}

/// Wraps a client so that writes are sent only while the fence is open. Writes in flight are dropped when it closes.
pub(crate) fn fenced(client: Client, fence: Fence) -> Client {
    let namespace = client.default_namespace().to_owned();
    Client::new(service_fn(move |request| send(client.clone(), fence.clone(), request)), namespace)
}

/// Whether the fence rejected or dropped a request. A retry cannot succeed.
pub(crate) fn is_fenced(error: &kube::Error) -> bool {
    let mut causes = std::iter::successors(Some(error as &(dyn std::error::Error + 'static)), |error| error.source());
    causes.any(|cause| cause.is::<Fenced>())
}

async fn send(client: Client, fence: Fence, mut request: Request<Body>) -> Result<Response<Body>, BoxError> {
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return Ok(client.send(request).await?);
    }
    request.extensions_mut().insert(fence.clone());
    Ok(fence.guard(client.send(request)).await??)
}

/// Fence that applies to a request.
pub(crate) fn fence_of(request: &Request<Body>) -> Option<&Fence> {
    request.extensions().get()
}
