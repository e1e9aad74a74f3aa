//! Acting as somebody else: the `Impersonate-*` headers that `kubectl --as` sends.
//!
//! Upstream knows several modes, tried in order. The constrained ones allow an identity *for certain requests*
//! (`impersonate-on:MODE:VERB` on what is requested, then `impersonate:MODE` on the identity); the last one is the
//! old, all-or-nothing verb `impersonate`. If none allows it, the first refusal is the answer.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use http::HeaderMap;

use super::authorize::{decide, forbidden};
use super::{ANONYMOUS, AUTHENTICATED, Attributes, MASTERS, UNAUTHENTICATED, User, service_account};
use crate::state::State;
use crate::status::{ApiError, ApiResult};
use crate::validation;

const AUTHENTICATION: &str = "authentication.k8s.io";
const EXTRA_PREFIX: &str = "impersonate-extra-";

/// The extra key that tells on which node a service account's pod runs.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// How an identity may be taken on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// A service account acts as the node its pod runs on.
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    UserInfo,
    Legacy,
}

/// Answers whom the headers ask to be taken for, if they do and `user` may; `wants` is the request itself.
pub(crate) fn impersonate(
    state: &State,
    user: &User,
    headers: &HeaderMap,
    wants: &Attributes,
) -> ApiResult<Option<User>> {
    let Some(wanted) = wanted(headers)? else { return Ok(None) };
    let mut refusal = None;
    for mode in [Mode::AssociatedNode, Mode::ArbitraryNode, Mode::ServiceAccount, Mode::UserInfo, Mode::Legacy] {
        let attempt = Attempt { state, user, wanted: &wanted, mode };
        if !attempt.applies() {
            continue;
        }
        match attempt.check(wants) {
            Ok(user) => return Ok(Some(user)),
            Err(error) => refusal = refusal.or(Some(error)),
        }
    }
    Err(refusal.unwrap_or_else(|| ApiError::plain("all impersonation modes failed")))
}

// === The headers ===

/// The identity as the headers give it.
fn wanted(headers: &HeaderMap) -> ApiResult<Option<User>> {
    let texts = |name: &str| -> Vec<String> {
        headers.get_all(name).iter().map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned()).collect()
    };
    let first = |name: &str| texts(name).into_iter().next().unwrap_or_default();
    let wanted = User {
        name: first("impersonate-user"),
        uid: first("impersonate-uid"),
        groups: texts("impersonate-group"),
        extra: extra(headers),
    };
    match (wanted.name.is_empty(), only_name(&wanted)) {
        (false, _) => Ok(Some(wanted)),
        (true, true) => Ok(None),
        (true, false) => {
            let shown = go_syntax(&wanted);
            Err(ApiError::bad_request(format!("requested {shown} without impersonating a user name")))
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

/// Decodes `%2f` and the like; a key that is not well-formed stays as it is.
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

/// upstream: the error shows the Go value.
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

// === The modes ===

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Mode::AssociatedNode => "associated-node",
            Mode::ArbitraryNode => "arbitrary-node",
            Mode::ServiceAccount => "serviceaccount",
            Mode::UserInfo => "user-info",
            Mode::Legacy => "",
        }
    }

    /// The verb on the identity.
    fn verb(self) -> String {
        match self {
            Mode::Legacy => "impersonate".to_owned(),
            mode => format!("impersonate:{}", mode.name()),
        }
    }

    /// The group that users and groups are resources of.
    fn group(self) -> &'static str {
        if self == Mode::Legacy { "" } else { AUTHENTICATION }
    }
}

/// One user trying to be another in one mode.
struct Attempt<'a> {
    state: &'a State,
    user: &'a User,
    wanted: &'a User,
    mode: Mode,
}

