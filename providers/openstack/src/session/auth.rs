//! Keystone authentication: requests and responses.

use std::time::Duration;

use bowline_cloud::{Effect, Error, ErrorKind, Retry};
use bowline_config::Secret;
use bowline_http::{Api, ApiResponse, ErrorDecoder, ErrorResponse, IssuedToken};
use bytes::Bytes;
use http::{HeaderValue, Method};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::catalog::{Catalog, Choice, Service};
use crate::api::{Named, record};
use crate::config::{Credential, Domain, Global, Scope, User};

/// Keystone and the credentials that are sent to it.
pub(super) struct Identity {
    api: Api,
    url: String,
    body: Secret,
    choice: Choice,
    /// Authenticates with an existing token: a new one would expire together with it.
    is_from_token: bool,
}

/// Result of an authentication.
pub(crate) struct Access {
    token: HeaderValue,
    catalog: Catalog,
    choice: Choice,
    /// Project of the token; empty if it has none.
    pub(crate) project_id: String,
    /// Names of its roles.
    pub(crate) roles: Vec<String>,
}

/// Decodes Keystone's errors. It answers 404 for an unknown token or application credential.
struct KeystoneErrors;

impl ErrorDecoder for KeystoneErrors {
    fn decode(&self, response: &ErrorResponse<'_>) -> Error {
        let is_of_keystone = || response.json().is_some_and(|body: Value| body.pointer("/error/code").is_some());
        match response.status() {
            401 | 403 => response.to_error_of(ErrorKind::Unauthenticated),
            404 if is_of_keystone() => response.to_error_of(ErrorKind::Unauthenticated),
            _ => super::Faults.decode(response),
        }
    }

    fn tls_advice(&self) -> &'static str {
        super::Faults.tls_advice()
    }
}

impl Identity {
    pub(super) fn new(api: Api, global: &Global) -> Identity {
        let url = base(&global.auth_url);
        Identity {
            api: api.base(&url).errors(KeystoneErrors),
            url,
            body: Secret::from(body(&global.credential, &global.scope).to_string()),
            choice: Choice { interface: global.interface.clone(), region: global.region.clone() },
            is_from_token: matches!(global.credential, Credential::Token(_)),
        }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Requests a token.
    pub(super) async fn authenticate(&self) -> Result<IssuedToken<Access>, Error> {
        let body = Bytes::copy_from_slice(self.body.reveal().as_bytes());
        let call = self.api.call("token_create", Method::POST, &["auth", "tokens"]).body("application/json", body);
        let issued = self.read(&call.effect(Effect::Read).send().await.map_err(without_status)?)?;
        tracing::debug!(url = self.url, "authenticated");
        Ok(issued)
    }

    fn read(&self, answer: &ApiResponse) -> Result<IssuedToken<Access>, Error> {
        let token = answer.headers().get("X-Subject-Token").cloned();
        let mut token = answer.decoded(token.ok_or("it has no X-Subject-Token header"))?;
        token.set_sensitive(true);
        let Received { token: body } = answer.json()?;
        let lifetime = self.lifetime(&body.expires_at, &body.issued_at);
        let roles = body.roles.into_iter().map(|role| role.name).collect();
        let (catalog, choice, project_id) = (body.catalog, self.choice.clone(), body.project.id);
        Ok(IssuedToken { token: Access { token, catalog, choice, project_id, roles }, lifetime })
    }

    /// Returns the lifetime of the token by Keystone's clock alone: the local one may be wrong. A token without times, or one that
    /// cannot be renewed, is used until it is rejected.
    fn lifetime(&self, expires_at: &str, issued_at: &str) -> Option<Duration> {
        let ends: jiff::Timestamp = expires_at.parse().ok().filter(|_| !self.is_from_token)?;
        let issued: jiff::Timestamp = issued_at.parse().ok()?;
        Some(Duration::try_from(ends.duration_since(issued)).unwrap_or_default())
    }
}

/// Removes the status, which is not about the service that was called.
fn without_status(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Unauthenticated => Error::new(error.kind(), error.operation(), error.message()),
        _ => error,
    }
}

