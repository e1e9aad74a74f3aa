//! Credentials of calls.

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

    /// Renews the credentials after the cloud answered 401 to `rejected`. Returns whether to repeat the call once with new
    /// credentials.
    async fn renew(&self, _rejected: &Request<Bytes>) -> Result<bool> {
        Ok(false)
    }
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
