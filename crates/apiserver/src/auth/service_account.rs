//! Service accounts as users: user names, groups, token claims and their validation.
//!
//! A token becomes invalid when its service account, or the Pod, Secret or Node it is bound to, is deleted, even if an object
//! with the same name is created later.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::authenticate::INVALID_TOKEN;
use super::jwt::Rejected;
use super::{Auth, CREDENTIAL_ID, User, digest_cache, quoted};
use crate::state::State;
use crate::status::{ApiError, Named};
use crate::store::Stored;
use crate::validation;
use crate::value::Json;

const PREFIX: &str = "system:serviceaccount:";

/// Tolerated clock difference, and the time for which an object with a deletionTimestamp is still accepted.
const LEEWAY_SECONDS: i64 = 60;

/// The claims of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Claims {
    #[serde(default)]
    pub(super) aud: Vec<String>,
    pub(super) exp: i64,
    pub(super) iat: i64,
    pub(super) iss: String,
    #[serde(default)]
    pub(super) jti: String,
    #[serde(rename = "kubernetes.io")]
    pub(super) kubernetes: Bound,
    pub(super) nbf: i64,
    pub(super) sub: String,
}

/// The objects that a token is bound to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Bound {
    pub(super) namespace: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) node: Option<ObjectRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) pod: Option<ObjectRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) secret: Option<ObjectRef>,
    pub(super) serviceaccount: ObjectRef,
    /// After this time the token is still valid but the client should have renewed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) warnafter: Option<i64>,
}

/// Name and UID of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ObjectRef {
    pub(super) name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) uid: String,
}

/// The result of token authentication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AuthenticatedToken {
    pub(super) user: User,
    /// The requested audiences that the token is valid for.
    pub(super) audiences: Vec<String>,
}

// === Names ===

/// `system:serviceaccount:NAMESPACE:NAME`.
pub(super) fn username(namespace: &str, name: &str) -> String {
    format!("{PREFIX}{namespace}:{name}")
}

/// The groups of all service accounts of a namespace.
pub(super) fn groups(namespace: &str) -> Vec<String> {
    vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]
}

/// Whether a user name is that of this service account.
pub(super) fn is_named(user: &str, namespace: &str, name: &str) -> bool {
    user.strip_prefix(PREFIX)
        .and_then(|rest| rest.strip_prefix(namespace)?.strip_prefix(':'))
        .is_some_and(|rest| rest == name)
}

/// The namespace and name in a [`username`].
pub(super) fn split_username(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(PREFIX)?.split_once(':')?;
    let valid = is_dns_label(namespace) && !name.contains(':') && validation::dns_subdomain(name).is_empty();
    valid.then_some((namespace, name))
}

fn is_dns_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=63).contains(&text.len()) && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

// === Tokens ===

/// Authenticates a token for one of `audiences`. The error is upstream's message.
pub(super) fn authenticate(state: &State, token: &str, audiences: &[String]) -> Result<AuthenticatedToken, String> {
    let claims = verified(&state.auth, token)?;
    let shared: Vec<String> = claims.aud.iter().filter(|a| audiences.contains(a)).cloned().collect();
    if shared.is_empty() {
        let (has, wanted) = (quoted(&claims.aud), quoted(audiences));
        return Err(format!("token audiences {has} is invalid for the target audiences {wanted}"));
    }
    claims.check_time(Timestamp::now().as_second())?;
    claims.kubernetes.check(state)?;
    Ok(AuthenticatedToken { user: claims.user(), audiences: shared })
}

/// Returns the claims of a token. The signature is verified once per token.
fn verified(auth: &Auth, token: &str) -> Result<Arc<Claims>, String> {
    let key = digest_cache::digest(token.as_bytes());
    if let Some(claims) = auth.signed.get(&key) {
        return Ok(claims);
    }
    let claims = auth.key.verify(token, &auth.issuer).map_err(|rejected| match rejected {
        Rejected::Foreign => INVALID_TOKEN,
        Rejected::UnknownKey => "invalid signature, no keys found",
        Rejected::BadSignature => "go-jose/go-jose: error in cryptographic primitive",
    })?;
    let claims: Claims = serde_json::from_value(claims).map_err(|_| INVALID_TOKEN)?;
    let claims = Arc::new(claims);
    auth.signed.insert(key, claims.clone());
    Ok(claims)
}

impl Claims {
    fn check_time(&self, now: i64) -> Result<(), String> {
        let error = match () {
            () if now + LEEWAY_SECONDS < self.nbf => "is not valid yet",
            () if now - LEEWAY_SECONDS > self.exp => "has expired",
            () if now + LEEWAY_SECONDS < self.iat => "is issued in the future",
            () => return Ok(()),
        };
        Err(format!("service account token {error}"))
    }

