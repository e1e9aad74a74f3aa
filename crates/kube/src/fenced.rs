//! The fence in front of what a client sends.

use bowline_runtime::{Fence, Fenced};
use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use tower::{BoxError, service_fn};

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

async fn send(client: Client, fence: Fence, request: Request<Body>) -> Result<Response<Body>, BoxError> {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let answer = client.send(request);
    if is_read { Ok(answer.await?) } else { Ok(fence.guard(answer).await??) }
}
