//! Builder of one call, with its attempts.

use std::time::SystemTime;

use bowline_cloud::calls::Effect;
use bowline_cloud::{Call, Error, ErrorKind, Result, Retry};
use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;

use super::authorize::Rejection;
use super::decode::{ErrorResponse, without_response};
use super::response::ApiResponse;
use super::{Api, retry_after};

/// Characters of a path segment that are percent-encoded. A colon is allowed in a segment (RFC 3986), and some clouds have it in
/// their documented paths.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b':');

/// A call that has not been sent.
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
        let (path, query, headers) = (join(name, path), String::new(), api.headers.clone());
        let call = CallBuilder { api, call, method, path, query, headers, body: Bytes::new(), accepted: None };
        call.header(header::ACCEPT, HeaderValue::from_static("application/json"))
    }

    /// Overrides the effect of the HTTP method: a POST that only reads, a PUT that must not be repeated.
    pub fn effect(mut self, effect: Effect) -> CallBuilder<'a> {
        self.call.effect = effect;
        self
    }

    /// Enables the adaptive concurrency limit for this call, which starts at four.
    pub fn limited(mut self) -> CallBuilder<'a> {
        self.call.limited = true;
        self
    }

    /// Appends query parameters.
    pub fn query<K: AsRef<str>, V: AsRef<str>>(mut self, pairs: &[(K, V)]) -> CallBuilder<'a> {
        self.query = form_urlencoded::Serializer::new(self.query).extend_pairs(pairs).finish();
        self
    }

    /// Sets an already encoded query.
    pub fn raw_query(mut self, query: &str) -> CallBuilder<'a> {
        self.query = query.to_owned();
        self
    }

    /// Returns the encoded query.
    pub fn encoded_query(&self) -> &str {
        &self.query
    }

    /// Sets a header, and replaces one of the same name.
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> CallBuilder<'a> {
        self.headers.retain(|(known, _)| *known != name);
        self.headers.push((name, value));
        self
    }

    /// Sets a JSON body.
    pub fn json(self, body: &impl Serialize) -> CallBuilder<'a> {
        match serde_json::to_vec(body) {
            Ok(bytes) => self.body("application/json", bytes.into()),
            Err(error) => self.invalid(format!("cannot encode the body as JSON: {error}")),
        }
    }

    /// Sets a form body.
    pub fn form<K: AsRef<str>, V: AsRef<str>>(self, pairs: &[(K, V)]) -> CallBuilder<'a> {
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
        self.body("application/x-www-form-urlencoded", body.into())
    }

    /// Sets a raw body.
    pub fn body(mut self, content_type: &'static str, body: Bytes) -> CallBuilder<'a> {
        self.body = body;
        self.header(header::CONTENT_TYPE, HeaderValue::from_static(content_type))
    }

    /// Treats this status as a success, too.
    pub fn accept(mut self, status: StatusCode) -> CallBuilder<'a> {
        self.accepted = Some(status);
        self
    }

    fn invalid(mut self, message: String) -> CallBuilder<'a> {
        self.path = Err(Error::new(ErrorKind::InvalidConfig, self.call.name, message));
        self
    }

    /// Sends the call. If the cloud rejects the credentials, it is repeated once with renewed ones, if there are any.
    ///
    /// Boxed, because the futures of providers contain many of these, each several KiB in size.
    pub fn send(&self) -> BoxFuture<'_, Result<ApiResponse>> {
        self.attempts().boxed()
    }

    /// Sends the call; `None` if the cloud reports that the resource does not exist.
    pub async fn find(&self) -> Result<Option<ApiResponse>> {
        match self.send().await {
            Err(error) if error.is_not_found() => Ok(None),
            response => response.map(Some),
        }
    }

    async fn attempts(&self) -> Result<ApiResponse> {
        let mut attempts = self.api.calls.attempts(self.call);
        let mut is_renewed = false;
        loop {
            let (request, mut date) = (self.request().await?, None);
            match attempts.attempt(self.exchange(request.clone(), &mut date)).await {
                Ok(response) => return Ok(response),
                Err(error) if is_rejection(&error) && !is_renewed => {
                    let rejection = Rejection { request: &request, error: &error, date };
                    if !self.renew(&rejection).await? {
                        return Err(error);
                    }
                    is_renewed = true;
                }
                Err(error) => attempts.back_off(error).await?,
            }
        }
    }

    async fn renew(&self, rejection: &Rejection<'_>) -> Result<bool> {
        match &self.api.authorize {
            Some(authorize) => authorize.renew(rejection).await,
            None => Ok(false),
        }
    }

    /// Builds the request with its credentials.
    async fn request(&self) -> Result<Request<Bytes>> {
        let base = match &self.api.authorize {
            Some(authorize) => authorize.base().await?,
            None => None,
        };
        let url = self.url(base.as_deref().unwrap_or(&self.api.base))?;
        let request = Request::builder().method(&self.method).uri(&url).body(self.body.clone());
        let invalid = |error: http::Error| {
            let message = format!("{} {}: {error}", self.method, for_message(&url));
            Error::new(ErrorKind::InvalidConfig, self.call.name, message).retry(Retry::Backoff)
        };
        let mut request = request.map_err(invalid)?;
        request.headers_mut().extend(self.headers.iter().cloned());
        request.extensions_mut().insert(self.call.effect);
        if let Some(authorize) = &self.api.authorize {
            authorize.authorize(&mut request).await?;
        }
        Ok(request)
    }

    fn url(&self, base: &str) -> Result<String> {
        let (base, path) = (base.trim_end_matches('/'), self.path.clone()?);
        let separator = if self.query.is_empty() { "" } else { "?" };
        Ok(format!("{base}/{path}{separator}{}", self.query))
    }

    /// Sends one request, and sets `date` to that of the response. A response that is not a success is an error.
    async fn exchange(&self, request: Request<Bytes>, date: &mut Option<SystemTime>) -> Result<ApiResponse> {
        let (name, method, url) = (self.call.name, self.method.clone(), for_message(&request.uri().to_string()));
        let decoder = &self.api.decoder;
        let response = self.api.client.send(request).await;
        let response = response.map_err(|error| without_response(name, &method, &url, &error, decoder.tls_advice()))?;
        *date = date_of(response.headers());
        if let Some(budget) = (self.api.budget)(response.headers()) {
            self.api.calls.record_budget(self.call.service, budget);
        }
        let status = response.status();
        if status.is_success() || self.accepted == Some(status) {
            return Ok(ApiResponse { name, method, url, response });
        }
        let retry_after = retry_after(response.headers());
        let error_response = ErrorResponse::new(name, &method, &url, &response, retry_after);
        Err(decoder.decode(&error_response).with_status(status.as_u16()))
    }
}

