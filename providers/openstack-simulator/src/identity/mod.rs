//! Keystone: tokens and the service catalog.

mod catalog;
mod credentials;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::records::object;
use crate::simulator::State;
use crate::wire::{Call, Outcome, Reply, Service};

pub use credentials::{ApplicationCredential, Domain, Project, Trust, User};
use credentials::{Caller, Scope};

/// State of Keystone: users, projects, credentials and issued tokens.
#[derive(Debug, Clone, Default)]
pub struct Identity {
    /// Users.
    pub users: Vec<User>,
    /// Projects, which every user can access.
    pub projects: Vec<Project>,
    /// Application credentials.
    pub application_credentials: Vec<ApplicationCredential>,
    /// Trusts.
    pub trusts: Vec<Trust>,
    pub(crate) tokens: BTreeMap<String, Token>,
    pub(crate) authentications: u64,
}

/// An issued token.
#[derive(Debug, Clone)]
pub(crate) struct Token {
    expires: Instant,
    /// Whether it comes from an application credential and so cannot be exchanged for another token.
    delegated: bool,
    user: String,
    /// Authentication methods.
    methods: Vec<String>,
    /// Roles at the time it was issued.
    roles: Vec<String>,
}

pub(crate) fn answer(state: &mut State, call: &Call) -> Outcome {
    let path: Vec<&str> = call.path.iter().map(String::as_str).collect();
    match (call.method.as_str(), path.as_slice()) {
        ("GET", []) => Ok(versions(call)),
        ("GET", ["v3"]) => Ok(Reply::json(200, json!({"version": version(call)}))),
        ("POST", ["v3", "auth", "tokens"]) => authenticate(state, call),
        ("GET", ["v3", "auth", "tokens"]) => validate(state, call),
        ("DELETE", ["v3", "auth", "tokens"]) => revoke(state, call),
        ("GET", ["v3", "auth", "catalog"]) => {
            check_token(state, call)?;
            Ok(Reply::json(200, json!({"catalog": catalog::render(state, call), "links": {}})))
        }
        _ => Err(fault(404, "Not Found", "The requested URL was not found on the server.")),
    }
}

/// Returns the roles of the call's token; an error if the token is missing or invalid.
pub(crate) fn check_token(state: &State, call: &Call) -> Result<Vec<String>, Reply> {
    let token = call.header("x-auth-token").and_then(|token| state.identity.tokens.get(token));
    match token {
        Some(token) if token.expires > Instant::now() => Ok(token.roles.clone()),
        _ => Err(unauthorized(call)),
    }
}

fn unauthorized(call: &Call) -> Reply {
    let challenge = format!("Keystone uri=\"{}/{}\"", call.origin, Service::Identity.kind());
    fault(401, "Unauthorized", "The request you have made requires authentication.").with("www-authenticate", challenge)
}

pub(crate) fn fault(code: u16, title: &str, message: &str) -> Reply {
    Reply::json(code, json!({"error": {"code": code, "message": message, "title": title}}))
}

fn versions(call: &Call) -> Reply {
    let reply = Reply::json(300, json!({"versions": {"values": [version(call)]}}));
    reply.with("location", call.url("v3/"))
}

fn version(call: &Call) -> Value {
    json!({
        "id": "v3.14", "status": "stable", "updated": "2020-04-07T00:00:00Z",
        "links": [{"rel": "self", "href": call.url("v3/")}],
        "media-types": [{"base": "application/json", "type": "application/vnd.openstack.identity-v3+json"}],
    })
}

fn authenticate(state: &mut State, call: &Call) -> Outcome {
    state.identity.authentications += 1;
    let json = call.json().ok_or_else(|| malformed("Expecting to find valid JSON in request body."))?;
    let request = json.get("auth").cloned().map(object);
    let request = request.ok_or_else(|| malformed("Expecting to find auth in request body."))?;
    let caller = Caller::read(&state.identity, &request).map_err(|error| error.reply(call))?;
    let scope = Scope::read(&state.identity, &request, &caller).map_err(|error| error.reply(call))?;
    let id = format!("gAAAAA{}{}", state.ids.hex(), state.ids.hex());
    let token = Token {
        expires: Instant::now() + state.options.token_lifetime,
        delegated: caller.delegated,
        user: caller.user.id.clone(),
        methods: caller.methods.clone(),
        roles: state.options.roles.clone(),
    };
    state.identity.tokens.insert(id.clone(), token);
    let body = catalog::token(state, call, &caller, &scope);
    Ok(Reply::json(201, json!({"token": body})).with("x-subject-token", id).with("vary", "X-Auth-Token"))
}

fn validate(state: &State, call: &Call) -> Outcome {
    check_token(state, call)?;
    let subject = call.header("x-subject-token").unwrap_or_default();
    match state.identity.tokens.get(subject) {
        Some(token) if token.expires > Instant::now() => {
            Ok(Reply::json(200, json!({"token": {"user": {"id": token.user}, "methods": []}})))
        }
        _ => Err(fault(404, "Not Found", "Could not find token.")),
    }
}

fn revoke(state: &mut State, call: &Call) -> Outcome {
    check_token(state, call)?;
    let subject = call.header("x-subject-token").unwrap_or_default();
    state.identity.tokens.remove(subject);
    Ok(Reply::empty(204))
}

fn malformed(what: &str) -> Reply {
    let why = "The server could not comply with the request since it is either malformed or otherwise incorrect. \
               The client is assumed to be in error.";
    fault(400, "Bad Request", &format!("{what} {why}"))
}