    fn user(&self) -> User {
        let bound = &self.kubernetes;
        User {
            name: username(&bound.namespace, &bound.serviceaccount.name),
            uid: bound.serviceaccount.uid.clone(),
            groups: groups(&bound.namespace),
            extra: self.extra(),
        }
    }

    fn extra(&self) -> BTreeMap<String, Vec<String>> {
        let mut extra = BTreeMap::new();
        let mut add = |key: String, value: String| {
            if !value.is_empty() {
                extra.insert(key, vec![value]);
            }
        };
        for (kind, reference) in [("pod", &self.kubernetes.pod), ("node", &self.kubernetes.node)] {
            if let Some(object) = reference {
                add(format!("authentication.kubernetes.io/{kind}-name"), object.name.clone());
                add(format!("authentication.kubernetes.io/{kind}-uid"), object.uid.clone());
            }
        }
        if !self.jti.is_empty() {
            add(CREDENTIAL_ID.to_owned(), format!("JTI={}", self.jti));
        }
        extra
    }
}

impl Bound {
    /// Checks that all bound objects exist with the UID in the claims.
    fn check(&self, state: &State) -> Result<(), String> {
        self.check_account(state)?;
        self.check_bound(state, "secret", &self.namespace, self.secret.as_ref())?;
        self.check_bound(state, "pod", &self.namespace, self.pod.as_ref())?;
        // The node claim of a pod-bound token is informational; only a node-bound token depends on the Node.
        let node = self.node.as_ref().filter(|_| self.pod.is_none());
        self.check_bound(state, "node", "", node)
    }

    fn check_account(&self, state: &State) -> Result<(), String> {
        let ObjectRef { name, uid } = &self.serviceaccount;
        let Some(account) = state.store.get("serviceaccounts", &self.namespace, name) else {
            let what = Named { group: "", kind: "serviceaccounts" };
            return Err(ApiError::not_found(what, name).message);
        };
        if *account.uid != **uid {
            return Err(format!("service account UID ({}) does not match claim ({uid})", account.uid));
        }
        match is_past_deletion(&account) {
            true => Err(format!("service account {}/{name} has been deleted", self.namespace)),
            false => Ok(()),
        }
    }

    fn check_bound(&self, state: &State, kind: &str, ns: &str, claimed: Option<&ObjectRef>) -> Result<(), String> {
        let Some(claimed) = claimed else { return Ok(()) };
        let invalidated = || "service account token has been invalidated".to_owned();
        let found = state.store.get(&format!("{kind}s"), ns, &claimed.name).ok_or_else(invalidated)?;
        if *found.uid != *claimed.uid {
            let (is, was) = (&found.uid, &claimed.uid);
            return Err(format!("{kind} UID ({is}) does not match service account {kind} ref claim ({was})"));
        }
        if is_past_deletion(&found) { Err(invalidated()) } else { Ok(()) }
    }
}

