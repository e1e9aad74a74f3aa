//! Answers from this process, for tests without sockets.

use std::future::Future;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};

use crate::Failure;

/// Answers requests in this process. A function of a request that says so in a future is one.
#[async_trait]
pub trait Handler: Send + Sync {
    /// Answers, or fails as a network would.
    async fn handle(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Failure>;
}

#[async_trait]
impl<F, A> Handler for F
where
    F: Fn(Request<Bytes>) -> A + Send + Sync,
    A: Future<Output = Result<Response<Bytes>, Failure>> + Send,
{
    async fn handle(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Failure> {
        self(request).await
    }
}
