//! The credentials of calls.

use async_trait::async_trait;
use bowline_cloud::{Error, ErrorKind, Result};
use bowline_config::Secret;
use bytes::Bytes;
use http::{HeaderValue, Request, header};

/// Adds credentials to calls: a token, or a signature.
#[async_trait]
pub trait Authorize: Send + Sync {
    /// Base URL of the service, where only the credentials say it (a catalog); `None` for that of the [`Api`](crate::Api).
    async fn base(&self) -> Result<Option<String>> {
        Ok(None)
    }

    /// Adds the credentials to a request that is complete but for them. Called for every attempt.
    async fn authorize(&self, request: &mut Request<Bytes>) -> Result<()>;

    /// The cloud answered 401 to `refused`. Returns whether there are new credentials to repeat it with, once.
    async fn renew(&self, _refused: &Request<Bytes>) -> Result<bool> {
        Ok(false)
    }
}

/// A token that stays the same: `Authorization: Bearer TOKEN`.
pub struct Bearer(HeaderValue);

impl Bearer {
    /// Fails if the token cannot stand in a header.
    pub fn new(token: &Secret) -> Result<Bearer> {
        let value = HeaderValue::try_from(format!("Bearer {}", token.reveal()));
        let unusable =
            |_| Error::new(ErrorKind::InvalidConfig, "read the token", "it has characters that a header cannot have");
        let mut value = value.map_err(unusable)?;
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
