//! The fence in front of what a client sends.
//!
//! Giving up the future of a request is not enough: by then the request may be with the task of its connection, which writes it
//! when it next runs, be it after a pause of the process. So requests that write go through connections of their own, whose
//! tasks ask the fence each time before they run:
//!
//! ```text
//!  write ──► fence ──► connection ──► its task ──► fence ──► socket
//!  read  ────────────► connection ──► its task ────────────► socket
//! ```
//!
//! What remains: a process that is stopped in the few instructions between that question and the system call, and what the
//! kernel has taken before.

use std::pin::Pin;

use bowline_runtime::{Fence, Fenced};
use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use tower::{BoxError, service_fn};

/// Runs the tasks of connections for as long as a fence is open. A task that finds it closed ends, and its connection with it.
#[derive(Clone)]
pub(crate) struct FencedExecutor(pub(crate) Fence);

impl hyper::rt::Executor<Pin<Box<dyn Future<Output = ()> + Send>>> for FencedExecutor {
    fn execute(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        let fence = self.0.clone();
        tokio::spawn(async move { fence.guard(task).await });
    }
}

/// The same client, but what it writes is sent only while the fence is open; what is under way when it closes is given up.
pub(crate) fn fenced(client: Client, fence: Fence) -> Client {
    let namespace = client.default_namespace().to_owned();
    Client::new(service_fn(move |request| send(client.clone(), fence.clone(), request)), namespace)
}

/// Whether a request was not sent, or given up, because of the fence. There is no use in sending it again.
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

/// The fence that a request has to pass.
pub(crate) fn fence_of(request: &Request<Body>) -> Option<&Fence> {
    request.extensions().get()
}
