//! Bearer tokens, of which the API server says whose they are.

use std::time::Duration;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use kube::api::{Api, PostParams};

use crate::memo::Memo;
use crate::review;
use crate::user::User;

/// What stands for a token in memory, so that the token itself does not lie about.
type Digest = [u8; 32];

/// Asks, and remembers for a while.
pub(super) struct Tokens {
    client: kube::Client,
    ttl: Duration,
    /// Nobody, for tokens that are not valid.
    known: Memo<Digest, Option<User>>,
}

impl Tokens {
    pub(super) fn new(client: kube::Client, ttl: Duration) -> Tokens {
        Tokens { client, ttl, known: Memo::new() }
    }

    /// Whose token it is; nobody if there is none.
    pub(super) async fn who(&self, headers: &HeaderMap) -> Result<Option<User>, String> {
        let Some(token) = token(headers) else { return Ok(None) };
        let (client, ttl, asked) = (self.client.clone(), self.ttl, token.to_owned());
        match self.known.get(digest(token), move || ask(client, asked, ttl)).await? {
            Some(user) => Ok(Some(user)),
            None => Err("invalid bearer token".to_owned()),
        }
    }
}

/// The token after `Bearer`, if there is one.
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

async fn ask(client: kube::Client, token: String, ttl: Duration) -> Result<(Option<User>, Duration), String> {
    let spec = TokenReviewSpec { token, ..TokenReviewSpec::default() };
    let review = TokenReview { spec, ..TokenReview::default() };
    let api: Api<TokenReview> = Api::all(client);
    let params = PostParams::default();
    let answer = review::patiently(|| api.create(&params, &review)).await?;
    let status = answer.status.unwrap_or_default();
    let user = status.authenticated.unwrap_or_default().then(|| user(status.user.unwrap_or_default()));
    Ok((user, ttl))
}

fn user(info: UserInfo) -> User {
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
    fn a_token_is_what_follows_bearer() {
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
