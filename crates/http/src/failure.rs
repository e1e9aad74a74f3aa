//! Why there is no answer.

use std::time::Duration;

/// Why a request has no answer. Its text names no header and no body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// It took too long.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// Nobody is there, or nobody that we can reach.
    #[error("cannot connect: {0}")]
    Connect(String),
    /// Somebody is there who cannot show who they are, or will not speak with us.
    #[error("TLS: {0}")]
    Tls(TlsFailure),
    /// The answer ended early, or is none.
    #[error("the answer is broken: {0}")]
    Broken(String),
    /// The answer is larger than anything that is expected.
    #[error("the answer is larger than {0} bytes")]
    TooLarge(usize),
    /// The answers of all calls together take more memory than they may.
    #[error("the answers to all calls together take more than {0} bytes; this one was given up")]
    Crowded(usize),
    /// The answer has a content encoding, which was not asked for: it could unpack to any size.
    #[error("the answer is encoded as {0:?}, which was not asked for")]
    Encoded(String),
    /// The request cannot be sent at all.
    #[error("the request cannot be sent: {0}")]
    Request(String),
}

/// Why there is no TLS.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsFailure {
    /// Nobody that we trust vouches for the certificate.
    #[error("the certificate is from an issuer that is not trusted")]
    UnknownIssuer,
    /// The certificate is not valid any more.
    #[error("the certificate has expired")]
    Expired,
    /// The certificate is not valid yet; or the clock of this machine is wrong.
    #[error("the certificate is not valid yet")]
    NotYetValid,
    /// The certificate is somebody else's.
    #[error("the certificate is for another name")]
    WrongName,
    /// The server wants a certificate of ours, or does not take the one it got.
    #[error("the server does not take our certificate: {0}")]
    Refused(String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}
