//! Authentication of token requests, and the scope of tokens.

use serde_json::{Value, json};

use super::{Identity, fault, malformed, unauthorized};
use crate::records::Record;
use crate::wire::{Call, Reply};

/// A Keystone domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    /// ID.
    pub id: String,
    /// Name.
    pub name: String,
}

impl Default for Domain {
    fn default() -> Domain {
        Domain { id: "default".to_owned(), name: "Default".to_owned() }
    }
}

/// A user.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct User {
    /// ID.
    pub id: String,
    /// Name.
    pub name: String,
    /// Domain.
    pub domain: Domain,
    /// Password.
    pub password: String,
    /// ID of the project of tokens that are requested without a scope.
    pub default_project: Option<String>,
}

/// A project.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Project {
    /// ID.
    pub id: String,
    /// Name.
    pub name: String,
    /// Domain.
    pub domain: Domain,
}

/// An application credential: grants a user's roles in a project without the user's password.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ApplicationCredential {
    /// ID.
    pub id: String,
    /// Name, unique per user.
    pub name: String,
    /// Secret.
    pub secret: String,
    /// ID of the user.
    pub user: String,
    /// ID of the project.
    pub project: String,
}

/// A trust: delegates one user's roles in a project to another user.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trust {
    /// ID.
    pub id: String,
    /// ID of the user who receives the roles.
    pub trustee: String,
    /// ID of the user who delegates the roles.
    pub trustor: String,
    /// ID of the project.
    pub project: String,
}

/// An authenticated user and the methods used.
pub(super) struct Caller {
    pub(super) user: User,
    pub(super) methods: Vec<String>,
    pub(super) credential: Option<ApplicationCredential>,
    pub(super) delegated: bool,
}

/// Scope of a token.
pub(super) enum Scope {
    Unscoped,
    Project(Project),
    Domain(Domain),
    Trust(Trust, Project),
}

/// Reason to reject a token request.
pub(super) enum Error {
    Malformed(String),
    /// The request violates the schema.
    Invalid(String),
    Unauthorized,
    /// 401 with a specific message.
    Explained(String),
    /// The application credential does not exist.
    Unknown(String),
    Delegated,
    UnknownToken,
}

impl Error {
    pub(super) fn reply(self, call: &Call) -> Reply {
        match self {
            Error::Malformed(what) => malformed(&what),
            Error::Invalid(what) => fault(400, "Bad Request", &what),
            Error::Unauthorized => unauthorized(call),
            Error::Explained(message) => {
                let error = json!({"code": 401, "identity": {}, "message": message, "title": "Unauthorized"});
                Reply::json(401, json!({"error": error}))
            }
            Error::Unknown(id) => fault(404, "Not Found", &format!("Could not find Application Credential: {id}.")),
            Error::Delegated => {
                let message = "You are not authorized to perform the requested action: Using a delegated token to create \
                               another token is not allowed..";
                fault(403, "Forbidden", message)
            }
            Error::UnknownToken => fault(404, "Not Found", "Could not recognize Fernet token"),
        }
    }
}

impl Caller {
    pub(super) fn read(known: &Identity, request: &Record) -> Result<Caller, Error> {
        let missing = |what: &str| Error::Invalid(format!("{what} is a required property"));
        let identity = request.get("identity").ok_or_else(|| missing("'identity'"))?;
        let methods = identity.get("methods").and_then(Value::as_array).ok_or_else(|| missing("'methods'"))?;
        let methods: Vec<String> = methods.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        let method = methods.first().ok_or(Error::Unauthorized)?;
        let given = identity.get(method.as_str());
        let given = given.ok_or_else(|| Error::Malformed(format!("Expecting to find {method} in identity.")))?;
        let new = |user, credential, delegated| Caller { user, methods: methods.clone(), credential, delegated };
        match method.as_str() {
            "password" => by_password(known, given).map(|user| new(user, None, false)),
            "token" => {
                let (user, earlier) = by_token(known, given)?;
                let methods = methods.iter().cloned().chain(earlier).collect();
                Ok(Caller { methods, ..new(user, None, false) })
            }
            "application_credential" => {
                let (user, credential) = by_application_credential(known, given)?;
                Ok(new(user, Some(credential), true))
            }
            _ => Err(Error::Unauthorized),
        }
    }
}

fn by_password(known: &Identity, given: &Value) -> Result<User, Error> {
    let user = given.get("user").ok_or_else(|| Error::Malformed("Expecting to find user in password.".to_owned()))?;
    let found = find_user(known, user)?.ok_or(Error::Unauthorized)?;
    if text(user, "password") == found.password { Ok(found) } else { Err(Error::Unauthorized) }
}

