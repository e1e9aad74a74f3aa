//! What went wrong with a call, and what that means.

use std::fmt::Display;
use std::time::Duration;

use bowline_cloud::{Error, ErrorKind, Retry};
use bowline_http::{Failure, TlsFailure};
use bytes::Bytes;
use http::{Method, Response};
use serde_json::Value;

/// What went wrong with a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallError {
    /// The service answered that it did not.
    #[error("{method} {url}: HTTP {status}: {body}")]
    Status {
        method: String,
        url: String,
        status: u16,
        /// The fault, as the service words it, on one line.
        body: String,
        retry_after: Option<Duration>,
    },
    /// Nobody answered, or not in time.
    #[error("{method} {url}: {message}")]
    Unreachable {
        method: String,
        url: String,
        message: String,
        /// The request may have come to somebody all the same.
        is_sent: bool,
    },
    /// Whoever answers cannot show that it is the cloud, or does not take our certificate.
    #[error("{method} {url}: {message}; see ca-file, cert-file and key-file in [Global]")]
    Untrusted { method: String, url: String, message: String },
    /// The answer makes no sense.
    #[error("{method} {url}: the answer is not understood: {message}")]
    Garbled { method: String, url: String, message: String },
    /// Keystone knows no such service here.
    #[error("{0}")]
    NoEndpoint(String),
    /// Keystone does not take the credentials.
    #[error("{0}")]
    Refused(String),
    /// What is in the place of an ID can be none.
    #[error("{0:?} is no ID")]
    NoId(String),
}

impl CallError {
    /// An answer that is no success.
    pub(in crate::session) fn answered(method: &Method, url: &str, answer: &Response<Bytes>) -> CallError {
        CallError::Status {
            method: method.to_string(),
            url: shown(url),
            status: answer.status().as_u16(),
            body: line(&String::from_utf8_lossy(answer.body())),
            retry_after: super::retry_after(answer),
        }
    }

    pub(super) fn unreachable(method: &Method, url: &str, failure: &Failure) -> CallError {
        let (method, url, message) = (method.to_string(), shown(url), failure.to_string());
        match failure {
            Failure::Tls(why) if !matches!(why, TlsFailure::Other(_)) => CallError::Untrusted { method, url, message },
            _ => {
                let is_sent = !matches!(failure, Failure::Connect(_) | Failure::Tls(_) | Failure::Request(_));
                CallError::Unreachable { method, url, message, is_sent }
            }
        }
    }

    pub(super) fn garbled(method: &Method, url: &str, why: &dyn Display) -> CallError {
        let message = why.to_string();
        CallError::Garbled { method: method.to_string(), url: shown(url), message }
    }

    /// The status of the answer, if there was one.
    pub(crate) fn status(&self) -> Option<u16> {
        match self {
            CallError::Status { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// The service says that there is no such thing. An answer 404 of a proxy, or from a wrong endpoint, does not say that.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, CallError::Status { status: 404, body, .. } if is_fault(body))
    }

    /// It exists already, or is not to be changed just now.
    pub(crate) fn is_conflict(&self) -> bool {
        self.status() == Some(409)
    }

    /// It may work a moment later.
    pub(crate) fn is_passing(&self) -> bool {
        self.kind().is_passing()
    }

    /// What was asked for may be done all the same, and may still be at work: there was no answer, or it is not the service's own.
    /// Who answers with a fault, whatever its status, is through with it.
    pub(crate) fn leaves_open(&self) -> bool {
        match self {
            CallError::Status { status, body, .. } => *status >= 500 && !is_fault(body),
            CallError::Unreachable { is_sent, .. } => *is_sent,
            CallError::Garbled { .. } => true,
            CallError::Untrusted { .. } | CallError::NoEndpoint(_) | CallError::Refused(_) | CallError::NoId(_) => {
                false
            }
        }
    }

    /// In the words of the contract: what was being done, what came of it, and what that means.
    pub(crate) fn explain(self, operation: impl Into<String>) -> Error {
        let error = Error::new(self.kind(), operation, self.to_string());
        match self {
            CallError::Status { retry_after: Some(wish), status: 429 | 413 | 503, .. } => {
                error.retry(Retry::After(wish))
            }
            // What is refused may be taken later, without a change here: a network is made, a certificate renewed.
            CallError::Status { .. } | CallError::Untrusted { .. } | CallError::NoEndpoint(_) => {
                error.retry(Retry::Backoff)
            }
            _ => error,
        }
    }

    fn kind(&self) -> ErrorKind {
        match self {
            CallError::Status { status, body, retry_after, .. } => {
                by_fault(*status, body).unwrap_or_else(|| Error::from_status("", *status, "", *retry_after).kind())
            }
            CallError::Unreachable { .. } => ErrorKind::Unavailable,
            CallError::Garbled { .. } => ErrorKind::Unexpected,
            CallError::Untrusted { .. } | CallError::NoEndpoint(_) | CallError::NoId(_) => ErrorKind::InvalidConfig,
            CallError::Refused(_) => ErrorKind::Unauthenticated,
        }
    }
}

/// Faults of Neutron that say that there is no more of something.
const EXHAUSTED: [&str; 7] = [
    "OverQuota",
    "AllowedAddressPairExhausted",
    "RoutesExhausted",
    "IpAddressGenerationFailure",
    "IpAddressGenerationFailureAllSubnets",
    "ExternalIpAddressExhausted",
    "NoMoreIpsException",
];

/// Names in the faults of Octavia, Neutron and Nova, the last for what is not found.
const FAULTS: [&str; 3] = [r#""faultstring""#, r#""NeutronError""#, r#""itemNotFound""#];

/// Whether a service says this, and not a gateway in front of it. It may have been cut, so it is not read.
fn is_fault(body: &str) -> bool {
    // Octavia says in prose that the pool is gone whose members are asked for.
    body.starts_with("404 Bad Request") || body.starts_with('{') && FAULTS.iter().any(|name| body.contains(name))
}

/// What the fault in the body says beyond the status.
fn by_fault(status: u16, body: &str) -> Option<ErrorKind> {
    let fault: Value = serde_json::from_str(body).ok()?;
    if let Some(kind) = fault.pointer("/NeutronError/type").and_then(Value::as_str) {
        return EXHAUSTED.contains(&kind).then_some(ErrorKind::QuotaExceeded);
    }
    // Octavia's faults have no type: quotas share their status with policies, and what Neutron has no more of is an error of the
    // server. Only a person is told by these words what to look for; either way, it is tried again later.
    let words = fault.get("faultstring").and_then(Value::as_str)?;
    let is_quota = status == 403 && words.starts_with("Quota has been met");
    let is_full = status == 500 && words.contains("No more IP addresses available");
    (is_quota || is_full).then_some(ErrorKind::QuotaExceeded)
}

/// So much of a URL is shown: a question about a hundred servers names each of them, and what came of it matters more.
const SHOWN: usize = 200;

/// As it is told to people: without a user and a password before the host, and not endless.
pub(super) fn shown(url: &str) -> String {
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

/// The longest fault that is kept.
const LONGEST: usize = 2000;

/// On one line, and not endless.
fn line(text: &str) -> String {
    let words: Vec<_> = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|w| !w.is_empty()).collect();
    let mut line = words.join(" ");
    if line.len() > LONGEST {
        line.truncate(line.floor_char_boundary(LONGEST));
        line.push('…');
    }
    line
}
