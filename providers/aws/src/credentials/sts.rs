//! STS 2011-06-15: roles, and the identity of the caller.

use bowline_cloud::{Error, ErrorKind, Result};
use http::{HeaderName, HeaderValue};
use jiff::Timestamp;
use serde::Deserialize;

use super::{Issued, Keys};
use crate::api::{Query, Service};

/// Name in the call layer, and version of the API.
pub(crate) const API: (&str, &str) = ("sts", "2011-06-15");

/// Name of a session, which CloudTrail records.
pub(super) const SESSION: &str = "aws-cloud-provider";

/// Client of STS.
#[derive(Clone)]
pub(crate) struct Sts(pub(crate) Service);

/// A role to assume.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Role {
    pub(super) arn: String,
    /// Name of the session; empty for [`SESSION`].
    pub(super) session: String,
    pub(super) external_id: Option<String>,
    /// Duration of the session in seconds, as written.
    pub(super) duration: Option<String>,
    /// Further headers of the call.
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
}

/// Identity of the caller.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct CallerIdentity {
    pub(crate) account: String,
    pub(crate) arn: String,
}

#[derive(Deserialize)]
struct GetCallerIdentityResponse {
    #[serde(rename = "GetCallerIdentityResult")]
    result: CallerIdentity,
}

#[derive(Deserialize)]
struct AssumeRoleResponse {
    #[serde(rename = "AssumeRoleResult", alias = "AssumeRoleWithWebIdentityResult")]
    result: AssumeRoleResult,
}

#[derive(Deserialize)]
struct AssumeRoleResult {
    #[serde(rename = "Credentials")]
    credentials: SessionKeys,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SessionKeys {
    access_key_id: String,
    secret_access_key: String,
    session_token: String,
    expiration: String,
}

impl Sts {
    /// Assumes a role with the credentials of the client.
    pub(super) async fn assume_role(&self, role: &Role, now: Timestamp) -> Result<Issued> {
        let service = role
            .headers
            .iter()
            .fold(self.0.clone(), |service, (name, value)| service.header(name.clone(), value.clone()));
        let query = Query::read("AssumeRole").with_some("ExternalId", role.external_id.as_ref());
        let query = query.with_some("DurationSeconds", role.duration.as_ref());
        let assumed: Result<AssumeRoleResponse> = service.send(with_role(query, role)).await;
        issued(assumed, &role.arn, now)
    }

    /// Assumes a role with a web identity token. The request is not signed.
    pub(super) async fn assume_role_with_web_identity(
        &self,
        role: &Role,
        token: &str,
        now: Timestamp,
    ) -> Result<Issued> {
        let query = Query::read("AssumeRoleWithWebIdentity").with("WebIdentityToken", token);
        issued(self.0.send(with_role(query, role)).await, &role.arn, now)
    }

    /// Returns the identity of the caller, which needs no permission.
    pub(crate) async fn caller_identity(&self) -> Result<CallerIdentity> {
        let response: GetCallerIdentityResponse = self.0.send(Query::read("GetCallerIdentity")).await?;
        Ok(response.result)
    }
}

fn with_role(query: Query, role: &Role) -> Query {
    let session = if role.session.is_empty() { SESSION } else { &role.session };
    query.with("RoleArn", &role.arn).with("RoleSessionName", session)
}

fn issued(response: Result<AssumeRoleResponse>, arn: &str, now: Timestamp) -> Result<Issued> {
    let explained = |error: Error| match error.kind() {
        ErrorKind::PermissionDenied => {
            error.context("fix", "check the trust policy of the role, and who may assume it")
        }
        _ => error,
    };
    let keys = response.map_err(|error| explained(error).context("role", arn))?.result.credentials;
    let expiry = keys.expiration.parse().ok();
    let session_token = Some(keys.session_token.into());
    let (access_key_id, secret_access_key) = (keys.access_key_id, keys.secret_access_key.into());
    let keys = bowline_http::sign::aws::Credentials { access_key_id, secret_access_key, session_token };
    Ok(Keys::new(keys, format!("the role {arn}")).issued(expiry, now))
}