/// Finds a user by ID, or by name and domain. A name alone is ambiguous and rejected.
fn find_user(known: &Identity, given: &Value) -> Result<Option<User>, Error> {
    let (id, name) = (text(given, "id"), text(given, "name"));
    if !id.is_empty() {
        return Ok(known.users.iter().find(|user| user.id == id).cloned());
    }
    let domain = given.get("domain");
    let domain = domain.ok_or_else(|| Error::Malformed("Expecting to find domain in user.".to_owned()))?;
    Ok(known.users.iter().find(|user| user.name == name && is_domain(&user.domain, domain)).cloned())
}

/// Returns the user of a token and its authentication methods.
fn by_token(known: &Identity, given: &Value) -> Result<(User, Vec<String>), Error> {
    let token = known.tokens.get(text(given, "id")).ok_or(Error::UnknownToken)?;
    if token.expires <= tokio::time::Instant::now() {
        return Err(Error::UnknownToken);
    }
    if token.delegated {
        return Err(Error::Delegated);
    }
    let user = known.users.iter().find(|user| user.id == token.user).cloned().ok_or(Error::Unauthorized)?;
    Ok((user, token.methods.clone()))
}

fn by_application_credential(known: &Identity, given: &Value) -> Result<(User, ApplicationCredential), Error> {
    let (id, name) = (text(given, "id"), text(given, "name"));
    let credential = if id.is_empty() {
        let owner = given.get("user").map(|user| find_user(known, user)).transpose()?.flatten();
        let owner = owner.ok_or_else(|| Error::Malformed("Expecting to find user.".to_owned()))?;
        known.application_credentials.iter().find(|one| one.name == name && one.user == owner.id)
    } else {
        known.application_credentials.iter().find(|one| one.id == id)
    };
    let unknown = || if id.is_empty() { Error::Unauthorized } else { Error::Unknown(id.to_owned()) };
    let credential = credential.ok_or_else(unknown)?;
    if credential.secret != text(given, "secret") {
        return Err(Error::Unauthorized);
    }
    let user = known.users.iter().find(|user| user.id == credential.user).ok_or(Error::Unauthorized)?;
    Ok((user.clone(), credential.clone()))
}

impl Scope {
    pub(super) fn read(known: &Identity, request: &Record, caller: &Caller) -> Result<Scope, Error> {
        let scope = request.get("scope");
        if let Some(credential) = &caller.credential {
            if scope.is_some() {
                let why =
                    "Error authenticating with application credential: Application credentials cannot request a scope.";
                return Err(Error::Explained(why.to_owned()));
            }
            return project(known, &credential.project).map(Scope::Project);
        }
        let Some(scope) = scope else {
            let default = caller.user.default_project.as_deref();
            return default.map_or(Ok(Scope::Unscoped), |default| project(known, default).map(Scope::Project));
        };
        if let Some(trust) = scope.get("OS-TRUST:trust") {
            return trust_scope(known, text(trust, "id"), &caller.user);
        }
        if let Some(project) = scope.get("project") {
            return find_project(known, project).map(Scope::Project);
        }
        let domain = scope.get("domain").ok_or_else(|| Error::Malformed("Expecting to find a scope.".to_owned()))?;
        let found = known.projects.iter().map(|project| &project.domain).find(|found| is_domain(found, domain));
        found.cloned().map(Scope::Domain).ok_or(Error::Unauthorized)
    }
}

fn trust_scope(known: &Identity, id: &str, user: &User) -> Result<Scope, Error> {
    let trust = known.trusts.iter().find(|one| one.id == id && one.trustee == user.id).ok_or(Error::Unauthorized)?;
    Ok(Scope::Trust(trust.clone(), project(known, &trust.project)?))
}

fn find_project(known: &Identity, given: &Value) -> Result<Project, Error> {
    let (id, name) = (text(given, "id"), text(given, "name"));
    if !id.is_empty() {
        return project(known, id);
    }
    let domain = given.get("domain");
    let domain = domain.ok_or_else(|| Error::Malformed("Expecting to find domain in project.".to_owned()))?;
    let found = known.projects.iter().find(|project| project.name == name && is_domain(&project.domain, domain));
    found.cloned().ok_or(Error::Unauthorized)
}

fn project(known: &Identity, id: &str) -> Result<Project, Error> {
    known.projects.iter().find(|project| project.id == id).cloned().ok_or(Error::Unauthorized)
}

fn is_domain(domain: &Domain, given: &Value) -> bool {
    let (id, name) = (text(given, "id"), text(given, "name"));
    if id.is_empty() { !name.is_empty() && domain.name == name } else { domain.id == id }
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}
