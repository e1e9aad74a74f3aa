//! Access control of the HTTP server: rejects requests of web pages (DNS rebinding, cross-origin and form requests), and requires
//! the owner's token for management calls.

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, ORIGIN};
use http::{HeaderMap, Method, Request};

use crate::api::ApiError;

/// Access control of a server.
pub(crate) struct AccessControl {
    token: String,
    /// Every call needs a token, including reads: user calls change kernel routes.
    pub(crate) always: bool,
}

impl AccessControl {
    /// Creates access control with this owner token.
    pub(crate) fn new(token: String, always: bool) -> AccessControl {
        AccessControl { token, always }
    }

    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// Rejects requests that a browser sends for a web page: with a foreign host name, a foreign origin, or a form.
    pub(crate) fn reject_web_pages(&self, request: &Request<Bytes>) -> Result<(), ApiError> {
        let text = |name| request.headers().get(name).map(|value| value.to_str().unwrap_or_default());
        let host = text(HOST).unwrap_or_default();
        if !is_local_host(host) {
            let message = format!("host {host:?} is not allowed; use an IP address or localhost");
            return Err(ApiError::forbidden("foreign_host", message));
        }
        if let Some(origin) = text(ORIGIN).filter(|origin| *origin != format!("http://{host}")) {
            return Err(ApiError::forbidden("foreign_origin", format!("origin {origin:?} is not allowed")));
        }
        let kind = text(CONTENT_TYPE).unwrap_or_default().split(';').next().unwrap_or_default().trim();
        if !request.body().is_empty() && !is_json(kind) {
            return Err(ApiError::not_json(kind));
        }
        Ok(())
    }

    /// Rejects a management call without the owner's token. Reads need a token only if `always` is set.
    pub(crate) fn authenticate_owner(&self, method: &Method, headers: &HeaderMap) -> Result<(), ApiError> {
        if method == Method::GET && !self.always {
            return Ok(());
        }
        let token = headers.get(AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
        match token.is_some_and(|token| is_equal(token, self.token.as_bytes())) {
            true => Ok(()),
            false => Err(ApiError::unauthenticated("the owner's token is required, as Authorization: Bearer TOKEN")),
        }
    }
}

/// Whether the host is an IP address or `localhost`. Any other name could be rebound to this machine.
fn is_local_host(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    address.eq_ignore_ascii_case("localhost") || address.parse::<std::net::IpAddr>().is_ok()
}

fn is_json(kind: &str) -> bool {
    ["application/json", "application/merge-patch+json"].iter().any(|json| kind.eq_ignore_ascii_case(json))
}

/// Compares in constant time.
fn is_equal(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |different, (a, b)| different | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ip_addresses_and_localhost_are_local() {
        for host in ["127.0.0.1", "127.0.0.1:7480", "localhost:7480", "LOCALHOST", "[::1]:7480", "[::1]", "10.0.0.1"] {
            assert!(is_local_host(host), "{host}");
        }
        for host in ["", "evil.example", "evil.example:7480", "localhost.evil.example", "127.0.0.1.evil.example", "a:b"]
        {
            assert!(!is_local_host(host), "{host}");
        }
    }
}
