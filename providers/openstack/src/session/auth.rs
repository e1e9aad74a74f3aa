//! What Keystone is asked, and what it answers. Pure.

use std::time::Duration;

use bowline_config::Secret;
use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::CallError;
use super::catalog::{Catalog, Choice, Service};
use crate::api::nullable;
use crate::config::{Credential, Domain, Global, Scope, User};

/// How long before its end a token is renewed, at most; a tenth of its life if that is less.
const AHEAD: Duration = Duration::from_secs(120);

/// Who we are, and where that is asked.
pub(super) struct Identity {
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
    life: Option<Life>,
    /// The project that the token is for; empty if it is for none.
    pub(crate) project_id: String,
    /// The roles that it has there, by name.
    pub(crate) roles: Vec<String>,
}

struct Life {
    renew_at: Option<Instant>,
    ends_at: Instant,
}

impl Identity {
    pub(super) fn new(global: &Global) -> Identity {
        Identity {
            url: format!("{}auth/tokens", base(&global.auth_url)),
            body: Secret::from(body(&global.credential, &global.scope).to_string()),
            choice: Choice { interface: global.interface.clone(), region: global.region.clone() },
            is_borrowed: matches!(global.credential, Credential::Token(_)),
        }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn body(&self) -> Bytes {
        Bytes::copy_from_slice(self.body.reveal().as_bytes())
    }

    /// That there is no token, and why.
    pub(super) fn refused(&self, why: &str) -> CallError {
        CallError::Refused(format!("POST {}: {why}", self.url))
    }

    /// What is in Keystone's answer, which has come now.
    pub(super) fn read(&self, answer: &Response<Bytes>, now: Instant) -> Result<Access, CallError> {
        let status = answer.status();
        if !status.is_success() {
            let error = CallError::answered(&Method::POST, &self.url, answer);
            // Of a token or an application credential that it does not know, Keystone says that it is not found.
            let is_unknown = status == StatusCode::NOT_FOUND && is_of_keystone(answer.body());
            let is_refusal = is_unknown || matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
            return Err(if is_refusal { CallError::Refused(error.to_string()) } else { error });
        }
        let garbled = |why: &dyn std::fmt::Display| CallError::garbled(&Method::POST, &self.url, why);
        let token = answer.headers().get("X-Subject-Token").cloned();
        let mut token = token.ok_or_else(|| garbled(&"it has no X-Subject-Token"))?;
        token.set_sensitive(true);
        let body: Answer = serde_json::from_slice(answer.body()).map_err(|error| garbled(&error))?;
        let Issued { expires_at, issued_at, catalog, project, roles } = body.token;
        Ok(Access {
            token,
            catalog,
            choice: self.choice.clone(),
            life: self.life(&expires_at, &issued_at, now),
            project_id: project.id,
            roles: roles.into_iter().map(|role| role.name).collect(),
        })
    }

    /// How long the token lives, by Keystone's clock alone: ours may be wrong. One that does not say serves until it is refused.
    fn life(&self, expires_at: &str, issued_at: &str, now: Instant) -> Option<Life> {
        let ends: jiff::Timestamp = expires_at.parse().ok()?;
        let begun: jiff::Timestamp = issued_at.parse().ok()?;
        let life = Duration::try_from(ends.duration_since(begun)).unwrap_or_default();
        let ahead = AHEAD.min(life / 10);
        // A token that we were given cannot be made to last longer; it serves until it is refused.
        let renew_at = (!self.is_borrowed).then(|| now + (life - ahead));
        Some(Life { renew_at, ends_at: now + life })
    }
}

impl Access {
    pub(super) fn token(&self) -> &HeaderValue {
        &self.token
    }

    /// It should be renewed.
    pub(super) fn ends_soon(&self, now: Instant) -> bool {
        self.life.as_ref().and_then(|life| life.renew_at).is_some_and(|at| now >= at)
    }

    /// It is of no use any more.
    pub(super) fn has_ended(&self, now: Instant) -> bool {
        self.life.as_ref().is_some_and(|life| life.renew_at.is_some() && now >= life.ends_at)
    }

    /// Where the resources of a service are, with a `/` at the end.
    pub(crate) fn endpoint(&self, service: Service) -> Result<String, CallError> {
        self.catalog.endpoint(service, &self.choice).map_err(CallError::NoEndpoint)
    }
}

/// The part of an answer that is of use.
#[derive(Deserialize)]
struct Answer {
    token: Issued,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Issued {
    #[serde(deserialize_with = "nullable")]
    expires_at: String,
    #[serde(deserialize_with = "nullable")]
    issued_at: String,
    #[serde(deserialize_with = "nullable")]
    catalog: Catalog,
    #[serde(deserialize_with = "nullable")]
    project: crate::api::Named,
    #[serde(deserialize_with = "nullable")]
    roles: Vec<Role>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Role {
    #[serde(deserialize_with = "nullable")]
    name: String,
}

/// Whether Keystone itself says so, and not somebody who stands where it was looked for.
fn is_of_keystone(body: &[u8]) -> bool {
    serde_json::from_slice::<Value>(body).is_ok_and(|body| body.pointer("/error/code").is_some())
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
