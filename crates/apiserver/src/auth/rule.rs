//! One rule of a role: which requests it allows, which rules it covers, and how errors print it.

use serde_json::{Value, json};

use super::{Attributes, quoted};
use crate::value::Json;

const ALL: &str = "*";

/// An RBAC policy rule: verbs on resources of API groups, optionally limited to names, or verbs on non-resource URLs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Rule {
    pub(super) verbs: Vec<String>,
    pub(super) groups: Vec<String>,
    pub(super) resources: Vec<String>,
    pub(super) names: Vec<String>,
    pub(super) urls: Vec<String>,
}

/// The rules of a role.
pub(super) fn rules_of(role: &Value) -> Vec<Rule> {
    role.list("rules").iter().map(Rule::read).collect()
}

impl Rule {
    fn read(rule: &Value) -> Rule {
        let texts = |field: &str| rule.texts(field).into_iter().map(str::to_owned).collect();
        Rule {
            verbs: texts("verbs"),
            groups: texts("apiGroups"),
            resources: texts("resources"),
            names: texts("resourceNames"),
            urls: texts("nonResourceURLs"),
        }
    }

    /// Rules that allow everything.
    pub(super) fn full_authority() -> [Rule; 2] {
        let all = || vec![ALL.to_owned()];
        [
            Rule { verbs: all(), groups: all(), resources: all(), ..Rule::default() },
            Rule { verbs: all(), urls: all(), ..Rule::default() },
        ]
    }

    // === Authorization ===

    pub(super) fn allows(&self, attributes: &Attributes) -> bool {
        let verb = has_or_all(&self.verbs, &attributes.verb);
        if attributes.is_path() {
            return verb && self.urls.iter().any(|url| url_covers(url, &attributes.path));
        }
        verb && has_or_all(&self.groups, &attributes.group)
            && self.resources.iter().any(|r| resource_covers(r, &attributes.resource, &attributes.subresource))
            && (self.names.is_empty() || has(&self.names, &attributes.name))
    }

    // === Coverage ===

    /// Whether this rule allows everything that `part` allows. `part` must be one of [`Rule::parts`].
    fn covers(&self, part: &Rule) -> bool {
        let names = match part.names.is_empty() {
            true => self.names.is_empty(),
            false => self.names.is_empty() || part.names.iter().all(|n| has(&self.names, n)),
        };
        names
            && part.verbs.iter().all(|verb| has_or_all(&self.verbs, verb))
            && part.groups.iter().all(|group| has_or_all(&self.groups, group))
            && part.resources.iter().all(|wanted| self.covers_resource(wanted))
            && part.urls.iter().all(|wanted| self.urls.iter().any(|url| url_covers(url, wanted)))
    }

    fn covers_resource(&self, wanted: &str) -> bool {
        let any = wanted.split_once('/').map(|(_, subresource)| format!("*/{subresource}"));
        has_or_all(&self.resources, wanted) || any.is_some_and(|any| has(&self.resources, &any))
    }

    /// Breaks the rule down into rules with one verb on one resource or URL each.
    fn parts(&self) -> Vec<Rule> {
        let mut parts = Vec::new();
        for group in &self.groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    let part = Rule {
                        verbs: vec![verb.clone()],
                        groups: vec![group.clone()],
                        resources: vec![resource.clone()],
                        ..Rule::default()
                    };
                    match self.names.is_empty() {
                        true => parts.push(part),
                        false => {
                            parts.extend(self.names.iter().map(|n| Rule { names: vec![n.clone()], ..part.clone() }))
                        }
                    }
                }
            }
        }
        for url in &self.urls {
            let part = |verb: &String| Rule { verbs: vec![verb.clone()], urls: vec![url.clone()], ..Rule::default() };
            parts.extend(self.verbs.iter().map(part));
        }
        parts
    }

    // === Formatting ===

    /// The short form of escalation errors.
    fn compact(&self) -> String {
        let fields = [
            ("APIGroups", &self.groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.urls),
            ("ResourceNames", &self.names),
            ("Verbs", &self.verbs),
        ];
        let shown: Vec<String> =
            fields.iter().filter(|(_, v)| !v.is_empty()).map(|(k, v)| format!("{k}:{}", quoted(v))).collect();
        format!("{{{}}}", shown.join(", "))
    }

    /// The resource part as a rules review lists it.
    pub(super) fn resource_rule(&self) -> Option<Value> {
        let fields = [("apiGroups", &self.groups), ("resources", &self.resources), ("resourceNames", &self.names)];
        (!self.resources.is_empty()).then(|| self.review_rule(&fields))
    }

    /// The non-resource part as a rules review lists it.
    pub(super) fn url_rule(&self) -> Option<Value> {
        (!self.urls.is_empty()).then(|| self.review_rule(&[("nonResourceURLs", &self.urls)]))
    }

    fn review_rule(&self, fields: &[(&str, &Vec<String>)]) -> Value {
        let mut rule = json!({"verbs": self.verbs});
        for (key, texts) in fields.iter().filter(|(_, texts)| !texts.is_empty()) {
            rule[*key] = json!(texts);
        }
        rule
    }
}

