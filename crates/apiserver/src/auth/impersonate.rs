//! User impersonation: the `Impersonate-*` headers that `kubectl --as` sends.
//!
//! The user needs the verb `impersonate` on each part of the identity: the user name or service account, the UID, every
//! group and every extra value.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use http::HeaderMap;

use super::authorize::{decide, forbidden};
use super::{ANONYMOUS, AUTHENTICATED, Attributes, UNAUTHENTICATED, User, service_account};
use crate::state::State;
use crate::status::{ApiError, ApiResult};

const AUTHENTICATION: &str = "authentication.k8s.io";
const EXTRA_PREFIX: &str = "impersonate-extra-";

/// Returns the user that the headers name, if they name one and `user` may impersonate it.
pub(crate) fn impersonate(state: &State, user: &User, headers: &HeaderMap) -> ApiResult<Option<User>> {
    let Some(mut requested) = requested(headers)? else { return Ok(None) };
    for attributes in required_permissions(&requested) {
        let decision = decide(state, user, &attributes);
        if !decision.allowed {
            return Err(forbidden(user, &attributes, &decision.reason));
        }
    }
    if let Some((namespace, _)) = service_account::split_username(&requested.name)
        && requested.groups.is_empty()
    {
        requested.groups = service_account::groups(namespace);
    }
    match () {
        () if requested.name == ANONYMOUS => requested.join(UNAUTHENTICATED),
        () if !requested.in_group(UNAUTHENTICATED) => requested.join(AUTHENTICATED),
        () => {}
    }
    Ok(Some(requested))
}

/// The permissions that impersonating this identity takes, in upstream's order.
fn required_permissions(requested: &User) -> Vec<Attributes> {
    let mut all = vec![match service_account::split_username(&requested.name) {
        Some((namespace, account)) => {
            Attributes { namespace: namespace.to_owned(), ..permission("", "serviceaccounts", account) }
        }
        None => permission("", "users", &requested.name),
    }];
    if !requested.uid.is_empty() {
        all.push(permission(AUTHENTICATION, "uids", &requested.uid));
    }
    all.extend(requested.groups.iter().map(|group| permission("", "groups", group)));
    for (key, values) in &requested.extra {
        let extra = |value: &String| permission(AUTHENTICATION, "userextras", value);
        all.extend(values.iter().map(|value| Attributes { subresource: key.clone(), ..extra(value) }));
    }
    all
}

fn permission(group: &str, resource: &str, name: &str) -> Attributes {
    Attributes {
        verb: "impersonate".to_owned(),
        group: group.to_owned(),
        version: "v1".to_owned(),
        resource: resource.to_owned(),
        name: name.to_owned(),
        ..Attributes::default()
    }
}

// === Headers ===

/// The identity that the headers request.
fn requested(headers: &HeaderMap) -> ApiResult<Option<User>> {
    let texts = |name: &str| -> Vec<String> {
        headers.get_all(name).iter().map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned()).collect()
    };
    let first = |name: &str| texts(name).into_iter().next().unwrap_or_default();
    let requested = User {
        name: first("impersonate-user"),
        uid: first("impersonate-uid"),
        groups: texts("impersonate-group"),
        extra: extra(headers),
    };
    match (requested.name.is_empty(), only_name(&requested)) {
        (false, _) => Ok(Some(requested)),
        (true, true) => Ok(None),
        (true, false) => {
            let printed = go_syntax(&requested);
            Err(ApiError::bad_request(format!("requested {printed} without impersonating a user name")))
        }
    }
}

fn extra(headers: &HeaderMap) -> BTreeMap<String, Vec<String>> {
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        if let Some(key) = name.as_str().strip_prefix(EXTRA_PREFIX) {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            extra.entry(unescaped(key)).or_default().push(value);
        }
    }
    extra
}

/// Decodes percent-encoding such as `%2f`; a malformed key is returned unchanged.
fn unescaped(key: &str) -> String {
    let mut bytes = Vec::with_capacity(key.len());
    let mut rest = key.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let code = tail.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match code.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(decoded) => bytes.push(decoded),
            None => return key.to_owned(),
        }
        rest = tail.get(2..).unwrap_or_default();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn only_name(user: &User) -> bool {
    user.uid.is_empty() && user.groups.is_empty() && user.extra.is_empty()
}