/// Whether the deletionTimestamp of an object is older than the leeway.
fn is_past_deletion(object: &Stored) -> bool {
    // Most objects are not being deleted: avoid parsing them on every request.
    const MARK: &[u8] = b"\"deletionTimestamp\"";
    if !object.json().windows(MARK.len()).any(|w| w == MARK) {
        return false;
    }
    let deleted: Option<Timestamp> = object.value().text("metadata.deletionTimestamp").parse().ok();
    deleted.is_some_and(|at| at.as_second() < Timestamp::now().as_second() - LEEWAY_SECONDS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::fixture::{account, remove, state, store, token};
    use crate::auth::request_token;
    use serde_json::{Value, json};

    fn authenticate_here(state: &State, token: &str) -> Result<AuthenticatedToken, String> {
        authenticate(state, token, state.auth.audiences())
    }

    fn object(kind: &str, name: &str, uid: &str) -> Value {
        let namespace = if kind == "Node" { "" } else { "n" };
        json!({"kind": kind, "apiVersion": "v1", "metadata": {"name": name, "namespace": namespace, "uid": uid},
               "spec": {"serviceAccountName": "bot", "nodeName": "node"}})
    }

    /// A token of `n/bot` bound to an object.
    fn bound_token(state: &State, kind: &str, name: &str) -> String {
        let reference = json!({"kind": kind, "apiVersion": "v1", "name": name});
        let request = json!({"metadata": {}, "spec": {"boundObjectRef": reference}});
        request_token(state, "n", "bot", request).unwrap().text("status.token").to_owned()
    }

    #[test]
    fn user_names_are_split_into_namespace_and_name() {
        assert_eq!(username("n", "bot"), "system:serviceaccount:n:bot");
        assert_eq!(split_username("system:serviceaccount:n:bot.x"), Some(("n", "bot.x")));
        for name in ["n:bot", "system:serviceaccount:n", "system:serviceaccount:N:bot", "system:serviceaccount:n:a:b"] {
            assert_eq!(split_username(name), None, "{name}");
        }
        assert!(is_named("system:serviceaccount:n:bot", "n", "bot"));
        assert!(!is_named("system:serviceaccount:nn:bot", "n", "bot"));
        assert!(!is_named("system:serviceaccount:n:bot", "n:bot", ""));
    }

    #[test]
    fn a_token_is_invalid_once_its_account_is_deleted() {
        let state = state();
        account(&state, "n", "bot");
        let token = token(&state, "n", "bot");
        assert_eq!(authenticate_here(&state, &token).unwrap().user.name, "system:serviceaccount:n:bot");
        remove(&state, "serviceaccounts", "n", "bot");
        assert_eq!(authenticate_here(&state, &token), Err(r#"serviceaccounts "bot" not found"#.to_owned()));
        store(&state, object("ServiceAccount", "bot", "other"));
        assert_eq!(
            authenticate_here(&state, &token),
            Err("service account UID (other) does not match claim (bot)".to_owned())
        );
    }

    #[test]
    fn an_account_being_deleted_is_accepted_for_a_minute() {
        let state = state();
        account(&state, "n", "bot");
        let token = token(&state, "n", "bot");
        for (seconds_ago, good) in [(10, true), (70, false)] {
            let at = Timestamp::from_second(Timestamp::now().as_second() - seconds_ago).unwrap();
            let mut deleting = object("ServiceAccount", "bot", "bot");
            deleting.put("metadata.deletionTimestamp", at.to_string());
            store(&state, deleting);
            assert_eq!(authenticate_here(&state, &token).is_ok(), good, "{seconds_ago}");
        }
    }

    #[test]
    fn a_bound_token_is_invalid_once_its_object_is_deleted() {
        for (kind, plural, namespace) in [("Pod", "pods", "n"), ("Secret", "secrets", "n"), ("Node", "nodes", "")] {
            let state = state();
            account(&state, "n", "bot");
            store(&state, object(kind, "x", "1"));
            let token = bound_token(&state, kind, "x");
            assert!(authenticate_here(&state, &token).is_ok());
            store(&state, object(kind, "x", "2"));
            let name = kind.to_lowercase();
            let changed = format!("{name} UID (2) does not match service account {name} ref claim (1)");
            assert_eq!(authenticate_here(&state, &token), Err(changed));
            remove(&state, plural, namespace, "x");
            assert_eq!(authenticate_here(&state, &token), Err("service account token has been invalidated".to_owned()));
        }
    }

    #[test]
    fn a_pod_bound_token_has_the_pod_and_its_node_in_extra() {
        let state = state();
        account(&state, "n", "bot");
        store(&state, object("Pod", "x", "1"));
        let extra = authenticate_here(&state, &bound_token(&state, "Pod", "x")).unwrap().user.extra;
        let shown = |key: &str| extra.get(&format!("authentication.kubernetes.io/{key}")).map(|v| v.join(","));
        assert_eq!(shown("pod-name").as_deref(), Some("x"));
        assert_eq!(shown("pod-uid").as_deref(), Some("1"));
        assert_eq!(shown("node-name").as_deref(), Some("node"));
        assert_eq!(shown("node-uid"), None);
        assert!(shown("credential-id").unwrap().starts_with("JTI="));
        // The node claim is informational.
        store(&state, object("Node", "node", "7"));
        assert!(authenticate_here(&state, &bound_token(&state, "Pod", "x")).is_ok());
    }

    #[test]
    fn a_token_is_limited_to_its_audiences_and_lifetime() {
        let state = state();
        account(&state, "n", "bot");
        let token = token(&state, "n", "bot");
        let elsewhere = authenticate(&state, &token, &["other".to_owned(), "x".to_owned()]);
        let message =
            r#"token audiences ["https://kubernetes.default.svc"] is invalid for the target audiences ["other" "x"]"#;
        assert_eq!(elsewhere, Err(message.to_owned()));
        let claims = verified(&state.auth, &token).unwrap();
        let cases = [
            (claims.exp + 60, None),
            (claims.exp + 61, Some("service account token has expired")),
            (claims.nbf - 60, None),
            (claims.nbf - 61, Some("service account token is not valid yet")),
        ];
        for (now, error) in cases {
            assert_eq!(claims.check_time(now).err().as_deref(), error);
        }
    }

    #[test]
    fn tokens_of_other_issuers_are_rejected() {
        let (state, elsewhere) = (state(), crate::auth::fixture::state());
        account(&elsewhere, "n", "bot");
        let stranger = token(&elsewhere, "n", "bot");
        assert_eq!(authenticate_here(&state, &stranger), Err("invalid signature, no keys found".to_owned()));
        assert_eq!(authenticate_here(&state, "garbage"), Err(INVALID_TOKEN.to_owned()));
        let odd = state.auth.key.sign(&json!({"iss": state.auth.issuer})).unwrap();
        assert_eq!(authenticate_here(&state, &odd), Err(INVALID_TOKEN.to_owned()));
    }
}
