//! What is proven to Keystone, and what for: decided from the texts of `[Global]` alone.

use super::fields::Fields;
use super::{Credential, Domain, Scope, User};
use bowline_config::Secret;

/// What is wrong with a key, and what would be right.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    pub(super) key: &'static str,
    pub(super) message: &'static str,
    pub(super) hint: &'static str,
}

type Decision<T> = Result<T, Mistake>;

fn mistake<T>(key: &'static str, message: &'static str, hint: &'static str) -> Decision<T> {
    Err(Mistake { key, message, hint })
}

const PROJECT: [&str; 2] = ["tenant-id", "tenant-name"];
const APPLICATION_CREDENTIAL: [&str; 2] = ["application-credential-id", "application-credential-name"];

/// Credential and scope, or all that is wrong with them.
pub(super) fn decide(fields: &Fields) -> Result<(Credential, Scope), Vec<Mistake>> {
    match (credential(fields), scope(fields)) {
        (Ok(Credential::Token(_)), Ok(Scope::Implied)) => Err(vec![Mistake {
            key: "token",
            message: "a token needs a project or a domain that it is for",
            hint: "set tenant-id, or tenant-name with tenant-domain-name, or domain-id",
        }]),
        (Ok(credential), Ok(scope)) => Ok((credential, scope)),
        (credential, scope) => Err(credential.err().into_iter().chain(scope.err()).collect()),
    }
}

/// What is set and of no use, each with the reason.
pub(super) fn idle(fields: &Fields) -> Vec<(&'static str, &'static str)> {
    let beaten = fields.has_any(&["token"]) || password(fields).is_some();
    let application = APPLICATION_CREDENTIAL.iter().find(|key| fields.has_any(&[key])).filter(|_| beaten);
    let application = application.map(|key| {
        let reason = match fields.has_any(&["token"]) {
            true => "is not used, because token is set",
            false => "is not used, because password is set; and because of it, no project is sent with the password",
        };
        (*key, reason)
    });
    let trustee = ["trustee-id", "trustee-password"].into_iter().find(|key| fields.has_any(&[key]));
    let trustee = trustee.filter(|_| !fields.has_any(&["trust-id"]));
    application.into_iter().chain(trustee.map(|key| (key, "is not used without trust-id"))).collect()
}

// ---- what is proven

// upstream: a password wins over an application credential.
fn credential(fields: &Fields) -> Decision<Credential> {
    if let Some(token) = fields.secret("token") {
        return Ok(Credential::Token(token));
    }
    if let Some(password) = password(fields) {
        return Ok(Credential::Password { user: user(fields, "password")?, password });
    }
    let secret = |key| match fields.secret("application-credential-secret") {
        Some(secret) => Ok(secret),
        None => mistake(key, "its secret is missing", "set application-credential-secret"),
    };
    if let Some(id) = fields.get("application-credential-id") {
        return Ok(Credential::ApplicationCredentialId {
            id: id.to_owned(),
            secret: secret("application-credential-id")?,
        });
    }
    if let Some(name) = fields.get("application-credential-name") {
        let key = "application-credential-name";
        let (name, secret) = (name.to_owned(), secret(key)?);
        return Ok(Credential::ApplicationCredentialName { name, user: user(fields, key)?, secret });
    }
    mistake(
        "password",
        "there is no usable credential",
        "set username or user-id and password, or application-credential-id and application-credential-secret, or token",
    )
}

/// The trustee's, if there is a trust and it has one.
fn password(fields: &Fields) -> Option<Secret> {
    trustee(fields, "trustee-password").or_else(|| fields.get("password")).map(Secret::from)
}

fn trustee<'a>(fields: &'a Fields, key: &str) -> Option<&'a str> {
    fields.get(key).filter(|_| fields.has_any(&["trust-id"]))
}

/// Whose password or application credential it is.
fn user(fields: &Fields, of: &'static str) -> Decision<User> {
    if let Some(id) = trustee(fields, "trustee-id") {
        return Ok(User::Id(id.to_owned()));
    }
    match (fields.get("user-id"), fields.get("username")) {
        (Some(_), Some(_)) => mistake("username", "is set beside user-id", "keep one of them"),
        // Where upstream refuses a domain beside an ID: it says nothing that the ID does not say.
        (Some(id), None) => Ok(User::Id(id.to_owned())),
        (None, Some(name)) => match user_domain(fields) {
            Some(domain) => Ok(User::Name(name.to_owned(), domain)),
            None => mistake("username", "its domain is missing", "set user-domain-name or user-domain-id"),
        },
        (None, None) => mistake(of, "its user is missing", "set username and user-domain-name, or user-id"),
    }
}

/// `domain-*` is the user's only where it is not what the token is for.
fn user_domain(fields: &Fields) -> Option<Domain> {
    let fallback = || domain(fields, ["domain-id", "domain-name"]);
    let is_default = fields.has_any(&PROJECT) || fields.has_any(&APPLICATION_CREDENTIAL);
    domain(fields, ["user-domain-id", "user-domain-name"]).or_else(|| is_default.then(fallback).flatten())
}

/// By ID, or else by name.
fn domain(fields: &Fields, [id, name]: [&str; 2]) -> Option<Domain> {
    let by_id = fields.get(id).map(|id| Domain::Id(id.to_owned()));
    by_id.or_else(|| fields.get(name).map(|name| Domain::Name(name.to_owned())))
}

// ---- what for

fn scope(fields: &Fields) -> Decision<Scope> {
    let has_token = fields.has_any(&["token"]);
    let has_password = has_token || password(fields).is_some();
    match fields.get("trust-id") {
        Some(trust) if has_password => return Ok(Scope::Trust(trust.to_owned())),
        _ => {}
    }
    // upstream: Keystone refuses a scope beside an application credential, so none is sent, not even with a password.
    if fields.has_any(&APPLICATION_CREDENTIAL) && !has_token {
        return Ok(Scope::Implied);
    }
    if let Some(id) = fields.get("tenant-id") {
        return Ok(Scope::ProjectId(id.to_owned()));
    }
    let of_both = || domain(fields, ["domain-id", "domain-name"]);
    let Some(name) = fields.get("tenant-name") else {
        return Ok(of_both().map_or(Scope::Implied, Scope::Domain));
    };
    match domain(fields, ["tenant-domain-id", "tenant-domain-name"]).or_else(of_both) {
        Some(domain) => Ok(Scope::ProjectName(name.to_owned(), domain)),
        None => {
            mistake("tenant-name", "its domain is missing", "set tenant-domain-name or domain-name, or use tenant-id")
        }
    }
}
