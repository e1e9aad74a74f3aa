//! Request signatures of the clouds that require one.
//!
//! A signer is a pure function: it takes a whole request (or its parameters), credentials and the time of the request, and returns
//! the headers or the query to add. It reads no clock, file or environment variable, and sends nothing. Sign a request again before
//! a retry: every scheme limits the age of a signature.
//!
//! | module | scheme | returns |
//! |---|---|---|
//! | [`aws`] | Signature Version 4 | headers, or a presigned query |
//! | [`oci`] | HTTP signatures, RSA with SHA-256 | headers |
//! | [`alibaba`] | `ACS3-HMAC-SHA256`, or RPC with HMAC-SHA1 | headers, or a query |
//! | [`cloudstack`] | HMAC-SHA1 | a query |
//! | [`google`] | service account JWT, RS256 | an assertion to exchange for an access token |
//!
//! ```
//! use bowline_http::sign::aws;
//! use bytes::Bytes;
//! use jiff::Timestamp;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let credentials = aws::Credentials {
//!     access_key_id: "AKIDEXAMPLE".into(),
//!     secret_access_key: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".into(),
//!     session_token: None,
//! };
//! let scope = aws::Scope { region: "eu-west-1", service: "ec2", path: aws::PathRule::Standard };
//! let mut request = http::Request::post("https://ec2.eu-west-1.amazonaws.com/")
//!     .header("content-type", "application/x-www-form-urlencoded; charset=utf-8")
//!     .body(Bytes::from("Action=DescribeInstances&Version=2016-11-15"))?;
//! let headers = aws::headers(&request, &credentials, &scope, Timestamp::now())?;
//! request.headers_mut().extend(headers);
//! # Ok(())
//! # }
//! ```

pub mod alibaba;
pub mod aws;
mod canonical;
pub mod cloudstack;
pub mod google;
pub mod oci;
mod rsa;

use http::HeaderName;

pub use rsa::{KeyError, RsaKey};

/// Reason why a request cannot be signed. Its text contains no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignError {
    /// The request has neither a `Host` header nor a host in its URL.
    #[error("the URL of the request has no host")]
    NoHost,
    /// A header that is part of the signature is not ASCII text.
    #[error("header {0} cannot be signed: its value is not ASCII text")]
    Header(HeaderName),
    /// A value for a header to add, from the credentials or another argument, is not allowed in a header.
    #[error("header {0} cannot be added: its value has characters that headers do not allow")]
    Value(HeaderName),
    /// The RSA operation itself failed.
    #[error("signing with the RSA key failed")]
    Rsa,
}
