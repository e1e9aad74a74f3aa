//! What Keystone is asked, and what it answers. Pure.

use std::time::Duration;

use bowline_cloud::{Effect, Error, ErrorKind, Retry};
use bowline_config::Secret;
use bowline_http::{Api, ApiResponse, ErrorDecoder, ErrorResponse, Issued};
use bytes::Bytes;
use http::{HeaderValue, Method};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::catalog::{Catalog, Choice, Service};
use crate::api::{Named, record};
use crate::config::{Credential, Domain, Global, Scope, User};

/// Keystone, and the credentials that it is sent.
pub(super) struct Identity {
    api: Api,
    url: String,
    body: Secret,
    choice: Choice,
    /// A new token would end when the old one does.
    is_borrowed: bool,
}

/// What a successful authentication brought.
pub(crate) struct Access {
    token: HeaderValue,
    catalog: Catalog,
    choice: Choice,
    /// The project that the token is for; empty if it is for none.
    pub(crate) project_id: String,
    /// The roles that it has there, by name.
    pub(crate) roles: Vec<String>,
}

/// Reads Keystone's errors. Of a token or an application credential that it does not know, it says that it is not found.
struct Refused;

impl ErrorDecoder for Refused {
    fn decode(&self, refusal: &ErrorResponse<'_>) -> Error {
        let is_of_keystone = || refusal.json().is_some_and(|body: Value| body.pointer("/error/code").is_some());
        match refusal.status() {
            401 | 403 => refusal.to_error_of(ErrorKind::Unauthenticated),
            404 if is_of_keystone() => refusal.to_error_of(ErrorKind::Unauthenticated),
            _ => super::Faults.decode(refusal),
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
            api: api.base(&url).errors(Refused),
            url,
            body: Secret::from(body(&global.credential, &global.scope).to_string()),
            choice: Choice { interface: global.interface.clone(), region: global.region.clone() },
            is_borrowed: matches!(global.credential, Credential::Token(_)),
        }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Asks for a token.
    pub(super) async fn authenticate(&self) -> Result<Issued<Access>, Error> {
        let body = Bytes::copy_from_slice(self.body.reveal().as_bytes());
        let call = self.api.call("token_create", Method::POST, &["auth", "tokens"]).body("application/json", body);
        let issued = self.read(&call.effect(Effect::Read).send().await.map_err(of_keystone)?)?;
        tracing::debug!(url = self.url, "authenticated");
        Ok(issued)
    }

    fn read(&self, answer: &ApiResponse) -> Result<Issued<Access>, Error> {
        let token = answer.headers().get("X-Subject-Token").cloned();
        let mut token = answer.understood(token.ok_or("it has no X-Subject-Token"))?;
        token.set_sensitive(true);
        let Received { token: body } = answer.json()?;
        let lifetime = self.lifetime(&body.expires_at, &body.issued_at);
        let roles = body.roles.into_iter().map(|role| role.name).collect();
        let (catalog, choice, project_id) = (body.catalog, self.choice.clone(), body.project.id);
        Ok(Issued { token: Access { token, catalog, choice, project_id, roles }, lifetime })
    }

    /// Lifetime of the token by Keystone's clock alone: ours may be wrong. A token that does not say, or that we were given and
    /// cannot renew, is used until it is refused.
    fn lifetime(&self, expires_at: &str, issued_at: &str) -> Option<Duration> {
        let ends: jiff::Timestamp = expires_at.parse().ok().filter(|_| !self.is_borrowed)?;
        let begun: jiff::Timestamp = issued_at.parse().ok()?;
        Some(Duration::try_from(ends.duration_since(begun)).unwrap_or_default())
    }
}

/// Without the status, which says nothing of the service that the token was for.
fn of_keystone(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Unauthenticated => Error::new(error.kind(), error.operation(), error.message()),
        _ => error,
    }
}

impl Access {
    pub(super) fn token(&self) -> &HeaderValue {
        &self.token
    }

    /// Where the resources of a service are, with a `/` at the end.
    pub(crate) fn endpoint(&self, service: Service) -> Result<String, Error> {
        self.catalog
            .endpoint(service, &self.choice)
            .map_err(|missing| Error::new(ErrorKind::InvalidConfig, "find the endpoint", missing).retry(Retry::Backoff))
    }
}

/// The part of an answer that is of use.
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

/// The root of Identity v3 for an `auth-url` with or without a version.
fn base(auth_url: &str) -> String {
    let trimmed = auth_url.trim().trim_end_matches('/');
    let is_version = |segment: &str| {
        segment.strip_prefix('v').is_some_and(|rest| {
            rest.starts_with(|c: char| c.is_ascii_digit()) && rest.chars().all(|c| c.is_ascii_digit() || c == '.')
        })
    };
    let root = match trimmed.rsplit_once('/') {
        // The host may be called like a version.
        Some((root, last)) if is_version(last) && !root.ends_with(":/") => root.trim_end_matches('/'),
        _ => trimmed,
    };
    format!("{root}/v3/")
}

/// The body of an authentication: what is proven, and what for.
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

/// An application credential has its scope already, and Keystone refuses to be told another.
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
