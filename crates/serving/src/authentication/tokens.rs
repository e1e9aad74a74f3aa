//! Authentication by bearer token, with TokenReviews.

use std::time::Duration;

use http::{HeaderMap, HeaderName};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus, UserInfo};
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
    /// Audience that the tokens must have; `None` for those that the API server accepts itself.
    audience: Option<&'static str>,
    /// `None` for invalid tokens.
    reviews: ReviewCache<Digest, Option<User>>,
}

impl Tokens {
    pub(super) fn new(client: kube::Client, ttl: Duration) -> Tokens {
        Tokens { client, ttl, audience: None, reviews: ReviewCache::new() }
    }

    /// Reviews tokens for this audience, with the same client and an empty cache.
    pub(super) fn for_audience(&self, audience: &'static str) -> Tokens {
        Tokens { audience: Some(audience), ..Tokens::new(self.client.clone(), self.ttl) }
    }

    /// Returns the user of the bearer token in this header; `None` without a token.
    pub(super) async fn user(&self, headers: &HeaderMap, name: &HeaderName) -> Result<Option<User>, String> {
        let Some(token) = token(headers, name) else { return Ok(None) };
        let (client, ttl, audience, owned) = (self.client.clone(), self.ttl, self.audience, token.to_owned());
        let review = move || async move { Ok((review(client, owned, audience).await?, ttl)) };
        match self.reviews.get(digest(token), review).await? {
            Some(user) => Ok(Some(user)),
            None => Err("invalid bearer token".to_owned()),
        }
    }
}

/// Returns the token after `Bearer`.
fn token<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let value = headers.get(name)?.to_str().ok()?.trim();
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

async fn review(client: kube::Client, token: String, audience: Option<&str>) -> Result<Option<User>, String> {
    let spec = TokenReviewSpec { token, audiences: audience.map(|audience| vec![audience.to_owned()]) };
    let review = TokenReview { spec, ..TokenReview::default() };
    let api: Api<TokenReview> = Api::all(client);
    let params = PostParams::default();
    let answer = review::with_retries(|| api.create(&params, &review)).await?;
    Ok(user_of(answer.status.unwrap_or_default(), audience))
}

/// An API server that does not know audiences returns none, and may have accepted a token for any: such a token is rejected.
fn user_of(status: TokenReviewStatus, audience: Option<&str>) -> Option<User> {
    let audiences = status.audiences.unwrap_or_default();
    let is_confirmed = audience.is_none_or(|audience| audiences.iter().any(|confirmed| confirmed == audience));
    (status.authenticated.unwrap_or_default() && is_confirmed).then(|| to_user(status.user.unwrap_or_default()))
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
    use http::header::AUTHORIZATION;

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
            assert_eq!(token(&headers, &AUTHORIZATION), expected, "{value:?}");
        }
        assert_eq!(token(&HeaderMap::new(), &AUTHORIZATION), None);
    }

    #[test]
    fn a_token_for_an_audience_is_valid_only_if_the_api_server_confirms_the_audience() {
        let user = UserInfo { username: Some("jane".to_owned()), ..UserInfo::default() };
        let status = |authenticated, audiences: Option<&[&str]>| TokenReviewStatus {
            authenticated: Some(authenticated),
            audiences: audiences.map(|names| names.iter().map(|name| (*name).to_owned()).collect()),
            user: Some(user.clone()),
            ..TokenReviewStatus::default()
        };
        let cases = [
            (status(true, Some(&["console"])), true, true),
            (status(true, Some(&["other", "console"])), true, true),
            (status(true, Some(&["other"])), true, false),
            (status(true, Some(&[])), true, false),
            (status(true, None), true, false),
            (status(false, Some(&["console"])), false, false),
        ];
        for (status, usual, for_audience) in cases {
            assert_eq!(user_of(status.clone(), None).is_some(), usual, "{status:?}");
            assert_eq!(user_of(status.clone(), Some("console")).is_some(), for_audience, "{status:?}");
        }
    }
}
