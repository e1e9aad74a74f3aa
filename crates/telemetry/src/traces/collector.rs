//! One collector: it takes spans over HTTP.

use std::io::Write as _;

use bowline_http::{Client, Failure, Options, Proxies, Roots, Tls, TlsError};
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, USER_AGENT};
use http::{HeaderName, HeaderValue, Request, Response, Uri};

use super::settings::{Protocol, Settings};

/// Where spans go.
pub(super) struct Collector {
    client: Client,
    endpoint: Uri,
    protocol: Protocol,
    headers: Vec<(HeaderName, HeaderValue)>,
    gzip: bool,
}

/// Why there is no collector.
#[derive(Debug, thiserror::Error)]
#[error("the certificates for the collector cannot be used: {0}")]
pub(crate) struct BadCollector(String);

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

    /// Hands this over.
    pub(super) async fn deliver(&self, body: Vec<u8>) -> Result<(), Undelivered> {
        let request = self.request(body).map_err(|error| Undelivered::Never(error.to_string()))?;
        match self.client.send(request).await {
            Ok(answer) => judge(&answer),
            Err(failure @ (Failure::TooLarge(_) | Failure::Encoded(_) | Failure::Request(_))) => {
                Err(Undelivered::Never(failure.to_string()))
            }
            Err(failure) => Err(Undelivered::Later(failure.to_string())),
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

/// What the answer means: which statuses are worth another try is the specification's list.
fn judge(answer: &Response<Bytes>) -> Result<(), Undelivered> {
    let status = answer.status();
    let message = format!("the collector answers {status}");
    match status.as_u16() {
        _ if status.is_success() => Ok(()),
        429 | 502 | 503 | 504 => Err(Undelivered::Later(message)),
        _ => Err(Undelivered::Never(message)),
    }
}

/// The authorities that vouch for the collector. Without https none is looked for.
fn roots(settings: &Settings) -> Result<Roots, BadCollector> {
    match &settings.certificate {
        _ if settings.endpoint.scheme_str() != Some("https") => Ok(Roots::None),
        None => Ok(Roots::System),
        Some(path) => std::fs::read_to_string(path).map(Roots::Pem).map_err(|error| BadCollector(error.to_string())),
    }
}

/// What stands in front of the @ is for nobody on the way.
fn without_user(endpoint: &Uri) -> Uri {
    let authority = endpoint.authority().map_or("", |authority| authority.as_str());
    let Some((_, host)) = authority.rsplit_once('@') else { return endpoint.clone() };
    let mut parts = endpoint.clone().into_parts();
    parts.authority = host.parse().ok();
    Uri::from_parts(parts).unwrap_or_else(|_| endpoint.clone())
}

fn compressed(body: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    // To memory, which takes everything.
    let _ = encoder.write_all(body);
    encoder.finish().unwrap_or_default()
}
