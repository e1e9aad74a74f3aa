//! One collector: a connection for each delivery, as there is one every few seconds at most.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HOST, TE, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::settings::{Protocol, Settings};

/// The most that is read of an answer; there is nothing in it that we need.
const LARGEST: usize = 64 << 10;

/// Where spans go.
pub(super) struct Collector {
    endpoint: Uri,
    host: String,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    protocol: Protocol,
    headers: Vec<(HeaderName, HeaderValue)>,
    gzip: bool,
    timeout: Duration,
}

/// Why there is no collector.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadCollector {
    /// The certificates to trust cannot be had.
    #[error("the certificates for the collector cannot be used: {0}")]
    Certificates(String),
    /// Nobody can be called that.
    #[error("the collector's name is none: {0}")]
    Name(String),
}

/// Why a delivery failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Undelivered {
    /// It may work a moment later.
    #[error("{0}")]
    Later(String),
    /// It would fail again.
    #[error("{0}")]
    Never(String),
}

impl Collector {
    pub(super) fn new(settings: &Settings) -> Result<Collector, BadCollector> {
        let endpoint = settings.endpoint.clone();
        let host = endpoint.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let is_secure = endpoint.scheme_str() == Some("https");
        let tls = is_secure.then(|| connector(settings, &host)).transpose()?;
        Ok(Collector {
            port: endpoint.port_u16().unwrap_or(if is_secure { 443 } else { 80 }),
            endpoint,
            host,
            tls,
            protocol: settings.protocol,
            headers: settings.headers.clone(),
            gzip: settings.gzip,
            timeout: settings.timeout,
        })
    }

    /// Hands this over.
    pub(super) async fn deliver(&self, body: Vec<u8>) -> Result<(), Undelivered> {
        let request = self.request(body).map_err(|error| Undelivered::Never(error.to_string()))?;
        match tokio::time::timeout(self.timeout, self.send(request)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Undelivered::Later(format!("no answer within {:?}", self.timeout))),
        }
    }

    fn request(&self, body: Vec<u8>) -> Result<Request<Full<Bytes>>, http::Error> {
        let is_grpc = self.protocol == Protocol::Grpc;
        let body = if self.gzip && !is_grpc { compressed(&body) } else { body };
        let body = if is_grpc { framed(&body) } else { body };
        let mut request = Request::post(self.endpoint.clone())
            .header(CONTENT_TYPE, self.content_type())
            .header(USER_AGENT, concat!("bowline/", env!("CARGO_PKG_VERSION")));
        if is_grpc {
            request = request.header(TE, "trailers");
        } else {
            let path = self.endpoint.path_and_query().map_or("/", |path| path.as_str());
            let authority = self.endpoint.authority().map_or("", |authority| authority.as_str());
            // What stands in front of the @ is for nobody on the way.
            let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
            request = request.uri(path).header(HOST, authority);
        }
        if self.gzip && !is_grpc {
            request = request.header(CONTENT_ENCODING, "gzip");
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        request.body(Full::new(body.into()))
    }

    fn content_type(&self) -> &'static str {
        match self.protocol {
            Protocol::HttpProtobuf => "application/x-protobuf",
            Protocol::HttpJson => "application/json",
            Protocol::Grpc => "application/grpc",
        }
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<(), Undelivered> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(later)?;
        match &self.tls {
            None => self.converse(stream, request).await,
            Some((connector, name)) => {
                let stream = connector.connect(name.clone(), stream).await.map_err(later)?;
                self.converse(stream, request).await
            }
        }
    }

    async fn converse<S>(&self, stream: S, request: Request<Full<Bytes>>) -> Result<(), Undelivered>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let io = TokioIo::new(stream);
        // The connection ends with its last request, and so does the task.
        let answer = if self.protocol == Protocol::Grpc {
            let (mut sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.map_err(later)?;
            tokio::spawn(connection);
            sender.send_request(request).await
        } else {
            let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.map_err(later)?;
            tokio::spawn(connection);
            sender.send_request(request).await
        };
        let (head, body) = answer.map_err(later)?.into_parts();
        self.judge(head.status, &head.headers, body).await
    }

    /// What the answer means: which statuses are worth another try is the specification's list.
    async fn judge(&self, status: StatusCode, headers: &HeaderMap, body: Incoming) -> Result<(), Undelivered> {
        if !status.is_success() {
            let message = format!("the collector answers {status}");
            let is_passing = matches!(status.as_u16(), 429 | 502 | 503 | 504);
            return Err(if is_passing { Undelivered::Later(message) } else { Undelivered::Never(message) });
        }
        if self.protocol != Protocol::Grpc {
            return Ok(());
        }
        // Without a message in the answer, the status is in the head.
        let ended =
            Limited::new(body, LARGEST).collect().await.map_err(|error| Undelivered::Later(error.to_string()))?;
        let code = headers.get("grpc-status").or_else(|| ended.trailers()?.get("grpc-status"));
        match code.and_then(|code| code.to_str().ok()).unwrap_or("2") {
            "0" => Ok(()),
            // Cancelled, deadline exceeded, resource exhausted, aborted, out of range, unavailable, data loss.
            code @ ("1" | "4" | "8" | "10" | "11" | "14" | "15") => {
                Err(Undelivered::Later(format!("the collector answers with gRPC status {code}")))
            }
            code => Err(Undelivered::Never(format!("the collector answers with gRPC status {code}"))),
        }
    }
}

fn later(error: impl std::error::Error) -> Undelivered {
    Undelivered::Later(bowline_core::with_causes(&error))
}

/// A message of gRPC: not compressed, and its length.
fn framed(body: &[u8]) -> Vec<u8> {
    let mut framed = Vec::with_capacity(body.len() + 5);
    framed.push(0);
    framed.extend_from_slice(&(body.len() as u32).to_be_bytes());
    framed.extend_from_slice(body);
    framed
}

fn compressed(body: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    // To memory, which takes everything.
    let _ = encoder.write_all(body);
    encoder.finish().unwrap_or_default()
}

fn connector(settings: &Settings, host: &str) -> Result<(TlsConnector, ServerName<'static>), BadCollector> {
    let bad = |error: &dyn std::error::Error| BadCollector::Certificates(error.to_string());
    let name = ServerName::try_from(host.to_owned()).map_err(|error| BadCollector::Name(error.to_string()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| bad(&error))?;
    let builder = match &settings.certificate {
        None => builder.with_platform_verifier().map_err(|error| bad(&error))?,
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in CertificateDer::pem_file_iter(path).map_err(|error| bad(&error))? {
                roots.add(certificate.map_err(|error| bad(&error))?).map_err(|error| bad(&error))?;
            }
            builder.with_root_certificates(roots)
        }
    };
    let mut config = builder.with_no_client_auth();
    if settings.protocol == Protocol::Grpc {
        config.alpn_protocols = vec![b"h2".to_vec()];
    }
    Ok((TlsConnector::from(Arc::new(config)), name))
}