/// upstream: the error prints the Go value.
fn go_syntax(user: &User) -> String {
    let list = |texts: &[String]| {
        let quoted: Vec<String> = texts.iter().map(|t| format!("{t:?}")).collect();
        format!("[]string{{{}}}", quoted.join(", "))
    };
    let groups = if user.groups.is_empty() { "[]string(nil)".to_owned() } else { list(&user.groups) };
    let mut extra = String::from("map[string][]string");
    match user.extra.is_empty() {
        true => extra.push_str("(nil)"),
        false => {
            let pairs: Vec<String> = user.extra.iter().map(|(k, v)| format!("{k:?}:{}", list(v))).collect();
            let _ = write!(extra, "{{{}}}", pairs.join(", "));
        }
    }
    format!("&user.DefaultInfo{{Name:{:?}, UID:{:?}, Groups:{groups}, Extra:{extra}}}", user.name, user.uid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::fixture::{allow, state, user};
    use serde_json::json;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(k, v)| (http::HeaderName::from_static(k), http::HeaderValue::from_static(v))).collect()
    }

    fn act(state: &State, who: &User, pairs: &[(&'static str, &'static str)]) -> Result<Option<User>, String> {
        impersonate(state, who, &headers(pairs)).map_err(|e| e.message)
    }

    #[test]
    fn an_administrator_may_impersonate_any_user() {
        let state = state();
        let root = user("root", &["system:masters"]);
        type Headers<'a> = &'a [(&'a str, &'a str)];
        let cases: [(Headers<'_>, &str, &[&str]); 5] = [
            (&[("impersonate-user", "jane")], "jane", &["system:authenticated"]),
            (
                &[("impersonate-user", "jane"), ("impersonate-group", "dev"), ("impersonate-group", "ops")],
                "jane",
                &["dev", "ops", "system:authenticated"],
            ),
            (
                &[("impersonate-user", "x"), ("impersonate-group", "system:masters")],
                "x",
                &["system:masters", "system:authenticated"],
            ),
            (&[("impersonate-user", "system:anonymous")], "system:anonymous", &["system:unauthenticated"]),
            (
                &[("impersonate-user", "system:serviceaccount:n:bot")],
                "system:serviceaccount:n:bot",
                &["system:serviceaccounts", "system:serviceaccounts:n", "system:authenticated"],
            ),
        ];
        for (pairs, name, groups) in cases {
            let got = act(&state, &root, pairs).unwrap().unwrap();
            assert_eq!(got, user(name, groups));
        }
        assert_eq!(act(&state, &root, &[]), Ok(None));
    }

    #[test]
    fn uid_and_extra_are_impersonated() {
        let pairs = [
            ("impersonate-user", "jane"),
            ("impersonate-uid", "7"),
            ("impersonate-extra-scopes", "a"),
            ("impersonate-extra-scopes", "b"),
            ("impersonate-extra-example.org%2fkey", "c"),
            ("impersonate-extra-odd%", "d"),
        ];
        let got = act(&state(), &user("root", &["system:masters"]), &pairs).unwrap().unwrap();
        assert_eq!(got.uid, "7");
        assert_eq!(json!(got.extra), json!({"scopes": ["a", "b"], "example.org/key": ["c"], "odd%": ["d"]}));
    }

    #[test]
    fn other_users_need_permission_for_every_part() {
        let state = state();
        let jim = user("jim", &[]);
        assert_eq!(
            act(&state, &jim, &[("impersonate-user", "jane")]),
            Err(r#"users "jane" is forbidden: User "jim" cannot impersonate resource "users" in API group "" at the cluster scope"#.to_owned())
        );
        let rule =
            json!({"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"], "resourceNames": ["jane"]});
        allow(&state, "", "jim", rule);
        assert_eq!(act(&state, &jim, &[("impersonate-user", "jane")]).unwrap().unwrap().name, "jane");
        assert!(act(&state, &jim, &[("impersonate-user", "june")]).is_err());
        assert!(act(&state, &jim, &[("impersonate-user", "jane"), ("impersonate-group", "dev")]).is_err());
    }

    #[test]
    fn impersonated_groups_and_extra_require_a_user_name() {
        let cases: [(&[(&str, &str)], &str); 2] = [
            (
                &[("impersonate-group", "dev")],
                r#"&user.DefaultInfo{Name:"", UID:"", Groups:[]string{"dev"}, Extra:map[string][]string(nil)}"#,
            ),
            (
                &[("impersonate-uid", "7"), ("impersonate-extra-k", "v")],
                r#"&user.DefaultInfo{Name:"", UID:"7", Groups:[]string(nil), Extra:map[string][]string{"k":[]string{"v"}}}"#,
            ),
        ];
        for (pairs, printed) in cases {
            let rejected = act(&state(), &user("root", &["system:masters"]), pairs);
            assert_eq!(rejected, Err(format!("requested {printed} without impersonating a user name")));
        }
    }
}
