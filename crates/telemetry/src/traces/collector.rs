//! HTTP client of an OTLP collector.

use std::io::Write as _;

use bowline_http::{Client, Options, Proxies, RequestError, Roots, Tls, TlsError};
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, USER_AGENT};
use http::{HeaderName, HeaderValue, Request, Response, Uri};

use super::settings::{Protocol, Settings};

/// Client of a collector.
pub(super) struct Collector {
    client: Client,
    endpoint: Uri,
    protocol: Protocol,
    headers: Vec<(HeaderName, HeaderValue)>,
    gzip: bool,
}

/// The client of the collector cannot be created.
#[derive(Debug, thiserror::Error)]
#[error("invalid certificates for the collector: {0}")]
pub(crate) struct BadCollector(String);

/// An export failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExportError {
    /// The export can be retried.
    #[error("{0}")]
    Retryable(String),
    /// A retry would fail again.
    #[error("{0}")]
    Permanent(String),
}

impl Collector {
    pub(super) fn new(settings: &Settings) -> Result<Collector, BadCollector> {
        let tls = Tls { roots: roots(settings)?, ..Tls::default() };
        let options = Options { tls, proxies: Proxies::default(), timeout: settings.timeout };
        Ok(Collector {
            client: Client::new(options).map_err(|error: TlsError| BadCollector(error.to_string()))?,
            endpoint: without_user(&settings.endpoint),
            protocol: settings.protocol,
            headers: settings.headers.clone(),
            gzip: settings.gzip,
        })
    }

    /// Sends an encoded batch.
    pub(super) async fn export(&self, body: Vec<u8>) -> Result<(), ExportError> {
        let request = self.request(body).map_err(|error| ExportError::Permanent(error.to_string()))?;
        match self.client.send(request).await {
            Ok(response) => check_status(&response),
            Err(failure @ (RequestError::TooLarge(_) | RequestError::Encoded(_) | RequestError::Request(_))) => {
                Err(ExportError::Permanent(failure.to_string()))
            }
            Err(failure) => Err(ExportError::Retryable(failure.to_string())),
        }
    }

    fn request(&self, body: Vec<u8>) -> Result<Request<Bytes>, http::Error> {
        let body = if self.gzip { compressed(&body) } else { body };
        let mut request = Request::post(self.endpoint.clone())
            .header(CONTENT_TYPE, self.content_type())
            .header(USER_AGENT, concat!("bowline/", env!("CARGO_PKG_VERSION")));
        if self.gzip {
            request = request.header(CONTENT_ENCODING, "gzip");
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        request.body(body.into())
    }

    fn content_type(&self) -> &'static str {
        match self.protocol {
            Protocol::HttpProtobuf => "application/x-protobuf",
            Protocol::HttpJson => "application/json",
        }
    }
}

/// Maps the status to a result. The OTLP specification lists the retryable statuses.
fn check_status(response: &Response<Bytes>) -> Result<(), ExportError> {
    let status = response.status();
    let message = format!("the collector returned {status}");
    match status.as_u16() {
        _ if status.is_success() => Ok(()),
        429 | 502 | 503 | 504 => Err(ExportError::Retryable(message)),
        _ => Err(ExportError::Permanent(message)),
    }
}

/// CA certificates for the collector; none without https.
fn roots(settings: &Settings) -> Result<Roots, BadCollector> {
    match &settings.certificate {
        _ if settings.endpoint.scheme_str() != Some("https") => Ok(Roots::None),
        None => Ok(Roots::System),
        Some(path) => std::fs::read_to_string(path).map(Roots::Pem).map_err(|error| BadCollector(error.to_string())),
    }
}

/// Removes user information from the endpoint.
fn without_user(endpoint: &Uri) -> Uri {
    let authority = endpoint.authority().map_or("", |authority| authority.as_str());
    let Some((_, host)) = authority.rsplit_once('@') else { return endpoint.clone() };
    let mut parts = endpoint.clone().into_parts();
    parts.authority = host.parse().ok();
    Uri::from_parts(parts).unwrap_or_else(|_| endpoint.clone())
}

fn compressed(body: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    // Writing to memory cannot fail.
    let _ = encoder.write_all(body);
    encoder.finish().unwrap_or_default()
}
