//! Login with a certificate: a SAML token of the STS, which only the holder of the certificate's key can use.
//!
//! ```text
//!  certificate, key ──► sts: find it, request a token, signed with the key ──► Token
//!                                                                               ├─ login:         message LoginByToken, signed
//!                                                                               └─ authorization: header of the REST login, signed
//! ```
//!
//! Neither vCenter nor the STS sees the key. Certificate, key and token are never logged.

mod identity;
mod message;
mod rest;
mod sts;
#[cfg(test)]
mod tests;

use std::fmt;

use bowline_cloud::{Error, ErrorKind, Result};
use bowline_config::Secret;
use bowline_http::Api;
use bowline_http::sign::SignError;
use bytes::Bytes;
use jiff::Timestamp;

use crate::soap::{self, Element, ManagedObject};
use identity::Identity;
use message::KeyReference;

const LOG_IN: &str = "log in to vCenter";

/// Holder-of-key SAML token, with the key.
pub(crate) struct Token {
    identity: Identity,
    /// Assertion as the STS wrote it, because it has a signature.
    assertion: Secret,
    /// ID of the assertion.
    id: String,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Requests a token. `api` has the vCenter at `base` as its base, and no session.
pub(crate) async fn issue(api: &Api, base: &str, certificate: &str, key: &Secret) -> Result<Token> {
    let identity = Identity::from_pem(certificate, key, Timestamp::now())
        .map_err(|error| Error::new(ErrorKind::InvalidConfig, LOG_IN, error.to_string()))?;
    let assertion = sts::issue(api, base, &identity).await?;
    let id = Element::parse(&assertion).ok().and_then(|parsed| parsed.attribute_value("ID").map(str::to_owned));
    let id = id.ok_or_else(|| Error::new(ErrorKind::Unexpected, LOG_IN, "the token of the STS has no ID"))?;
    Ok(Token { identity, assertion: assertion.into(), id })
}

impl Token {
    /// Returns the message `LoginByToken`.
    pub(crate) fn login(&self, session_manager: &ManagedObject) -> Result<Bytes> {
        let body = soap::method("LoginByToken", session_manager, [Element::leaf("locale", "en_US")]);
        let token = self.assertion.reveal();
        let message = message::signed(&self.identity, &KeyReference::Assertion { id: &self.id, token }, body, None);
        message.map_err(signing_failed)
    }
}

fn signing_failed(error: SignError) -> Error {
    Error::new(ErrorKind::Unexpected, LOG_IN, error.to_string())
}
