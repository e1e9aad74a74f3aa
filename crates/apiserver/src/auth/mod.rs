//! Who asks, and whether they may.
//!
//! ```text
//!  certificate, bearer token ──► authenticate ──► User ──► impersonate ──► authorize ──► the request
//!                                     ▲                                        ▲
//!        jwt ◄── service_account ─────┘          policy (roles, bindings) ─────┘──► rule
//!                      ▲                              ▲            ▲
//!                token_request                   escalation     reviews
//! ```
//!
//! Everything is answered from the store, so a role, a binding or an account that changes counts from the next
//! request on. Not here: the Node authorizer, webhooks, OpenID providers and authenticating proxies.

mod authenticate;
mod authorize;
mod bootstrap;
mod escalation;
mod impersonate;
mod jwt;
mod memo;
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

use jwt::SigningKey;
use memo::{Digest, Memo};
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

/// Members may do everything, whatever the stored rules say.
const MASTERS: &str = "system:masters";
const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";
const ANONYMOUS: &str = "system:anonymous";

/// The key of [`User::extra`] that says which credential was shown.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// Somebody who was recognised.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) groups: Vec<String>,
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

/// What a request wants to do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Attributes {
    /// `get`, `list`, `watch`, `create`, …; for paths the lower-case method.
    pub(crate) verb: String,
    pub(crate) group: String,
    pub(crate) version: String,
    /// Empty for a path.
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Set for requests that are not about a resource.
    pub(crate) path: String,
}

/// Keys, tokens and what is remembered between requests.
pub(crate) struct Auth {
    mode: AuthorizationMode,
    issuer: String,
    key: SigningKey,
    /// Tokens that were given out by hand.
    tokens: RwLock<HashMap<Digest, Arc<User>>>,
    /// Certificates seen before.
    certificates: Memo<Arc<User>>,
    /// Tokens whose signature was checked; the rest of their validity is looked at each time.
    signed: Memo<Arc<Claims>>,
    policy: PolicyCache,
}

impl Auth {
    pub(crate) fn new(options: &Options) -> Auth {
        Auth {
            mode: options.authorization,
            issuer: options.issuer.clone(),
            key: SigningKey::generate(),
            tokens: RwLock::default(),
            certificates: Memo::default(),
            signed: Memo::default(),
            policy: PolicyCache::default(),
        }
    }

    /// Lets a bearer token stand for somebody, for as long as the server runs.
    pub(crate) fn add_token(&self, token: &str, user: User) {
        let mut tokens = self.tokens.write().unwrap_or_else(PoisonError::into_inner);
        tokens.insert(memo::digest(token.as_bytes()), Arc::new(user));
    }

    /// Whose [`Auth::add_token`] token this is.
    fn owner_of(&self, token: &Digest) -> Option<Arc<User>> {
        self.tokens.read().unwrap_or_else(PoisonError::into_inner).get(token).cloned()
    }

    /// The audiences this server takes itself to be.
    fn audiences(&self) -> &[String] {
        std::slice::from_ref(&self.issuer)
    }

    /// The rules in force now.
    fn policy(&self, state: &State) -> Arc<Policy> {
        self.policy.current(&state.store)
    }
}

impl User {
    fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }

    /// Adds the group unless the user is in it already.
    fn join(&mut self, group: &str) {
        if !self.in_group(group) {
            self.groups.push(group.to_owned());
        }
    }

    /// The user as reviews show it: empty fields are left out.
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

/// `["a" "b"]`, as the API quotes lists of names in messages.
fn quoted<S: AsRef<str>>(texts: &[S]) -> String {
    let quoted: Vec<String> = texts.iter().map(|t| format!("{:?}", t.as_ref())).collect();
    format!("[{}]", quoted.join(" "))
}

/// Several errors as one text: a lone one as it is, more in brackets, repeated ones once.
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
