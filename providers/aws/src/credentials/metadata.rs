//! Metadata service of the instance, version 2: a session token, then documents.

use std::time::Duration;

use async_trait::async_trait;
use bowline_cloud::{Calls, Effect, Error, ErrorKind, Result, Retry};
use bowline_http::{Api, ApiResponse, Authorize, IssuedToken, Rejection, TokenSource};
use bytes::Bytes;
use futures::FutureExt as _;
use http::{HeaderName, HeaderValue, Method, Request};
use serde::Deserialize;

use crate::endpoints::{ApiName, Endpoints};

/// Timeout of one call: the service is on the same machine, or nowhere.
const TIMEOUT: Duration = Duration::from_secs(2);

const TOKEN: HeaderName = HeaderName::from_static("x-aws-ec2-metadata-token");
const TOKEN_TTL: HeaderName = HeaderName::from_static("x-aws-ec2-metadata-token-ttl-seconds");
/// Maximum lifetime of a session token, in seconds.
const MAX_TTL: u64 = 21600;

/// Folder with the credentials of the instance's role. Its listing needs a slash at the end, which only a base URL can have.
const ROLES: &str = "/latest/meta-data/iam/security-credentials";

/// Client of the metadata service. Clones share the session token.
#[derive(Clone)]
pub(crate) struct Metadata {
    api: Api,
    roles: Api,
    is_disabled: bool,
}

/// Identity document of the instance.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct IdentityDocument {
    pub(crate) region: String,
}

impl Metadata {
    /// Creates a client. Makes no call.
    pub(crate) fn new(
        http: &bowline_http::Client,
        calls: &Calls,
        endpoints: &Endpoints,
        is_disabled: bool,
    ) -> Metadata {
        let http = http.with_timeout(http.timeout().min(TIMEOUT));
        let api = || Api::new(http.clone(), calls, "metadata");
        let bare = api().authorize(At { endpoints: endpoints.clone(), path: "" });
        let tokens = TokenSource::new(move || {
            let api = bare.clone();
            async move { token(&api).await }.boxed()
        });
        let session = |path| Session { at: At { endpoints: endpoints.clone(), path }, tokens: tokens.clone() };
        Metadata { api: api().authorize(session("")), roles: api().authorize(session(ROLES)), is_disabled }
    }

    /// Reads the identity document.
    pub(crate) async fn identity_document(&self) -> Result<IdentityDocument> {
        let path = ["latest", "dynamic", "instance-identity", "document"];
        self.get(&self.api, "metadata_document_get", &path).await?.json()
    }

    /// Reads the ID of this instance.
    pub(crate) async fn instance_id(&self) -> Result<String> {
        let response = self.get(&self.api, "metadata_instance_id_get", &["latest", "meta-data", "instance-id"]).await?;
        response.text().map(|text| text.trim().to_owned())
    }

    /// Reads the name of the instance's role.
    pub(super) async fn role(&self) -> Result<String> {
        let without_role = |error: Error| match error.status() {
            Some(404) => {
                let message =
                    "the instance has no IAM role; attach an instance profile, or configure other credentials";
                Error::new(ErrorKind::InvalidConfig, error.operation(), message).retry(Retry::Backoff)
            }
            _ => error,
        };
        let response = self.get(&self.roles, "metadata_role_list", &[]).await.map_err(without_role)?;
        let role = response.text()?.lines().next().unwrap_or_default().trim().to_owned();
        response.decoded(if role.is_empty() { Err("it names no role") } else { Ok(role) })
    }

    /// Reads the credentials of the role.
    pub(super) async fn credentials(&self, role: &str) -> Result<ApiResponse> {
        self.get(&self.roles, "metadata_credentials_get", &[role]).await
    }

    async fn get(&self, api: &Api, name: &'static str, path: &[&str]) -> Result<ApiResponse> {
        if self.is_disabled {
            let message = "the metadata service is disabled by AWS_EC2_METADATA_DISABLED";
            return Err(Error::new(ErrorKind::InvalidConfig, name, message).retry(Retry::Backoff));
        }
        api.call(name, Method::GET, path).send().await
    }
}

/// Requests a session token.
async fn token(api: &Api) -> Result<IssuedToken<HeaderValue>> {
    let call = api.call("metadata_token_create", Method::PUT, &["latest", "api", "token"]).effect(Effect::Read);
    let response = call.header(TOKEN_TTL, MAX_TTL.into()).send().await.map_err(unreachable)?;
    let token = HeaderValue::try_from(response.text()?.trim());
    let mut token = response.decoded(token.map_err(|_| "the token is not a valid header"))?;
    token.set_sensitive(true);
    Ok(IssuedToken { token, lifetime: Some(Duration::from_secs(MAX_TTL)) })
}

/// Explains the usual cause of a request without a response.
fn unreachable(error: Error) -> Error {
    match error.status() {
        Some(_) => error,
        None => {
            let fix = "on an EC2 instance, raise the hop limit of its metadata options to 2, or use the host network; elsewhere, set \
                what would be read from it";
            error.context("fix", fix)
        }
    }
}

/// A folder of the metadata service.
#[derive(Clone)]
struct At {
    endpoints: Endpoints,
    path: &'static str,
}

#[async_trait]
impl Authorize for At {
    async fn base(&self) -> Result<Option<String>> {
        let endpoint = self.endpoints.of(ApiName::Metadata)?;
        Ok(Some(format!("{}{}", endpoint.url.trim_end_matches('/'), self.path)))
    }

    async fn authorize(&self, _: &mut Request<Bytes>) -> Result<()> {
        Ok(())
    }
}

/// Adds the session token.
struct Session {
    at: At,
    tokens: TokenSource<HeaderValue>,
}

#[async_trait]
impl Authorize for Session {
    async fn base(&self) -> Result<Option<String>> {
        self.at.base().await
    }

    async fn authorize(&self, request: &mut Request<Bytes>) -> Result<()> {
        let token = self.tokens.get().await?;
        request.headers_mut().insert(TOKEN, HeaderValue::clone(&token));
        Ok(())
    }

    async fn renew(&self, rejection: &Rejection<'_>) -> Result<bool> {
        self.tokens.renew(|token| rejection.request.headers().get(TOKEN) == Some(token)).await?;
        Ok(true)
    }
}