impl Access {
    pub(super) fn token(&self) -> &HeaderValue {
        &self.token
    }

    /// Returns the base URL of a service, with a trailing `/`.
    pub(crate) fn endpoint(&self, service: Service) -> Result<String, Error> {
        self.catalog
            .endpoint(service, &self.choice)
            .map_err(|missing| Error::new(ErrorKind::InvalidConfig, "find the endpoint", missing).retry(Retry::Backoff))
    }
}

/// Response body.
#[derive(Deserialize)]
struct Received {
    token: Body,
}

record! {
    /// A token.
    Body {
        expires_at: String,
        issued_at: String,
        catalog: Catalog,
        project: Named,
        roles: Vec<Role>,
    }

    /// A role of the token.
    Role { name: String, }
}

/// Returns the root of Identity v3 for an `auth-url` with or without a version.
fn base(auth_url: &str) -> String {
    let trimmed = auth_url.trim().trim_end_matches('/');
    let is_version = |segment: &str| {
        segment.strip_prefix('v').is_some_and(|rest| {
            rest.starts_with(|c: char| c.is_ascii_digit()) && rest.chars().all(|c| c.is_ascii_digit() || c == '.')
        })
    };
    let root = match trimmed.rsplit_once('/') {
        // The host may have the form of a version.
        Some((root, last)) if is_version(last) && !root.ends_with(":/") => root.trim_end_matches('/'),
        _ => trimmed,
    };
    format!("{root}/v3/")
}

/// Returns the request body: identity and scope.
fn body(credential: &Credential, scope: &Scope) -> Value {
    let mut auth = Map::new();
    auth.insert("identity".to_owned(), identity(credential));
    if let Some(scope) = scope_of(credential, scope) {
        auth.insert("scope".to_owned(), scope);
    }
    json!({ "auth": auth })
}

fn identity(credential: &Credential) -> Value {
    match credential {
        Credential::Token(token) => json!({"methods": ["token"], "token": {"id": token.reveal()}}),
        Credential::Password { user: who, password } => {
            let mut user = user(who);
            user.insert("password".to_owned(), password.reveal().into());
            json!({"methods": ["password"], "password": {"user": user}})
        }
        Credential::ApplicationCredentialId { id, secret } => {
            let proof = json!({"id": id, "secret": secret.reveal()});
            json!({"methods": ["application_credential"], "application_credential": proof})
        }
        Credential::ApplicationCredentialName { name, user: who, secret } => {
            let proof = json!({"name": name, "user": user(who), "secret": secret.reveal()});
            json!({"methods": ["application_credential"], "application_credential": proof})
        }
    }
}

fn user(user: &User) -> Map<String, Value> {
    match user {
        User::Id(id) => Map::from_iter([("id".to_owned(), id.clone().into())]),
        User::Name(name, domain_of) => {
            Map::from_iter([("name".to_owned(), name.clone().into()), ("domain".to_owned(), domain(domain_of))])
        }
    }
}

fn domain(domain: &Domain) -> Value {
    match domain {
        Domain::Id(id) => json!({"id": id}),
        Domain::Name(name) => json!({"name": name}),
    }
}

/// An application credential implies its scope, and Keystone rejects another one.
fn scope_of(credential: &Credential, scope: &Scope) -> Option<Value> {
    let is_scoped =
        matches!(credential, Credential::ApplicationCredentialId { .. } | Credential::ApplicationCredentialName { .. });
    match scope {
        _ if is_scoped => None,
        Scope::Implied => None,
        Scope::Trust(id) => Some(json!({"OS-TRUST:trust": {"id": id}})),
        Scope::ProjectId(id) => Some(json!({"project": {"id": id}})),
        Scope::ProjectName(name, in_domain) => Some(json!({"project": {"name": name, "domain": domain(in_domain)}})),
        Scope::Domain(of) => Some(json!({"domain": domain(of)})),
    }
}
