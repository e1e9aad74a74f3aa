//! Who may call over HTTP. A web page may not, whatever name leads it here; and what only the owner does takes the owner's
//! token.

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, ORIGIN};
use http::{HeaderMap, Method, Request};

use crate::api::Refusal;

/// What stands in front of a cloud that listens.
pub(crate) struct Door {
    token: String,
    /// Every call needs a token, also one that only reads: what users order here happens in the kernel.
    pub(crate) always: bool,
}

impl Door {
    /// With this token for the owner.
    pub(crate) fn new(token: String, always: bool) -> Door {
        Door { token, always }
    }

    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// Refuses what a browser sends on behalf of a page: with the page's name for us, from the page's origin, or as a form.
    pub(crate) fn refuse_pages(&self, request: &Request<Bytes>) -> Result<(), Refusal> {
        let text = |name| request.headers().get(name).map(|value| value.to_str().unwrap_or_default());
        let host = text(HOST).unwrap_or_default();
        if !is_ours(host) {
            let message = format!("this cloud is not called {host:?}; call it by its address, or localhost");
            return Err(Refusal::forbidden("foreign_host", message));
        }
        if let Some(origin) = text(ORIGIN).filter(|origin| *origin != format!("http://{host}")) {
            return Err(Refusal::forbidden("foreign_origin", format!("no calls are taken from pages of {origin:?}")));
        }
        let kind = text(CONTENT_TYPE).unwrap_or_default().split(';').next().unwrap_or_default().trim();
        if !request.body().is_empty() && !is_json(kind) {
            return Err(Refusal::not_json(kind));
        }
        Ok(())
    }

    /// Refuses a call of the owner without the owner's token; calls that only read need none, unless all do.
    pub(crate) fn recognise_owner(&self, method: &Method, headers: &HeaderMap) -> Result<(), Refusal> {
        if method == Method::GET && !self.always {
            return Ok(());
        }
        let shown = headers.get(AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
        match shown.is_some_and(|shown| is_equal(shown, self.token.as_bytes())) {
            true => Ok(()),
            false => Err(Refusal::unknown("this takes the token of the cloud's owner, as Authorization: Bearer TOKEN")),
        }
    }
}

/// An address, or the one name that is this machine's everywhere. Any other could be made to lead here.
fn is_ours(host: &str) -> bool {
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

/// Compares in a time that says nothing about where they differ.
fn is_equal(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |different, (a, b)| different | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_localhost_are_ours() {
        for host in ["127.0.0.1", "127.0.0.1:7480", "localhost:7480", "LOCALHOST", "[::1]:7480", "[::1]", "10.0.0.1"] {
            assert!(is_ours(host), "{host}");
        }
        for host in ["", "evil.example", "evil.example:7480", "localhost.evil.example", "127.0.0.1.evil.example", "a:b"]
        {
            assert!(!is_ours(host), "{host}");
        }
    }
}