impl Attempt<'_> {
    /// Whether the mode is about identities of this sort at all.
    fn applies(&self) -> bool {
        let node = node_name(&self.wanted.name);
        let account = service_account::split_username(&self.wanted.name);
        match self.mode {
            Mode::AssociatedNode => only_name(self.wanted) && node.is_some() && self.runs_on(node.unwrap_or_default()),
            Mode::ArbitraryNode => only_name(self.wanted) && node.is_some(),
            Mode::ServiceAccount => only_name(self.wanted) && account.is_some(),
            Mode::UserInfo => node.is_none() && account.is_none(),
            Mode::Legacy => true,
        }
    }

    /// The asker is a service account whose pod is on the node.
    fn runs_on(&self, node: &str) -> bool {
        service_account::split_username(&self.user.name).is_some()
            && self.user.extra.get(NODE_NAME).is_some_and(|names| names.len() == 1 && names[0] == node)
    }

    fn check(&self, wants: &Attributes) -> ApiResult<User> {
        if self.mode != Mode::Legacy {
            let verb = format!("impersonate-on:{}:{}", self.mode.name(), wants.verb);
            self.require(&Attributes { verb, ..wants.clone() })?;
        }
        let mut actual = self.wanted.clone();
        actual.groups = self.check_name()?;
        if !self.wanted.uid.is_empty() {
            self.require(&self.identity(AUTHENTICATION, "uids", &self.wanted.uid))?;
        }
        self.check_groups()?;
        self.check_extra()?;
        match () {
            () if actual.name == ANONYMOUS => actual.join(UNAUTHENTICATED),
            () if !actual.in_group(UNAUTHENTICATED) => actual.join(AUTHENTICATED),
            () => {}
        }
        Ok(actual)
    }

    /// Checks the name; answers the groups that come with it.
    fn check_name(&self) -> ApiResult<Vec<String>> {
        let name = &self.wanted.name;
        let mut wants = self.identity(self.mode.group(), "users", name);
        let mut groups = self.wanted.groups.clone();
        if let Some(node) = node_name(name).filter(|_| self.mode != Mode::Legacy) {
            wants.resource = "nodes".to_owned();
            // upstream: the right to be one's own node is asked for without saying which.
            wants.name = if self.mode == Mode::AssociatedNode { "*".to_owned() } else { node.to_owned() };
            groups = vec!["system:nodes".to_owned()];
        }
        if let Some((namespace, account)) = service_account::split_username(name) {
            wants.resource = "serviceaccounts".to_owned();
            wants.namespace = namespace.to_owned();
            wants.name = account.to_owned();
            if groups.is_empty() {
                groups = service_account::groups(namespace);
            }
        }
        self.require(&wants)?;
        Ok(groups)
    }

    fn check_groups(&self) -> ApiResult<()> {
        let groups = &self.wanted.groups;
        let wants = |name: &str| self.identity(self.mode.group(), "groups", name);
        if self.mode != Mode::Legacy {
            if groups.iter().any(String::is_empty) {
                let why = "impersonating the empty string group is not allowed";
                return Err(forbidden(self.user, &wants(""), why));
            }
            if self.wanted.in_group(MASTERS) {
                let why = "impersonating the system:masters group is not allowed";
                return Err(forbidden(self.user, &wants(MASTERS), why));
            }
        }
        groups.iter().try_for_each(|group| self.require(&wants(group)))
    }

    fn check_extra(&self) -> ApiResult<()> {
        for (key, values) in &self.wanted.extra {
            for value in values {
                let wants = self.identity(AUTHENTICATION, "userextras", value);
                self.require(&Attributes { subresource: key.clone(), ..wants })?;
            }
        }
        Ok(())
    }

    /// The right to take on one part of an identity.
    fn identity(&self, group: &str, resource: &str, name: &str) -> Attributes {
        Attributes {
            verb: self.mode.verb(),
            group: group.to_owned(),
            version: "v1".to_owned(),
            resource: resource.to_owned(),
            name: name.to_owned(),
            ..Attributes::default()
        }
    }

    fn require(&self, wants: &Attributes) -> ApiResult<()> {
        let decision = decide(self.state, self.user, wants);
        if decision.allowed { Ok(()) } else { Err(forbidden(self.user, wants, &decision.reason)) }
    }
}

