//! Errors of requests without a response.

use std::time::Duration;

use crate::FingerprintMismatch;

/// Error of a request without a valid response. Its text contains no header and no body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The request timed out.
    #[error("no response within {0:?}")]
    Timeout(Duration),
    /// The connection failed.
    #[error("cannot connect: {0}")]
    Connect(String),
    /// The TLS handshake failed.
    #[error("TLS: {0}")]
    Tls(TlsHandshakeError),
    /// The response ended early or is not HTTP.
    #[error("the response is broken: {0}")]
    Broken(String),
    /// The response is larger than the limit.
    #[error("the response is larger than {0} bytes")]
    TooLarge(usize),
    /// All responses in memory together exceed the budget of the process.
    #[error("all responses together exceed {0} bytes; this one was dropped")]
    OverBudget(usize),
    /// The response has a content encoding that was not requested: it could unpack to any size.
    #[error("the response has the content encoding {0:?}, which was not requested")]
    Encoded(String),
    /// The request is invalid and was not sent.
    #[error("the request cannot be sent: {0}")]
    Request(String),
}

/// Error of a TLS handshake.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsHandshakeError {
    /// The certificate is not signed by a trusted CA.
    #[error("the certificate is not signed by a trusted CA")]
    UnknownIssuer,
    /// The certificate has expired.
    #[error("the certificate has expired")]
    Expired,
    /// The certificate is not valid yet, or the clock of this machine is wrong.
    #[error("the certificate is not valid yet")]
    NotYetValid,
    /// The certificate is for another host name.
    #[error("the certificate is for another host name")]
    WrongName,
    /// The certificate is not trusted, and it has another fingerprint than the configured one.
    #[error("{0}")]
    WrongFingerprint(FingerprintMismatch),
    /// The server requires a client certificate, or rejects the one it got.
    #[error("the server rejects the client certificate: {0}")]
    Refused(String),
    /// Any other error.
    #[error("{0}")]
    Other(String),
}
