//! Authentication by a bearer token for one audience, in a header of its own.
//!
//! The API server's pod proxy removes the `Authorization` header of the requests it forwards, and does not verify the certificate of
//! the Pod. A client behind it authenticates with a token that no other server accepts, in a header that the proxy passes on.

use http::{HeaderMap, HeaderName};

use super::tokens::Tokens;
use crate::user::User;

/// A header with a bearer token for one audience, accepted on one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AudienceToken {
    /// Path on which the header is accepted.
    pub path: &'static str,
    /// Name of the header. Its value has the form of the `Authorization` header: `Bearer TOKEN`.
    pub header: HeaderName,
    /// The only audience for which tokens are reviewed.
    pub audience: &'static str,
}

/// Reviews the tokens of one [`AudienceToken`]. The reviews are cached apart from those of other tokens, because a token can be valid
/// for one audience and invalid for another.
pub(super) struct AudienceTokens {
    accepted: AudienceToken,
    tokens: Tokens,
}

impl AudienceTokens {
    /// `tokens` makes the reviews of the usual tokens.
    pub(super) fn new(accepted: AudienceToken, tokens: &Tokens) -> AudienceTokens {
        AudienceTokens { tokens: tokens.for_audience(accepted.audience), accepted }
    }

    /// Returns the user of the token; `None` without a token, and on any other path.
    pub(super) async fn user(&self, path: &str, headers: &HeaderMap) -> Option<Result<User, String>> {
        if path != self.accepted.path {
            return None;
        }
        let user = self.tokens.user(headers, &self.accepted.header).await.transpose()?;
        Some(user.map_err(|error| format!("{error} for the audience {}", self.accepted.audience)))
    }

    pub(super) fn remove_from(&self, headers: &mut HeaderMap) {
        headers.remove(&self.accepted.header);
    }
}
