//! Authentication and authorization.
//!
//! ```text
//!  certificate, bearer token ──► authenticate ──► User ──► impersonate ──► authorize ──► the request
//!                                     ▲                                        ▲
//!        jwt ◄── service_account ─────┘          policy (roles, bindings) ─────┘──► rule
//!                      ▲                              ▲            ▲
//!                token_request                   escalation     reviews
//! ```
//!
//! Every check reads the store, so changes to roles, bindings and service accounts apply from the next request. Not
//! implemented: the Node authorizer, webhooks, OpenID Connect providers and authenticating proxies.

mod authenticate;
mod authorize;
mod bootstrap;
mod digest_cache;
mod escalation;
mod impersonate;
mod jwt;
mod openid;
mod policy;
mod reviews;
mod rule;
mod service_account;
mod token_request;

#[cfg(test)]
mod fixture;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use serde_json::{Value, json};

use crate::options::{AuthorizationMode, Options};
use crate::state::State;

use digest_cache::{Digest, DigestCache};
use jwt::SigningKey;
use policy::{Policy, PolicyCache};
use service_account::Claims;

pub(crate) use authenticate::authenticate;
pub(crate) use authorize::authorize;
pub(crate) use bootstrap::bootstrap_objects;
pub(crate) use escalation::check_escalation;
pub(crate) use impersonate::impersonate;
pub(crate) use openid::{jwks, openid_configuration};
pub(crate) use reviews::review;
pub(crate) use token_request::request_token;

/// Members of this group are allowed everything, regardless of RBAC rules.
const MASTERS: &str = "system:masters";
const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";
const ANONYMOUS: &str = "system:anonymous";

/// The key of [`User::extra`] with the ID of the presented credential.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// An authenticated user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) groups: Vec<String>,
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

/// The attributes of a request that authorization checks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Attributes {
    /// `get`, `list`, `watch`, `create`, …; for non-resource requests the lower-case HTTP method.
    pub(crate) verb: String,
    pub(crate) group: String,
    pub(crate) version: String,
    /// Empty for a non-resource request.
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Set for non-resource requests only.
    pub(crate) path: String,
}

/// Signing key, static tokens and caches.
pub(crate) struct Auth {
    mode: AuthorizationMode,
    issuer: String,
    key: SigningKey,
    /// Static tokens, added by [`Auth::add_token`].
    tokens: RwLock<HashMap<Digest, Arc<User>>>,
    /// Users of client certificates that were parsed before.
    certificates: DigestCache<Arc<User>>,
    /// Claims of tokens whose signature was verified. Expiry and bound objects are checked on every request.
    signed: DigestCache<Arc<Claims>>,
    policy: PolicyCache,
}

impl Auth {
    pub(crate) fn new(options: &Options) -> Auth {
        Auth {
            mode: options.authorization,
            issuer: options.issuer.clone(),
            key: SigningKey::generate(),
            tokens: RwLock::default(),
            certificates: DigestCache::default(),
            signed: DigestCache::default(),
            policy: PolicyCache::default(),
        }
    }

    /// Adds a static bearer token for a user. It is valid until the server stops.
    pub(crate) fn add_token(&self, token: &str, user: User) {
        let mut tokens = self.tokens.write().unwrap_or_else(PoisonError::into_inner);
        tokens.insert(digest_cache::digest(token.as_bytes()), Arc::new(user));
    }

    /// The user of a static token.
    fn static_token_user(&self, token: &Digest) -> Option<Arc<User>> {
        self.tokens.read().unwrap_or_else(PoisonError::into_inner).get(token).cloned()
    }

    /// The audiences of this server.
    fn audiences(&self) -> &[String] {
        std::slice::from_ref(&self.issuer)
    }

    /// The current RBAC rules.
    fn policy(&self, state: &State) -> Arc<Policy> {
        self.policy.current(&state.store)
    }
}

impl User {
    fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }

    /// Adds the group unless the user already has it.
    fn join(&mut self, group: &str) {
        if !self.in_group(group) {
            self.groups.push(group.to_owned());
        }
    }

    /// The `userInfo` of reviews, without empty fields.
    fn to_info(&self) -> Value {
        let mut info = json!({});
        for (key, text) in [("username", &self.name), ("uid", &self.uid)] {
            if !text.is_empty() {
                info[key] = text.as_str().into();
            }
        }
        if !self.groups.is_empty() {
            info["groups"] = json!(self.groups);
        }
        if !self.extra.is_empty() {
            info["extra"] = json!(self.extra);
        }
        info
    }
}

/// Formats a list as `["a" "b"]`, as Go prints `%q` of a string slice.
fn quoted<S: AsRef<str>>(texts: &[S]) -> String {
    let quoted: Vec<String> = texts.iter().map(|t| format!("{:?}", t.as_ref())).collect();
    format!("[{}]", quoted.join(" "))
}

/// Joins errors into one message as Go's `utilerrors.Aggregate` does: one error unchanged, several in brackets, duplicates once.
fn joined(errors: &[String]) -> String {
    let mut texts: Vec<&str> = Vec::new();
    for error in errors {
        if !texts.contains(&error.as_str()) {
            texts.push(error);
        }
    }
    match texts.as_slice() {
        [one] => (*one).to_owned(),
        many => format!("[{}]", many.join(", ")),
    }
}
