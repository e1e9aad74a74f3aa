//! Who may have a token, and for what.

use serde_json::{Value, json};

use super::{Identity, fault, malformed, unauthorized};
use crate::records::Record;
use crate::wire::{Call, Reply};

/// A domain of Keystone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    /// Its ID.
    pub id: String,
    /// Its name.
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
    /// Its ID.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its domain.
    pub domain: Domain,
    /// Its password.
    pub password: String,
    /// The ID of the project that a token is for if nobody says otherwise.
    pub default_project: Option<String>,
}

/// A project.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Project {
    /// Its ID.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its domain.
    pub domain: Domain,
}

/// An application credential: a user's rights in a project, without the user's password.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ApplicationCredential {
    /// Its ID.
    pub id: String,
    /// Its name, which is unique for its user.
    pub name: String,
    /// Its secret.
    pub secret: String,
    /// The ID of its user.
    pub user: String,
    /// The ID of its project.
    pub project: String,
}

/// A trust: one user's rights in a project, lent to another.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trust {
    /// Its ID.
    pub id: String,
    /// The ID of the user that it was lent to.
    pub trustee: String,
    /// The ID of the user that lends.
    pub trustor: String,
    /// The ID of the project.
    pub project: String,
}

/// Who asks, and how they showed it.
pub(super) struct Proof {
    pub(super) user: User,
    pub(super) methods: Vec<String>,
    pub(super) credential: Option<ApplicationCredential>,
    pub(super) delegated: bool,
}

/// What the token is for.
pub(super) enum Scope {
    Nothing,
    Project(Project),
    Domain(Domain),
    Trust(Trust, Project),
}

/// Why there is no token.
pub(super) enum Refusal {
    Malformed(String),
    /// It is not of the shape that it should have.
    Invalid(String),
    Wrong,
    /// Wrong, and it says so.
    Explained(String),
    /// There is no such application credential.
    Unknown(String),
    Delegated,
    UnknownToken,
}

impl Refusal {
    pub(super) fn reply(self, call: &Call) -> Reply {
        match self {
            Refusal::Malformed(what) => malformed(&what),
            Refusal::Invalid(what) => fault(400, "Bad Request", &what),
            Refusal::Wrong => unauthorized(call),
            Refusal::Explained(message) => {
                let error = json!({"code": 401, "identity": {}, "message": message, "title": "Unauthorized"});
                Reply::json(401, json!({"error": error}))
            }
            Refusal::Unknown(id) => fault(404, "Not Found", &format!("Could not find Application Credential: {id}.")),
            Refusal::Delegated => {
                let message = "You are not authorized to perform the requested action: Using a delegated token to create \
                               another token is not allowed..";
                fault(403, "Forbidden", message)
            }
            Refusal::UnknownToken => fault(404, "Not Found", "Could not recognize Fernet token"),
        }
    }
}

impl Proof {
    pub(super) fn read(known: &Identity, request: &Record) -> Result<Proof, Refusal> {
        let missing = |what: &str| Refusal::Invalid(format!("{what} is a required property"));
        let identity = request.get("identity").ok_or_else(|| missing("'identity'"))?;
        let methods = identity.get("methods").and_then(Value::as_array).ok_or_else(|| missing("'methods'"))?;
        let methods: Vec<String> = methods.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        let method = methods.first().ok_or(Refusal::Wrong)?;
        let given = identity.get(method.as_str());
        let given = given.ok_or_else(|| Refusal::Malformed(format!("Expecting to find {method} in identity.")))?;
        let proof = |user, credential, delegated| Proof { user, methods: methods.clone(), credential, delegated };
        match method.as_str() {
            "password" => by_password(known, given).map(|user| proof(user, None, false)),
            "token" => {
                let (user, earlier) = by_token(known, given)?;
                let methods = methods.iter().cloned().chain(earlier).collect();
                Ok(Proof { methods, ..proof(user, None, false) })
            }
            "application_credential" => {
                let (user, credential) = by_application_credential(known, given)?;
                Ok(proof(user, Some(credential), true))
            }
            _ => Err(Refusal::Wrong),
        }
    }
}

fn by_password(known: &Identity, given: &Value) -> Result<User, Refusal> {
    let user = given.get("user").ok_or_else(|| Refusal::Malformed("Expecting to find user in password.".to_owned()))?;
    let found = find_user(known, user)?.ok_or(Refusal::Wrong)?;
    if text(user, "password") == found.password { Ok(found) } else { Err(Refusal::Wrong) }
}

