//! Credentials of calls.

use std::time::SystemTime;

use async_trait::async_trait;
use bowline_cloud::{Error, ErrorKind, Result};
use bowline_config::Secret;
use bytes::Bytes;
use http::{HeaderValue, Request, header};

/// Adds credentials to calls: a token, or a signature.
#[async_trait]
pub trait Authorize: Send + Sync {
    /// Returns the base URL of the service if the credentials determine it (a catalog); `None` for that of the [`Api`](crate::Api).
    async fn base(&self) -> Result<Option<String>> {
        Ok(None)
    }

    /// Adds the credentials to an otherwise complete request. Called for every attempt.
    async fn authorize(&self, request: &mut Request<Bytes>) -> Result<()>;

    /// Renews the credentials after the cloud rejected those of a call: it answered 401, or an error of kind
    /// [`Unauthenticated`](ErrorKind::Unauthenticated). Returns whether to repeat the call once with new credentials.
    async fn renew(&self, _rejection: &Rejection<'_>) -> Result<bool> {
        Ok(false)
    }
}

/// A call whose credentials the cloud rejected.
#[derive(Debug)]
pub struct Rejection<'a> {
    /// Request with the rejected credentials.
    pub request: &'a Request<Bytes>,
    /// Decoded error.
    pub error: &'a Error,
    /// Time of the cloud, from the header `Date` of its response.
    pub date: Option<SystemTime>,
}

/// A constant token: `Authorization: Bearer TOKEN`.
pub struct Bearer(HeaderValue);

impl Bearer {
    /// Fails if the token is not a valid header value.
    pub fn new(token: &Secret) -> Result<Bearer> {
        let value = HeaderValue::try_from(format!("Bearer {}", token.reveal()));
        let invalid = |_| {
            Error::new(
                ErrorKind::InvalidConfig,
                "read the token",
                "the token has characters that are not allowed in a header",
            )
        };
        let mut value = value.map_err(invalid)?;
        value.set_sensitive(true);
        Ok(Bearer(value))
    }
}

#[async_trait]
impl Authorize for Bearer {
    async fn authorize(&self, request: &mut Request<Bytes>) -> Result<()> {
        request.headers_mut().insert(header::AUTHORIZATION, self.0.clone());
        Ok(())
    }
}