/// The node that a user name stands for.
fn node_name(user: &str) -> Option<&str> {
    user.strip_prefix("system:node:").filter(|name| !name.is_empty() && validation::dns_subdomain(name).is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::fixture::{allow, state, user};
    use serde_json::json;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(k, v)| (http::HeaderName::from_static(k), http::HeaderValue::from_static(v))).collect()
    }

    fn list_nodes() -> Attributes {
        Attributes { verb: "list".into(), resource: "nodes".into(), ..Attributes::default() }
    }

    fn attempt(state: &State, who: &User, pairs: &[(&'static str, &'static str)]) -> Result<Option<User>, String> {
        impersonate(state, who, &headers(pairs), &list_nodes()).map_err(|e| e.message)
    }

    #[test]
    fn an_administrator_may_be_anybody() {
        let state = state();
        let root = user("root", &["system:masters"]);
        type Headers<'a> = &'a [(&'a str, &'a str)];
        let cases: [(Headers<'_>, &str, &[&str]); 6] = [
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
            (&[("impersonate-user", "system:node:a")], "system:node:a", &["system:nodes", "system:authenticated"]),
        ];
        for (pairs, name, groups) in cases {
            let got = attempt(&state, &root, pairs).unwrap().unwrap();
            assert_eq!(got, user(name, groups));
        }
        assert_eq!(attempt(&state, &root, &[]), Ok(None));
    }

    #[test]
    fn uid_and_extra_come_along() {
        let pairs = [
            ("impersonate-user", "jane"),
            ("impersonate-uid", "7"),
            ("impersonate-extra-scopes", "a"),
            ("impersonate-extra-scopes", "b"),
            ("impersonate-extra-example.org%2fkey", "c"),
            ("impersonate-extra-odd%", "d"),
        ];
        let got = attempt(&state(), &user("root", &["system:masters"]), &pairs).unwrap().unwrap();
        assert_eq!(got.uid, "7");
        assert_eq!(json!(got.extra), json!({"scopes": ["a", "b"], "example.org/key": ["c"], "odd%": ["d"]}));
    }

    #[test]
    fn others_need_the_right_to_and_learn_the_first_one_missing() {
        let state = state();
        let jim = user("jim", &[]);
        assert_eq!(
            attempt(&state, &jim, &[("impersonate-user", "jane")]),
            Err(r#"nodes is forbidden: User "jim" cannot impersonate-on:user-info:list resource "nodes" in API group "" at the cluster scope"#.to_owned())
        );
        let rule =
            json!({"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"], "resourceNames": ["jane"]});
        allow(&state, "", "jim", rule);
        assert_eq!(attempt(&state, &jim, &[("impersonate-user", "jane")]).unwrap().unwrap().name, "jane");
        assert!(attempt(&state, &jim, &[("impersonate-user", "june")]).is_err());
        assert!(attempt(&state, &jim, &[("impersonate-user", "jane"), ("impersonate-group", "dev")]).is_err());
    }

    #[test]
    fn a_right_may_be_limited_to_certain_requests() {
        let state = state();
        let jim = user("jim", &[]);
        let rule = json!({"apiGroups": ["", "authentication.k8s.io"], "resources": ["nodes", "users"],
                          "verbs": ["impersonate-on:user-info:list", "impersonate:user-info"]});
        allow(&state, "", "jim", rule);
        assert!(attempt(&state, &jim, &[("impersonate-user", "jane")]).is_ok());
        let get = Attributes { verb: "get".into(), ..list_nodes() };
        assert!(impersonate(&state, &jim, &headers(&[("impersonate-user", "jane")]), &get).is_err());
        let masters = [("impersonate-user", "jane"), ("impersonate-group", "system:masters")];
        let refused = attempt(&state, &jim, &masters).unwrap_err();
        assert!(refused.ends_with("impersonating the system:masters group is not allowed"), "{refused}");
    }

    #[test]
    fn an_agent_may_be_given_its_own_node() {
        let state = state();
        let name = "system:serviceaccount:n:agent";
        let mut agent = user(name, &[]);
        agent.extra.insert(NODE_NAME.to_owned(), vec!["a".to_owned()]);
        let rule = json!({"apiGroups": ["", "authentication.k8s.io"], "resources": ["nodes"],
                          "verbs": ["impersonate-on:associated-node:list", "impersonate:associated-node"]});
        allow(&state, "", name, rule);
        assert!(attempt(&state, &agent, &[("impersonate-user", "system:node:a")]).is_ok());
        assert!(attempt(&state, &agent, &[("impersonate-user", "system:node:b")]).is_err());
    }

    #[test]
    fn parts_of_an_identity_need_a_name() {
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
        for (pairs, shown) in cases {
            let refused = attempt(&state(), &user("root", &["system:masters"]), pairs);
            assert_eq!(refused, Err(format!("requested {shown} without impersonating a user name")));
        }
    }
}
