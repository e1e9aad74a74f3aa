//! A proxy between the provider and an agent: it ends TLS on both sides, counts calls, and injects faults.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bowline_agent_client::{API_HEADER, ErrorReply, codes};
use bowline_conformance::InducedFault;
use bowline_http::{Client, ClientCertificate, Options, Proxies, Roots, Tls};
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// Page size of lists: the proxy requests pages that a test can exceed.
pub(super) const PAGE: usize = 7;

/// Time in which the group elects an active agent. Less than the time limit of one agent in the client.
const PATIENCE: Duration = Duration::from_secs(4);

/// Faults and counts that all proxies of a group share.
#[derive(Default)]
pub(super) struct Faults {
    pub(super) fault: Mutex<Option<InducedFault>>,
    /// Calls that still work; the response to the last one is lost.
    pub(super) crash_after: Mutex<Option<u64>>,
    calls: AtomicU64,
    writes: AtomicU64,
}

/// What happens to a call because of a crash.
enum Crash {
    None,
    /// The agent executes the call, and the response is lost.
    LosesResponse,
    /// The call is not executed.
    Fails,
}

/// A proxy, stopped on drop.
pub(super) struct Proxy {
    pub(super) address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Faults {
    /// Number of calls so far.
    pub(super) fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// Number of calls so far that write.
    pub(super) fn writes(&self) -> u64 {
        self.writes.load(Ordering::SeqCst)
    }

    fn count(&self, path: &str) -> Crash {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if ["/v1/balancers/change", "/v1/routes/create", "/v1/routes/delete"].contains(&path) {
            self.writes.fetch_add(1, Ordering::SeqCst);
        }
        let mut left = self.crash_after.lock().unwrap();
        match *left {
            None => Crash::None,
            Some(0) => Crash::Fails,
            Some(calls) => {
                *left = Some(calls - 1);
                if calls == 1 { Crash::LosesResponse } else { Crash::None }
            }
        }
    }
}

impl Proxy {
    /// Starts a proxy in front of an agent, with the certificates in this folder.
    pub(super) async fn start(folder: &Path, agent: SocketAddr, faults: Arc<Faults>) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, acceptor, client) = (listener.local_addr().unwrap(), acceptor(folder), client(folder));
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, client, faults) = (acceptor.clone(), client.clone(), faults.clone());
                connections.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(move |request| forward(client.clone(), agent, faults.clone(), request));
                    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Proxy { address, task }
    }
}

/// The connection ends without a response.
#[derive(Debug)]
struct Lost;

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("lost")
    }
}

impl std::error::Error for Lost {}

async fn forward(
    client: Client,
    agent: SocketAddr,
    faults: Arc<Faults>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Lost> {
    let (mut head, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| Lost)?.to_bytes();
    let (crash, fault) = (faults.count(head.uri.path()), *faults.fault.lock().unwrap());
    if matches!(crash, Crash::Fails) {
        return Err(Lost);
    }
    match fault {
        None | Some(InducedFault::Empty | InducedFault::Garbled) => {}
        Some(InducedFault::Slow(delay)) => tokio::time::sleep(delay).await,
        Some(fault) => return Ok(refusal(fault)),
    }
    let body = if head.uri.path() == "/v1/balancers/owners" { with_page(&body) } else { body };
    head.uri = format!("https://{agent}{}", head.uri.path()).parse().unwrap();
    head.headers = forwarded(&head.headers);
    let response = send(&client, &Request::from_parts(head, body)).await?;
    if matches!(crash, Crash::LosesResponse) {
        return Err(Lost);
    }
    let (head, body) = response.into_parts();
    let is_garbled = fault == Some(InducedFault::Garbled);
    let mut reply = Response::new(Full::new(if is_garbled { Bytes::from_static(b"{\"found\": [") } else { body }));
    *reply.status_mut() = head.status;
    *reply.headers_mut() = forwarded(&head.headers);
    Ok(reply)
}

/// Sends the request, again while the group elects the active agent: on a busy machine, agents miss beats of each other, and the suite
/// expects a cloud that is healthy unless a fault is injected. Such an agent has executed nothing.
async fn send(client: &Client, request: &Request<Bytes>) -> Result<Response<Bytes>, Lost> {
    let begun = Instant::now();
    loop {
        let response = client.send(request.clone()).await.map_err(|_| Lost)?;
        let error = serde_json::from_slice::<ErrorReply>(response.body()).unwrap_or_default().error;
        let is_election = error.code == codes::NOT_READY || error.code == codes::NOT_ACTIVE && error.active.is_none();
        if !is_election || begun.elapsed() > PATIENCE {
            return Ok(response);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn with_page(body: &Bytes) -> Bytes {
    let mut request: serde_json::Value = serde_json::from_slice(body).unwrap();
    request["limit"] = PAGE.into();
    request.to_string().into()
}

/// Headers that concern the message and not the connection.
fn forwarded(headers: &HeaderMap) -> HeaderMap {
    let is_kept = |name: &header::HeaderName| {
        name.as_str() == API_HEADER || [header::CONTENT_TYPE, header::USER_AGENT, header::RETRY_AFTER].contains(name)
    };
    headers.iter().filter(|(name, _)| is_kept(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Response of a server in front of the agents.
fn refusal(fault: InducedFault) -> Response<Full<Bytes>> {
    let (status, body) = match fault {
        InducedFault::Unauthenticated => (StatusCode::UNAUTHORIZED, "unauthorized"),
        InducedFault::Forbidden => (StatusCode::FORBIDDEN, "forbidden"),
        InducedFault::Throttled(_) => (StatusCode::TOO_MANY_REQUESTS, "too many requests"),
        InducedFault::NotFound(body) => (StatusCode::NOT_FOUND, body),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "no server is available"),
    };
    let mut response = Response::new(Full::new(Bytes::from_static(body.as_bytes())));
    *response.status_mut() = status;
    if let InducedFault::Throttled(delay) = fault {
        response.headers_mut().insert(header::RETRY_AFTER, delay.as_secs().into());
    }
    response
}

fn acceptor(folder: &Path) -> TlsAcceptor {
    let provider = Arc::new(default_provider());
    let certificate = |name: &str| CertificateDer::from_pem_file(folder.join(name)).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate("ca.crt")).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().unwrap();
    let key = PrivateKeyDer::from_pem_file(folder.join("proxy.key")).unwrap();
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_client_cert_verifier(verifier).with_single_cert(vec![certificate("proxy.crt")], key);
    TlsAcceptor::from(Arc::new(config.unwrap()))
}

fn client(folder: &Path) -> Client {
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    let client = ClientCertificate { chain: read("bowline.crt"), key: read("bowline.key").as_str().into() };
    let tls = Tls { roots: Roots::Pem(read("ca.crt")), client: Some(client), ..Tls::default() };
    Client::new(Options { tls, proxies: Proxies::default(), timeout: Duration::from_secs(30) }).unwrap()
}
