//! AWS Signature Version 4.

use std::time::Duration;

use bowline_config::Secret;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONNECTION, EXPECT, HOST, TRANSFER_ENCODING, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use jiff::Timestamp;

use super::SignError;
use super::canonical::{self, Headers};

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const DATE: HeaderName = HeaderName::from_static("x-amz-date");
const TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");
const TRACE: HeaderName = HeaderName::from_static("x-amzn-trace-id");

/// Headers that the transport or a proxy may add or change.
const UNSIGNED: [HeaderName; 6] = [AUTHORIZATION, CONNECTION, EXPECT, TRANSFER_ENCODING, USER_AGENT, TRACE];

/// Access key, with a session token if it is temporary.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// Access key ID.
    pub access_key_id: String,
    /// Secret access key.
    pub secret_access_key: Secret,
    /// Session token of temporary credentials.
    pub session_token: Option<Secret>,
}

/// Service that a signature is valid for.
#[derive(Debug, Clone, Copy)]
pub struct Scope<'a> {
    /// Signing region, such as `eu-west-1`.
    pub region: &'a str,
    /// Signing name of the service, such as `ec2` or `elasticloadbalancing`.
    pub service: &'a str,
    /// Canonical form of the path.
    pub path: PathRule,
}

/// Canonical form of the path in a signature.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PathRule {
    /// Dot segments and repeated slashes are resolved, and the path as it is sent is percent-encoded once more.
    #[default]
    Standard,
    /// The path is signed as it is sent. S3 requires this.
    AsSent,
}

/// Headers that sign the request: `authorization`, `x-amz-date`, and `x-amz-security-token` for temporary credentials.
///
/// All headers of the request are signed except those that may change in transit (`user-agent` and some of HTTP's own), so no
/// header may be added or changed afterwards.
pub fn headers(
    request: &Request<Bytes>,
    credentials: &Credentials,
    scope: &Scope<'_>,
    at: Timestamp,
) -> Result<HeaderMap, SignError> {
    let time = time(at);
    let mut added = HeaderMap::new();
    added.insert(DATE, canonical::value(&DATE, &time)?);
    if let Some(token) = &credentials.session_token {
        added.insert(TOKEN, canonical::sensitive(&TOKEN, token.reveal())?);
    }
    let signed = signed_headers(request, &added)?;
    let signature = signature(request, &canonical::query_of(request.uri()), &signed, credentials, scope, &time);
    let authorization = format!(
        "{ALGORITHM} Credential={}/{}, SignedHeaders={}, Signature={signature}",
        credentials.access_key_id,
        scope.text(&time),
        canonical::names(&signed)
    );
    added.insert(AUTHORIZATION, canonical::sensitive(&AUTHORIZATION, &authorization)?);
    Ok(added)
}

/// Query that signs the request for the duration `valid`: the parameters of the request and those of the signature. It replaces the
/// query of the URL.
pub fn presigned_query(
    request: &Request<Bytes>,
    credentials: &Credentials,
    scope: &Scope<'_>,
    at: Timestamp,
    valid: Duration,
) -> Result<String, SignError> {
    let time = time(at);
    let signed = signed_headers(request, &HeaderMap::new())?;
    let mut parameters = canonical::parameters(request.uri());
    let mut add = |name: &str, value: &str| parameters.push((name.into(), value.into()));
    add("X-Amz-Algorithm", ALGORITHM);
    add("X-Amz-Credential", &format!("{}/{}", credentials.access_key_id, scope.text(&time)));
    add("X-Amz-Date", &time);
    add("X-Amz-Expires", &valid.as_secs().to_string());
    add("X-Amz-SignedHeaders", &canonical::names(&signed));
    if let Some(token) = &credentials.session_token {
        add("X-Amz-Security-Token", token.reveal());
    }
    let query = canonical::query(parameters.iter().map(|(name, value)| (name.as_slice(), value.as_slice())));
    let signature = signature(request, &query, &signed, credentials, scope, &time);
    Ok(format!("{query}&X-Amz-Signature={signature}"))
}

impl Scope<'_> {
    /// Credential scope on the day of `time`.
    fn text(&self, time: &str) -> String {
        format!("{}/{}/{}/aws4_request", day(time), self.region, self.service)
    }
}

fn time(at: Timestamp) -> String {
    at.strftime("%Y%m%dT%H%M%SZ").to_string()
}

fn day(time: &str) -> &str {
    time.split('T').next().unwrap_or_default()
}

/// Headers of the request, with those that are added for the signature in place of older ones.
fn signed_headers(request: &Request<Bytes>, added: &HeaderMap) -> Result<Headers, SignError> {
    let mut headers = Headers::from([(HOST.to_string(), canonical::host(request)?)]);
    let kept = |name: &HeaderName| !UNSIGNED.contains(name) && *name != HOST && !added.contains_key(name);
    for name in request.headers().keys().filter(|name| kept(name)) {
        headers.insert(name.to_string(), values(name, request.headers())?);
    }
    for name in added.keys() {
        headers.insert(name.to_string(), values(name, added)?);
    }
    Ok(headers)
}

/// All values of a header, each without surrounding and repeated spaces.
fn values(name: &HeaderName, headers: &HeaderMap) -> Result<String, SignError> {
    let single_spaced = |value: &HeaderValue| {
        let words = canonical::text(name, value)?.split_ascii_whitespace();
        Ok(words.collect::<Vec<_>>().join(" "))
    };
    Ok(headers.get_all(name).iter().map(single_spaced).collect::<Result<Vec<_>, _>>()?.join(","))
}

fn signature(
    request: &Request<Bytes>,
    query: &str,
    headers: &Headers,
    credentials: &Credentials,
    scope: &Scope<'_>,
    time: &str,
) -> String {
    let path = canonical_path(request.uri().path(), scope.path);
    let digest = canonical::hex(canonical::sha256(request.body()));
    let canonical = canonical::request(request.method(), &path, query, headers, &digest);
    let digest = canonical::hex(canonical::sha256(canonical.as_bytes()));
    let message = format!("{ALGORITHM}\n{time}\n{}\n{digest}", scope.text(time));
    canonical::hex(canonical::hmac_sha256(signing_key(credentials, scope, time).as_ref(), &message))
}

/// Key for one day, region and service.
fn signing_key(credentials: &Credentials, scope: &Scope<'_>, time: &str) -> impl AsRef<[u8]> {
    let secret = format!("AWS4{}", credentials.secret_access_key.reveal());
    let day_key = canonical::hmac_sha256(secret.as_bytes(), day(time));
    let region_key = canonical::hmac_sha256(day_key.as_ref(), scope.region);
    let service_key = canonical::hmac_sha256(region_key.as_ref(), scope.service);
    canonical::hmac_sha256(service_key.as_ref(), "aws4_request")
}

fn canonical_path(path: &str, rule: PathRule) -> String {
    match rule {
        PathRule::AsSent => path.to_owned(),
        PathRule::Standard => {
            let segments = normalized(path).into_iter().map(|segment| canonical::encode(segment.as_bytes()));
            let joined: String = segments.map(|segment| format!("/{segment}")).collect();
            if joined.is_empty() || path.ends_with('/') { joined + "/" } else { joined }
        }
    }
}

/// Segments of the path without empty ones and dot segments.
fn normalized(path: &str) -> Vec<&str> {
    path.split('/').fold(Vec::new(), |mut segments, segment| {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            _ => segments.push(segment),
        }
        segments
    })
}

#[cfg(test)]
mod tests;
