//! Selects credential and scope for Keystone from the texts of `[Global]`.

use super::declaration::GlobalKeys as K;
use super::fields::Fields;
use super::{Credential, Domain, Scope, User};
use bowline_config::Secret;
use bowline_config::table::Key;

/// An error about a key, with a hint.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CredentialError {
    pub(super) key: Key,
    pub(super) message: &'static str,
    pub(super) hint: &'static str,
}

type Decision<T> = Result<T, Box<CredentialError>>;

fn error<T>(key: Key, message: &'static str, hint: &'static str) -> Decision<T> {
    Err(Box::new(CredentialError { key, message, hint }))
}

const PROJECT: [Key; 2] = [K::tenant_id, K::tenant_name];
const APPLICATION_CREDENTIAL: [Key; 2] = [K::application_credential_id, K::application_credential_name];

/// Returns credential and scope, or all errors.
pub(super) fn decide(fields: &Fields) -> Result<(Credential, Scope), Vec<CredentialError>> {
    match (credential(fields), scope(fields)) {
        (Ok(Credential::Token(_)), Ok(Scope::Implied)) => Err(vec![CredentialError {
            key: K::token,
            message: "a token needs a project or a domain that it is for",
            hint: "set tenant-id, or tenant-name with tenant-domain-name, or domain-id",
        }]),
        (Ok(credential), Ok(scope)) => Ok((credential, scope)),
        (credential, scope) => Err(credential.err().into_iter().chain(scope.err()).map(|error| *error).collect()),
    }
}

/// Returns keys that are set without effect, each with the reason.
pub(super) fn unused(fields: &Fields) -> Vec<(Key, &'static str)> {
    let beaten = fields.has_any(&[K::token]) || password(fields).is_some();
    let application = APPLICATION_CREDENTIAL.iter().find(|key| fields.has_any(&[**key])).filter(|_| beaten);
    let application = application.map(|key| {
        let reason = match fields.has_any(&[K::token]) {
            true => "is not used, because token is set",
            false => "is not used, because password is set; and because of it, no project is sent with the password",
        };
        (*key, reason)
    });
    let trustee = [K::trustee_id, K::trustee_password].into_iter().find(|key| fields.has_any(&[*key]));
    let trustee = trustee.filter(|_| !fields.has_any(&[K::trust_id]));
    application.into_iter().chain(trustee.map(|key| (key, "is not used without trust-id"))).collect()
}

// ---- credential

// upstream: a password wins over an application credential.
fn credential(fields: &Fields) -> Decision<Credential> {
    if let Some(token) = fields.secret(K::token) {
        return Ok(Credential::Token(token));
    }
    if let Some(password) = password(fields) {
        return Ok(Credential::Password { user: user(fields, K::password)?, password });
    }
    let secret = |key| match fields.secret(K::application_credential_secret) {
        Some(secret) => Ok(secret),
        None => error(key, "its secret is missing", "set application-credential-secret"),
    };
    if let Some(id) = fields.get(K::application_credential_id) {
        return Ok(Credential::ApplicationCredentialId {
            id: id.to_owned(),
            secret: secret(K::application_credential_id)?,
        });
    }
    if let Some(name) = fields.get(K::application_credential_name) {
        let key = K::application_credential_name;
        let (name, secret) = (name.to_owned(), secret(key)?);
        return Ok(Credential::ApplicationCredentialName { name, user: user(fields, key)?, secret });
    }
    error(
        K::password,
        "there is no usable credential",
        "set username or user-id and password, or application-credential-id and application-credential-secret, or token",
    )
}

/// Returns the password of the trustee, if there is a trust and it has one.
fn password(fields: &Fields) -> Option<Secret> {
    trustee(fields, K::trustee_password).or_else(|| fields.get(K::password)).map(Secret::from)
}

fn trustee(fields: &Fields, key: Key) -> Option<&str> {
    fields.get(key).filter(|_| fields.has_any(&[K::trust_id]))
}

/// Returns the user of a password or application credential.
fn user(fields: &Fields, of: Key) -> Decision<User> {
    if let Some(id) = trustee(fields, K::trustee_id) {
        return Ok(User::Id(id.to_owned()));
    }
    match (fields.get(K::user_id), fields.get(K::username)) {
        (Some(_), Some(_)) => error(K::username, "is set beside user-id", "keep one of them"),
        // Upstream rejects a domain beside a user ID; here it is ignored, because the ID implies it.
        (Some(id), None) => Ok(User::Id(id.to_owned())),
        (None, Some(name)) => match user_domain(fields) {
            Some(domain) => Ok(User::Name(name.to_owned(), domain)),
            None => error(K::username, "its domain is missing", "set user-domain-name or user-domain-id"),
        },
        (None, None) => error(of, "its user is missing", "set username and user-domain-name, or user-id"),
    }
}

/// Returns the domain of the user. `domain-*` counts only if it is not the scope.
fn user_domain(fields: &Fields) -> Option<Domain> {
    let fallback = || domain(fields, [K::domain_id, K::domain_name]);
    let is_default = fields.has_any(&PROJECT) || fields.has_any(&APPLICATION_CREDENTIAL);
    domain(fields, [K::user_domain_id, K::user_domain_name]).or_else(|| is_default.then(fallback).flatten())
}

/// Returns a domain by ID, or else by name.
fn domain(fields: &Fields, [id, name]: [Key; 2]) -> Option<Domain> {
    let by_id = fields.get(id).map(|id| Domain::Id(id.to_owned()));
    by_id.or_else(|| fields.get(name).map(|name| Domain::Name(name.to_owned())))
}

// ---- scope

fn scope(fields: &Fields) -> Decision<Scope> {
    let has_token = fields.has_any(&[K::token]);
    let has_password = has_token || password(fields).is_some();
    match fields.get(K::trust_id) {
        Some(trust) if has_password => return Ok(Scope::Trust(trust.to_owned())),
        _ => {}
    }
    // upstream: no scope is sent with an application credential, because Keystone rejects it; not even with a password beside it.
    if fields.has_any(&APPLICATION_CREDENTIAL) && !has_token {
        return Ok(Scope::Implied);
    }
    if let Some(id) = fields.get(K::tenant_id) {
        return Ok(Scope::ProjectId(id.to_owned()));
    }
    let of_both = || domain(fields, [K::domain_id, K::domain_name]);
    let Some(name) = fields.get(K::tenant_name) else {
        return Ok(of_both().map_or(Scope::Implied, Scope::Domain));
    };
    match domain(fields, [K::tenant_domain_id, K::tenant_domain_name]).or_else(of_both) {
        Some(domain) => Ok(Scope::ProjectName(name.to_owned(), domain)),
        None => {
            error(K::tenant_name, "its domain is missing", "set tenant-domain-name or domain-name, or use tenant-id")
        }
    }
}
