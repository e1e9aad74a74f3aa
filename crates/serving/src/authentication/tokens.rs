//! Authentication by bearer token, with TokenReviews.

use std::time::Duration;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use kube::api::{Api, PostParams};

use crate::review;
use crate::review_cache::ReviewCache;
use crate::user::User;

/// Hash of a token. The cache does not keep the token itself.
type Digest = [u8; 32];

/// Reviews tokens and caches the results.
pub(super) struct Tokens {
    client: kube::Client,
    ttl: Duration,
    /// `None` for invalid tokens.
    reviews: ReviewCache<Digest, Option<User>>,
}

impl Tokens {
    pub(super) fn new(client: kube::Client, ttl: Duration) -> Tokens {
        Tokens { client, ttl, reviews: ReviewCache::new() }
    }

    /// Returns the user of the bearer token; `None` without a token.
    pub(super) async fn user(&self, headers: &HeaderMap) -> Result<Option<User>, String> {
        let Some(token) = token(headers) else { return Ok(None) };
        let (client, ttl, owned) = (self.client.clone(), self.ttl, token.to_owned());
        match self.reviews.get(digest(token), move || review(client, owned, ttl)).await? {
            Some(user) => Ok(Some(user)),
            None => Err("invalid bearer token".to_owned()),
        }
    }
}

/// Returns the token after `Bearer`.
fn token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?.trim();
    let mut parts = value.splitn(3, ' ');
    let scheme = parts.next()?;
    let token = parts.next().filter(|token| !token.is_empty())?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token)
}

fn digest(token: &str) -> Digest {
    let mut digest = [0; 32];
    digest.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, token.as_bytes()).as_ref());
    digest
}

async fn review(client: kube::Client, token: String, ttl: Duration) -> Result<(Option<User>, Duration), String> {
    let spec = TokenReviewSpec { token, ..TokenReviewSpec::default() };
    let review = TokenReview { spec, ..TokenReview::default() };
    let api: Api<TokenReview> = Api::all(client);
    let params = PostParams::default();
    let answer = review::with_retries(|| api.create(&params, &review)).await?;
    let status = answer.status.unwrap_or_default();
    let user = status.authenticated.unwrap_or_default().then(|| to_user(status.user.unwrap_or_default()));
    Ok((user, ttl))
}

fn to_user(info: UserInfo) -> User {
    User {
        name: info.username.unwrap_or_default(),
        uid: info.uid.unwrap_or_default(),
        groups: info.groups.unwrap_or_default(),
        extra: info.extra.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_token_follows_bearer() {
        let cases = [
            ("Bearer abc", Some("abc")),
            ("bearer abc", Some("abc")),
            ("  Bearer abc  ", Some("abc")),
            ("Bearer abc def", Some("abc")),
            ("Bearer  abc", None),
            ("Bearer", None),
            ("Bearer ", None),
            ("Basic abc", None),
            ("", None),
        ];
        for (value, expected) in cases {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static(value))]);
            assert_eq!(token(&headers), expected, "{value:?}");
        }
        assert_eq!(token(&HeaderMap::new()), None);
    }
}
