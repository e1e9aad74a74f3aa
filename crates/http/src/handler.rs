//! In-process request handlers, for tests without sockets.

use std::future::Future;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};

use crate::RequestError;

/// Handles requests in this process. Implemented for async functions of a request.
#[async_trait]
pub trait Handler: Send + Sync {
    /// Returns the response, or an error as of a network.
    async fn handle(&self, request: Request<Bytes>) -> Result<Response<Bytes>, RequestError>;
}

#[async_trait]
impl<F, A> Handler for F
where
    F: Fn(Request<Bytes>) -> A + Send + Sync,
    A: Future<Output = Result<Response<Bytes>, RequestError>> + Send,
{
    async fn handle(&self, request: Request<Bytes>) -> Result<Response<Bytes>, RequestError> {
        self(request).await
    }
}