/// Lists the parts of `wanted` that `held` does not cover, sorted, one line for each resource or URL.
pub(super) fn missing(held: &[&Rule], wanted: &[Rule]) -> Vec<String> {
    let parts = wanted.iter().flat_map(Rule::parts);
    let uncovered = parts.filter(|part| !held.iter().any(|rule| rule.covers(part)));
    let mut lines: Vec<String> = merge_verbs(uncovered).iter().map(Rule::compact).collect();
    lines.sort();
    lines.dedup();
    lines
}

/// Merges parts for the same resource into one rule with several verbs.
fn merge_verbs(parts: impl Iterator<Item = Rule>) -> Vec<Rule> {
    let mut merged: Vec<Rule> = Vec::new();
    for part in parts {
        let same = |r: &&mut Rule| {
            part.urls.is_empty() && (&r.groups, &r.resources, &r.names) == (&part.groups, &part.resources, &part.names)
        };
        match merged.iter_mut().find(same) {
            Some(rule) => rule.verbs.extend(part.verbs),
            None => merged.push(part),
        }
    }
    merged
}

fn has(set: &[String], wanted: &str) -> bool {
    set.iter().any(|s| s == wanted)
}

fn has_or_all(set: &[String], wanted: &str) -> bool {
    set.iter().any(|s| s == ALL || s == wanted)
}

/// Matches `*`, `pods`, `pods/status` and `*/status`. upstream: `pods/*` is not a pattern and matches only itself.
fn resource_covers(pattern: &str, resource: &str, subresource: &str) -> bool {
    if pattern == ALL || subresource.is_empty() {
        return pattern == ALL || pattern == resource;
    }
    let head = pattern.strip_suffix(subresource).and_then(|head| head.strip_suffix('/'));
    head.is_some_and(|head| head == ALL || head == resource)
}

