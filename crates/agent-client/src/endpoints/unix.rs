//! HTTP over a Unix socket, for an agent on the same host: one connection per request.

use std::error::Error as StdError;
use std::path::PathBuf;

use async_trait::async_trait;
use bowline_http::{Handler, RequestError};
use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;

/// Maximum size of a response.
const MAX_RESPONSE: usize = 64 << 20;

/// Path of a socket.
pub(super) struct Socket(pub(super) PathBuf);

#[async_trait]
impl Handler for Socket {
    async fn handle(&self, request: Request<Bytes>) -> Result<Response<Bytes>, RequestError> {
        let stream = UnixStream::connect(&self.0).await.map_err(|error| self.unreachable(&error))?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|e| broken(&e))?;
        // The connection is dropped with this future, so that a write cannot be sent after the fence of its call has closed.
        let exchange = async {
            let (head, body) = sender.send_request(prepare(request)).await.map_err(|e| broken(&e))?.into_parts();
            let body = Limited::new(body, MAX_RESPONSE).collect().await.map_err(|error| broken(&*error))?;
            Ok(Response::from_parts(head, body.to_bytes()))
        };
        tokio::pin!(connection, exchange);
        tokio::select! {
            response = &mut exchange => response,
            // After the end of the connection, the exchange has its response or its error.
            _ = &mut connection => exchange.await,
        }
    }
}

impl Socket {
    /// The URL of the request does not name the socket.
    fn unreachable(&self, error: &std::io::Error) -> RequestError {
        let fix = match error.kind() {
            std::io::ErrorKind::PermissionDenied => "run the manager as the user of the agent",
            _ => "start the agent, and let it listen on this socket",
        };
        RequestError::Connect(format!("unix:{}: {error}; fix: {fix}", self.0.display()))
    }
}

/// Converts the request to the form of a server: only the path, and the host in a header.
fn prepare(request: Request<Bytes>) -> Request<Full<Bytes>> {
    let mut request = request.map(Full::new);
    if let Some(path) = request.uri().path_and_query().and_then(|path| path.as_str().parse().ok()) {
        *request.uri_mut() = path;
    }
    request.headers_mut().insert(header::HOST, HeaderValue::from_static("localhost"));
    request
}

fn broken(error: &(dyn StdError + 'static)) -> RequestError {
    RequestError::Broken(error.to_string())
}
