//! The client.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};

use crate::{Failure, Handler};

/// Sends requests. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct Client {
    transport: Transport,
    timeout: Duration,
}

#[derive(Clone)]
enum Transport {
    InProcess(Arc<dyn Handler>),
}

impl Client {
    /// One that asks nobody but `handler`, and gives up after `timeout` all the same.
    pub fn in_process(handler: Arc<dyn Handler>, timeout: Duration) -> Client {
        Client { transport: Transport::InProcess(handler), timeout }
    }

    /// Sends this, and waits for the whole answer.
    pub async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Failure> {
        match tokio::time::timeout(self.timeout, self.transport.send(request)).await {
            Ok(answer) => answer,
            Err(_) => Err(Failure::Timeout(self.timeout)),
        }
    }
}

impl Transport {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Failure> {
        match self {
            Transport::InProcess(handler) => handler.handle(request).await,
        }
    }
}