fn url_covers(pattern: &str, path: &str) -> bool {
    pattern == path || (pattern.ends_with('*') && path.starts_with(pattern.trim_end_matches('*')))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `VERBS GROUPS RESOURCES [NAMES]`, or `VERBS url URLS`; `core` is the empty group.
    fn rule(text: &str) -> Rule {
        let list = |t: &str| t.split(',').map(|w| if w == "core" { String::new() } else { w.to_owned() }).collect();
        match text.split(' ').collect::<Vec<_>>()[..] {
            [verbs, "url", urls] => Rule { verbs: list(verbs), urls: list(urls), ..Rule::default() },
            [verbs, groups, resources] => {
                Rule { verbs: list(verbs), groups: list(groups), resources: list(resources), ..Rule::default() }
            }
            [verbs, groups, resources, names] => Rule {
                verbs: list(verbs),
                groups: list(groups),
                resources: list(resources),
                names: list(names),
                ..Rule::default()
            },
            _ => panic!("{text}"),
        }
    }

    /// `VERB GROUP RESOURCE[/SUB] [NAME]`, or `VERB /path`.
    fn attributes(text: &str) -> Attributes {
        let words: Vec<&str> = text.split(' ').collect();
        let mut attributes = Attributes { verb: words[0].to_owned(), ..Attributes::default() };
        if words[1].starts_with('/') {
            attributes.path = words[1].to_owned();
            return attributes;
        }
        attributes.group = words[1].replace("core", "");
        let (resource, subresource) = words[2].split_once('/').unwrap_or((words[2], ""));
        (attributes.resource, attributes.subresource) = (resource.to_owned(), subresource.to_owned());
        attributes.name = words.get(3).map(|n| (*n).to_owned()).unwrap_or_default();
        attributes
    }

    #[test]
    fn a_rule_allows_what_it_names() {
        let cases = [
            ("get core pods", "get core pods", true),
            ("get core pods", "list core pods", false),
            ("get core pods", "get apps pods", false),
            ("get core pods", "get core pods/status", false),
            ("* * *", "anything some.group things/status x", true),
            ("* * *", "get /metrics", false),
            ("get core pods/status", "get core pods/status", true),
            ("get core pods/status", "get core pods", false),
            ("get core */status", "get core pods/status", true),
            ("get core */status", "get core pods/xstatus", false),
            ("get core */status", "get core pods", false),
            ("get core pods/*", "get core pods/status", false),
            ("get core secrets only", "get core secrets only", true),
            ("get core secrets only", "get core secrets other", false),
            ("list core secrets only", "list core secrets", false),
            ("get url /healthz", "get /healthz", true),
            ("get url /healthz", "get /healthz/x", false),
            ("get url /healthz/*", "get /healthz/x", true),
            ("get url /healthz/*", "get /healthz", false),
            ("get url *", "get /metrics", true),
            ("get url *", "post /metrics", false),
            ("get url *", "get core pods", false),
        ];
        for (given, request, allowed) in cases {
            assert_eq!(rule(given).allows(&attributes(request)), allowed, "{given} / {request}");
        }
    }

    #[test]
    fn missing_permissions_are_listed_by_resource() {
        let cases: [(&[&str], &[&str], &[&str]); 9] = [
            (&["get,list core pods"], &["get core pods"], &[]),
            (&["* * *"], &["get core pods/log x"], &[]),
            (&["* * *"], &["get url /x"], &[r#"{NonResourceURLs:["/x"], Verbs:["get"]}"#]),
            (
                &[],
                &["get,list core,apps pods,nodes"],
                &[
                    r#"{APIGroups:[""], Resources:["nodes"], Verbs:["get" "list"]}"#,
                    r#"{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}"#,
                    r#"{APIGroups:["apps"], Resources:["nodes"], Verbs:["get" "list"]}"#,
                    r#"{APIGroups:["apps"], Resources:["pods"], Verbs:["get" "list"]}"#,
                ],
            ),
            (&["get core pods"], &["get,list core pods"], &[r#"{APIGroups:[""], Resources:["pods"], Verbs:["list"]}"#]),
            (
                &["get core secrets a"],
                &["get core secrets a,b", "get core secrets"],
                &[
                    r#"{APIGroups:[""], Resources:["secrets"], ResourceNames:["b"], Verbs:["get"]}"#,
                    r#"{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}"#,
                ],
            ),
            (&["get core */status"], &["get core pods/status,*/status"], &[]),
            (
                &["get url /a/*"],
                &["get,put url /a/b,/a"],
                &[
                    r#"{NonResourceURLs:["/a"], Verbs:["get"]}"#,
                    r#"{NonResourceURLs:["/a"], Verbs:["put"]}"#,
                    r#"{NonResourceURLs:["/a/b"], Verbs:["put"]}"#,
                ],
            ),
            (&["get core pods"], &["* core pods"], &[r#"{APIGroups:[""], Resources:["pods"], Verbs:["*"]}"#]),
        ];
        for (held, wanted, lines) in cases {
            let held: Vec<Rule> = held.iter().map(|r| rule(r)).collect();
            let wanted: Vec<Rule> = wanted.iter().map(|r| rule(r)).collect();
            assert_eq!(missing(&held.iter().collect::<Vec<_>>(), &wanted), lines, "{held:?} / {wanted:?}");
        }
    }
}
