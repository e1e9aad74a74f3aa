//! Bearer token of the provider, from the configuration or from a Secret, which may change.

use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use bowline_cloud::{Error, ErrorKind, Result};
use bowline_config::Secret;
use bowline_http::{Authorize, Bearer};
use bytes::Bytes;
use http::Request;

use crate::config::is_bearer;

/// Token of all calls, if set. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Token(Arc<RwLock<Option<Arc<Bearer>>>>);

impl Token {
    /// Replaces the token with that of a Secret. A token of the configuration has already been validated.
    pub(crate) fn replace(&self, token: &Secret) -> Result<()> {
        if !is_bearer(token.reveal()) {
            let message = "the token is not valid: use only letters, digits and -._~+/=";
            return Err(Error::new(ErrorKind::InvalidConfig, "read the token", message));
        }
        self.set(token)
    }

    /// Sets the token for all further calls.
    pub(crate) fn set(&self, token: &Secret) -> Result<()> {
        let bearer = Arc::new(Bearer::new(token)?);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(bearer);
        Ok(())
    }

    fn get(&self) -> Option<Arc<Bearer>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[async_trait]
impl Authorize for Token {
    async fn authorize(&self, request: &mut Request<Bytes>) -> Result<()> {
        match self.get() {
            Some(bearer) => bearer.authorize(request).await,
            None => Ok(()),
        }
    }
}