/// Returns whether the cloud rejected the credentials. Some clouds use another status than 401 for that.
fn is_rejection(error: &Error) -> bool {
    error.status() == Some(401) || error.kind() == ErrorKind::Unauthenticated && error.status().is_some()
}

fn date_of(headers: &HeaderMap) -> Option<SystemTime> {
    httpdate::parse_http_date(headers.get(header::DATE)?.to_str().ok()?).ok()
}

/// Joins path segments, some of which are IDs from user input. `.` and `..` are rejected: they would lead to another path.
fn join(name: &'static str, segments: &[&str]) -> Result<String> {
    match segments.iter().find(|segment| segment.chars().all(|c| c == '.')) {
        Some(bad) => Err(Error::new(ErrorKind::InvalidConfig, name, format!("{bad:?} is not a valid ID"))),
        None => Ok(segments.iter().map(|s| utf8_percent_encode(s, SEGMENT).to_string()).collect::<Vec<_>>().join("/")),
    }
}

/// Maximum length of a URL in a message: a lookup of a hundred servers has all their IDs in the URL, and its outcome matters more.
const MAX_URL: usize = 200;

/// Returns the URL for messages: without user and password, and truncated.
pub(crate) fn for_message(url: &str) -> String {
    let url = without_user(url);
    match url.len() > MAX_URL {
        true => format!("{}…", url.get(..url.floor_char_boundary(MAX_URL)).unwrap_or_default()),
        false => url,
    }
}

fn without_user(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}