/// By ID, or by name and domain; a name without a domain could be anybody's.
fn find_user(known: &Identity, given: &Value) -> Result<Option<User>, Refusal> {
    let (id, name) = (text(given, "id"), text(given, "name"));
    if !id.is_empty() {
        return Ok(known.users.iter().find(|user| user.id == id).cloned());
    }
    let domain = given.get("domain");
    let domain = domain.ok_or_else(|| Refusal::Malformed("Expecting to find domain in user.".to_owned()))?;
    Ok(known.users.iter().find(|user| user.name == name && is_domain(&user.domain, domain)).cloned())
}

/// Whose token it is, and how it was come by.
fn by_token(known: &Identity, given: &Value) -> Result<(User, Vec<String>), Refusal> {
    let token = known.tokens.get(text(given, "id")).ok_or(Refusal::UnknownToken)?;
    if token.expires <= tokio::time::Instant::now() {
        return Err(Refusal::UnknownToken);
    }
    if token.delegated {
        return Err(Refusal::Delegated);
    }
    let user = known.users.iter().find(|user| user.id == token.user).cloned().ok_or(Refusal::Wrong)?;
    Ok((user, token.methods.clone()))
}

fn by_application_credential(known: &Identity, given: &Value) -> Result<(User, ApplicationCredential), Refusal> {
    let (id, name) = (text(given, "id"), text(given, "name"));
    let credential = if id.is_empty() {
        let owner = given.get("user").map(|user| find_user(known, user)).transpose()?.flatten();
        let owner = owner.ok_or_else(|| Refusal::Malformed("Expecting to find user.".to_owned()))?;
        known.application_credentials.iter().find(|one| one.name == name && one.user == owner.id)
    } else {
        known.application_credentials.iter().find(|one| one.id == id)
    };
    let unknown = || if id.is_empty() { Refusal::Wrong } else { Refusal::Unknown(id.to_owned()) };
    let credential = credential.ok_or_else(unknown)?;
    if credential.secret != text(given, "secret") {
        return Err(Refusal::Wrong);
    }
    let user = known.users.iter().find(|user| user.id == credential.user).ok_or(Refusal::Wrong)?;
    Ok((user.clone(), credential.clone()))
}

impl Scope {
    pub(super) fn read(known: &Identity, request: &Record, proof: &Proof) -> Result<Scope, Refusal> {
        let asked = request.get("scope");
        if let Some(credential) = &proof.credential {
            if asked.is_some() {
                let why =
                    "Error authenticating with application credential: Application credentials cannot request a scope.";
                return Err(Refusal::Explained(why.to_owned()));
            }
            return project(known, &credential.project).map(Scope::Project);
        }
        let Some(asked) = asked else {
            let usual = proof.user.default_project.as_deref();
            return usual.map_or(Ok(Scope::Nothing), |usual| project(known, usual).map(Scope::Project));
        };
        if let Some(trust) = asked.get("OS-TRUST:trust") {
            return trust_scope(known, text(trust, "id"), &proof.user);
        }
        if let Some(asked) = asked.get("project") {
            return find_project(known, asked).map(Scope::Project);
        }
        let domain = asked.get("domain").ok_or_else(|| Refusal::Malformed("Expecting to find a scope.".to_owned()))?;
        let found = known.projects.iter().map(|project| &project.domain).find(|found| is_domain(found, domain));
        found.cloned().map(Scope::Domain).ok_or(Refusal::Wrong)
    }
}

fn trust_scope(known: &Identity, id: &str, user: &User) -> Result<Scope, Refusal> {
    let trust = known.trusts.iter().find(|trust| trust.id == id && trust.trustee == user.id).ok_or(Refusal::Wrong)?;
    Ok(Scope::Trust(trust.clone(), project(known, &trust.project)?))
}

fn find_project(known: &Identity, asked: &Value) -> Result<Project, Refusal> {
    let (id, name) = (text(asked, "id"), text(asked, "name"));
    if !id.is_empty() {
        return project(known, id);
    }
    let domain = asked.get("domain");
    let domain = domain.ok_or_else(|| Refusal::Malformed("Expecting to find domain in project.".to_owned()))?;
    let found = known.projects.iter().find(|project| project.name == name && is_domain(&project.domain, domain));
    found.cloned().ok_or(Refusal::Wrong)
}

fn project(known: &Identity, id: &str) -> Result<Project, Refusal> {
    known.projects.iter().find(|project| project.id == id).cloned().ok_or(Refusal::Wrong)
}

fn is_domain(domain: &Domain, asked: &Value) -> bool {
    let (id, name) = (text(asked, "id"), text(asked, "name"));
    if id.is_empty() { !name.is_empty() && domain.name == name } else { domain.id == id }
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}
