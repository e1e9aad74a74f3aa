//! One call: built, sent as often as the gate lets it, and answered.

use bowline_cloud::calls::Effect;
use bowline_cloud::{Call, Error, ErrorKind, Result, Retry};
use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{HeaderName, HeaderValue, Method, Request, StatusCode, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;

use super::answer::ApiResponse;
use super::decode::{ErrorResponse, by_failure};
use super::{Api, retry_after};

/// Characters of a path segment that are escaped.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A call that has not been made yet.
#[must_use = "a call is made only when it is sent"]
#[derive(Clone)]
pub struct CallBuilder<'a> {
    api: &'a Api,
    call: Call,
    method: Method,
    path: Result<String>,
    query: String,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
    accepted: Option<StatusCode>,
}

impl<'a> CallBuilder<'a> {
    pub(super) fn new(api: &'a Api, name: &'static str, method: Method, path: &[&str]) -> CallBuilder<'a> {
        let effect = match method {
            Method::GET | Method::HEAD | Method::OPTIONS => Effect::Read,
            Method::PUT | Method::DELETE => Effect::IdempotentWrite,
            _ => Effect::Write,
        };
        let call = Call { service: api.service, name, effect, limited: false };
        let (path, query, headers) = (joined(name, path), String::new(), api.headers.clone());
        let call = CallBuilder { api, call, method, path, query, headers, body: Bytes::new(), accepted: None };
        call.header(header::ACCEPT, HeaderValue::from_static("application/json"))
    }

    /// With an effect other than that of its method: a POST that only reads, a PUT that must not be made twice.
    pub fn effect(mut self, effect: Effect) -> CallBuilder<'a> {
        self.call.effect = effect;
        self
    }

    /// As one of which the cloud does not take many at once: as many are under way as it answers well, four at first.
    pub fn limited(mut self) -> CallBuilder<'a> {
        self.call.limited = true;
        self
    }

    /// With these pairs, in this order, behind those that are there.
    pub fn query<K: AsRef<str>, V: AsRef<str>>(mut self, pairs: &[(K, V)]) -> CallBuilder<'a> {
        self.query = form_urlencoded::Serializer::new(self.query).extend_pairs(pairs).finish();
        self
    }

    /// With a query that is encoded already.
    pub fn raw_query(mut self, query: &str) -> CallBuilder<'a> {
        self.query = query.to_owned();
        self
    }

    /// The encoded query.
    pub fn encoded_query(&self) -> &str {
        &self.query
    }

    /// With this header, in place of another of the same name.
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> CallBuilder<'a> {
        self.headers.retain(|(known, _)| *known != name);
        self.headers.push((name, value));
        self
    }

    /// With this body as JSON.
    pub fn json(self, body: &impl Serialize) -> CallBuilder<'a> {
        match serde_json::to_vec(body) {
            Ok(bytes) => self.body("application/json", bytes.into()),
            Err(error) => self.broken(format!("the body cannot be written as JSON: {error}")),
        }
    }

    /// With these pairs as a form.
    pub fn form<K: AsRef<str>, V: AsRef<str>>(self, pairs: &[(K, V)]) -> CallBuilder<'a> {
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
        self.body("application/x-www-form-urlencoded", body.into())
    }

    /// With this body as it is.
    pub fn body(mut self, content_type: &'static str, body: Bytes) -> CallBuilder<'a> {
        self.body = body;
        self.header(header::CONTENT_TYPE, HeaderValue::from_static(content_type))
    }

    /// Takes this status for a success, too.
    pub fn accepting(mut self, status: StatusCode) -> CallBuilder<'a> {
        self.accepted = Some(status);
        self
    }

    fn broken(mut self, why: String) -> CallBuilder<'a> {
        self.path = Err(Error::new(ErrorKind::InvalidConfig, self.call.name, why));
        self
    }

    /// Makes the call. A 401 is answered with new credentials once, if there are any.
    ///
    /// Boxed, because the futures of providers hold many of these, each of which is several KiB.
    pub fn send(&self) -> BoxFuture<'_, Result<ApiResponse>> {
        self.attempts().boxed()
    }

    async fn attempts(&self) -> Result<ApiResponse> {
        let mut attempts = self.api.calls.attempts(self.call);
        let mut is_renewed = false;
        loop {
            let request = self.request().await?;
            match attempts.attempt(self.exchange(request.clone())).await {
                Ok(answer) => return Ok(answer),
                Err(error) if error.status() == Some(401) && !is_renewed => {
                    if !self.renew(&request).await? {
                        return Err(error);
                    }
                    is_renewed = true;
                }
                Err(error) => attempts.back_off(error).await?,
            }
        }
    }

    async fn renew(&self, refused: &Request<Bytes>) -> Result<bool> {
        match &self.api.authorize {
            Some(authorize) => authorize.renew(refused).await,
            None => Ok(false),
        }
    }

    /// The request with its credentials.
    async fn request(&self) -> Result<Request<Bytes>> {
        let base = match &self.api.authorize {
            Some(authorize) => authorize.base().await?,
            None => None,
        };
        let url = self.url(base.as_deref().unwrap_or(&self.api.base))?;
        let request = Request::builder().method(&self.method).uri(&url).body(self.body.clone());
        let unusable = |error: http::Error| {
            let message = format!("{} {}: {error}", self.method, shown(&url));
            Error::new(ErrorKind::InvalidConfig, self.call.name, message).retry(Retry::Backoff)
        };
        let mut request = request.map_err(unusable)?;
        request.headers_mut().extend(self.headers.iter().cloned());
        request.extensions_mut().insert(self.call.effect);
        if let Some(authorize) = &self.api.authorize {
            authorize.authorize(&mut request).await?;
        }
        Ok(request)
    }

    fn url(&self, base: &str) -> Result<String> {
        let (base, path) = (base.trim_end_matches('/'), self.path.clone()?);
        let mark = if self.query.is_empty() { "" } else { "?" };
        Ok(format!("{base}/{path}{mark}{}", self.query))
    }

    /// One request and its answer, which is an error unless it is a success.
    async fn exchange(&self, request: Request<Bytes>) -> Result<ApiResponse> {
        let (name, method, url) = (self.call.name, self.method.clone(), shown(&request.uri().to_string()));
        let decoder = &self.api.decoder;
        let response = self.api.client.send(request).await;
        let response = response.map_err(|failure| by_failure(name, &method, &url, &failure, decoder.tls_advice()))?;
        let status = response.status();
        if status.is_success() || self.accepted == Some(status) {
            return Ok(ApiResponse { name, method, url, response });
        }
        let retry_after = retry_after(response.headers());
        let refusal = ErrorResponse::new(name, &method, &url, &response, retry_after);
        Err(decoder.decode(&refusal).with_status(status.as_u16()))
    }
}

/// The segments of a path, of which some are IDs that people have written. `.` and `..` would lead elsewhere.
fn joined(name: &'static str, segments: &[&str]) -> Result<String> {
    match segments.iter().find(|segment| segment.chars().all(|c| c == '.')) {
        Some(bad) => Err(Error::new(ErrorKind::InvalidConfig, name, format!("{bad:?} is no ID"))),
        None => Ok(segments.iter().map(|s| utf8_percent_encode(s, SEGMENT).to_string()).collect::<Vec<_>>().join("/")),
    }
}

/// Longest part of a URL in a message: a call about a hundred servers names each of them, and its outcome matters more.
const SHOWN: usize = 200;

/// The URL as messages have it: without user and password, and cut.
pub(crate) fn shown(url: &str) -> String {
    let url = without_user(url);
    match url.len() > SHOWN {
        true => format!("{}…", url.get(..url.floor_char_boundary(SHOWN)).unwrap_or_default()),
        false => url,
    }
}

fn without_user(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}
