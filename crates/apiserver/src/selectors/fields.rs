//! Field selectors: `metadata.name=a,status.phase!=Running`.
//!
//! A value may contain `,`, `=` and `\` if each is escaped with `\`. Each kind defines its selectable fields.

use crate::resources::Resource;
use crate::status::{ApiError, ApiResult};
use crate::store::Stored;

const NAME: &str = "metadata.name";
const NAMESPACE: &str = "metadata.namespace";

/// A parsed field selector; an empty one matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldSelector {
    terms: Vec<Term>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    label: String,
    value: String,
    equal: bool,
}

impl FieldSelector {
    /// Parses the `fieldSelector` parameter for one resource.
    pub(crate) fn parse(resource: &Resource, text: &str) -> ApiResult<FieldSelector> {
        FieldSelector::parse_unchecked(text)?.for_resource(resource)
    }

    /// Parses the `fieldSelector` parameter without checking its fields.
    pub(crate) fn parse_unchecked(text: &str) -> ApiResult<FieldSelector> {
        parse_terms(text).map(|terms| FieldSelector { terms }).map_err(ApiError::bad_request)
    }

    /// Maps the fields to the kind's own labels; fails if the kind does not support one.
    pub(crate) fn for_resource(self, resource: &Resource) -> ApiResult<FieldSelector> {
        let own = |term: Term| Ok(Term { label: resource_label(resource, &term.label)?, ..term });
        let terms: Result<_, String> = self.terms.into_iter().map(own).collect();
        terms.map(|terms| FieldSelector { terms }).map_err(ApiError::bad_request)
    }

    /// The selector `metadata.name=NAME`.
    pub(crate) fn by_name(name: &str) -> FieldSelector {
        FieldSelector { terms: vec![Term { label: NAME.into(), value: name.into(), equal: true }] }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    pub(crate) fn matches(&self, object: &Stored) -> bool {
        self.terms.iter().all(|term| (field(object, &term.label) == term.value) == term.equal)
    }

    /// The name in `metadata.name=NAME`.
    pub(crate) fn exact_name(&self) -> Option<&str> {
        self.terms.iter().find(|term| term.equal && term.label == NAME).map(|term| term.value.as_str())
    }
}

/// The value of a field label; empty if the object does not have it.
fn field<'o>(object: &'o Stored, label: &str) -> &'o str {
    match label {
        NAME => &object.key.name,
        NAMESPACE => &object.key.namespace,
        label => object.fields.iter().find(|(own, _)| *own == label).map_or("", |(_, value)| value),
    }
}

/// The kind's field label for the label in a request.
fn resource_label(resource: &Resource, label: &str) -> Result<String, String> {
    let Some(own) = resource.strategy.field_labels() else {
        return match label {
            NAME | NAMESPACE => Ok(label.to_owned()),
            _ => Err(format!("{label:?} is not a known field selector: only \"{NAME}\", \"{NAMESPACE}\"")),
        };
    };
    let alias = resource.strategy.field_alias(label);
    let known = alias == NAME || (alias == NAMESPACE && resource.namespaced) || own.contains(&alias);
    if known { Ok(alias.to_owned()) } else { Err(format!("field label not supported: {label}")) }
}

fn parse_terms(text: &str) -> Result<Vec<Term>, String> {
    let mut parts = split_terms(text);
    // upstream: terms are processed in sorted order, which determines the first error.
    parts.sort_unstable();
    parts.retain(|part| !part.is_empty());
    parts.into_iter().map(|part| parse_term(text, part)).collect()
}

/// Splits at commas that are not escaped.
fn split_terms(text: &str) -> Vec<&str> {
    let mut escaped = false;
    let is_end = |c: char| {
        let ends = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    };
    text.split(is_end).collect()
}

fn parse_term(selector: &str, term: &str) -> Result<Term, String> {
    let (label, equal, value) =
        split_operator(term).ok_or_else(|| format!("invalid selector: '{selector}'; can't understand '{term}'"))?;
    Ok(Term { label: label.to_owned(), value: unescape(value)?, equal })
}

/// Splits a term at the first operator into label, whether the value must be equal, and value.
fn split_operator(term: &str) -> Option<(&str, bool, &str)> {
    const OPERATORS: [(&str, bool); 3] = [("!=", false), ("==", true), ("=", true)];
    let at = OPERATORS.iter().filter_map(|(operator, _)| term.find(operator)).min()?;
    let (label, rest) = term.split_at(at);
    OPERATORS.into_iter().find_map(|(operator, equal)| Some((label, equal, rest.strip_prefix(operator)?)))
}

fn unescape(value: &str) -> Result<String, String> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | ',' | '=')) => out.push(escaped),
                other => return Err(invalid_escape(other)),
            },
            // upstream: the character is printed as its code point.
            ',' | '=' => {
                let code = u32::from(c);
                return Err(format!("invalid field selector: unescaped character in value: {code}"));
            }
            c => out.push(c),
        }
    }
    Ok(out)
}

fn invalid_escape(escaped: Option<char>) -> String {
    let sequence: String = ['\\'].into_iter().chain(escaped).collect();
    format!("invalid field selector: invalid escape sequence: {sequence}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::RESOURCES;
    use crate::store::{Draft, Expect, Store};
    use serde_json::{Value, json};

    fn resource(plural: &str) -> &'static Resource {
        RESOURCES.iter().find(|r| r.plural == plural).unwrap()
    }

    fn message(plural: &str, selector: &str) -> String {
        FieldSelector::parse(resource(plural), selector).unwrap_err().message
    }

    #[test]
    fn errors_match_upstream_messages() {
        let unknown = "is not a known field selector: only \"metadata.name\", \"metadata.namespace\"";
        for (plural, selector, want) in [
            ("configmaps", "metadata.uid=x", format!("\"metadata.uid\" {unknown}")),
            ("configmaps", "=x", format!("\"\" {unknown}")),
            (
                "configmaps",
                "metadata.name in (a)",
                "invalid selector: 'metadata.name in (a)'; can't understand 'metadata.name in (a)'".into(),
            ),
            (
                "configmaps",
                "metadata.name>a",
                "invalid selector: 'metadata.name>a'; can't understand 'metadata.name>a'".into(),
            ),
            ("configmaps", "metadata.name=a\\", "invalid field selector: invalid escape sequence: \\".into()),
            ("configmaps", "metadata.name=\\a", "invalid field selector: invalid escape sequence: \\a".into()),
            ("configmaps", "metadata.name=a=b", "invalid field selector: unescaped character in value: 61".into()),
            ("nodes", "spec.providerID=x", "field label not supported: spec.providerID".into()),
            ("nodes", "metadata.namespace=x", "field label not supported: metadata.namespace".into()),
            ("secrets", "data=1", "field label not supported: data".into()),
            ("events", "count=1", "field label not supported: count".into()),
        ] {
            assert_eq!(message(plural, selector), want, "{plural} {selector}");
        }
    }

    #[test]
    fn escapes_keep_commas_and_equal_signs_in_values() {
        let terms = parse_terms("b=x\\,y\\=\\\\,a!=1,,c==2").unwrap();
        let shown: Vec<_> = terms.iter().map(|t| (t.label.as_str(), t.equal, t.value.as_str())).collect();
        assert_eq!(shown, [("a", false, "1"), ("b", true, "x,y=\\"), ("c", true, "2")]);
    }

    #[test]
    fn an_exact_name_is_extracted() {
        let exact = |text| FieldSelector::parse(resource("configmaps"), text).unwrap().exact_name().map(str::to_owned);
        assert_eq!(exact("metadata.name=a"), Some("a".to_owned()));
        assert_eq!(exact("metadata.namespace=n,metadata.name==b"), Some("b".to_owned()));
        assert_eq!(exact("metadata.name!=a"), None);
        assert_eq!(exact(""), None);
    }

    fn matches(plural: &str, object: Value, selector: &str) -> bool {
        let resource = resource(plural);
        let store = Store::new();
        let stored = store.put(resource.storage, Expect::Absent, Draft::new(resource, &object)).unwrap();
        FieldSelector::parse(resource, selector).unwrap().matches(&stored)
    }

    #[test]
    fn objects_match_by_key_and_by_field_labels() {
        let secret =
            json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "n"}, "type": "t,u"});
        for (selector, want) in [
            ("", true),
            ("metadata.name=a,metadata.namespace=n", true),
            ("metadata.namespace!=n", false),
            ("type=t\\,u", true),
            ("type!=t\\,u", false),
            ("type=", false),
            ("type!=x,type!=y", true),
        ] {
            assert_eq!(matches("secrets", secret.clone(), selector), want, "{selector}");
        }
        let role = json!({"kind": "ClusterRole", "apiVersion": "v1", "metadata": {"name": "r"}});
        assert!(matches("clusterroles", role.clone(), "metadata.namespace="));
        assert!(!matches("clusterroles", role, "metadata.namespace=x"));
    }

    #[test]
    fn events_are_selected_by_the_labels_of_either_api_group() {
        let addresses = ["", "events.k8s.io"].map(|group| crate::resources::find(group, "v1", "events").unwrap());
        let event = json!({
            "kind": "Event", "apiVersion": "v1", "metadata": {"name": "e", "namespace": "n"},
            "involvedObject": {"kind": "Node", "name": "a"}, "reportingComponent": "c", "reason": "R",
        });
        let common = ["metadata.name=e", "reason=R", "type="];
        let core = ["involvedObject.kind=Node,involvedObject.name=a", "reportingComponent=c"];
        let new = ["regarding.kind=Node,regarding.name=a", "reportingController=c"];
        for written_as in addresses {
            let store = Store::new();
            let stored = store.put(written_as.storage, Expect::Absent, Draft::new(written_as, &event)).unwrap();
            for (read_as, own, foreign) in [(addresses[0], core, new), (addresses[1], new, core)] {
                for selector in common.iter().chain(&own) {
                    assert!(FieldSelector::parse(read_as, selector).unwrap().matches(&stored), "{selector}");
                    let other = format!("{selector}x");
                    assert!(!FieldSelector::parse(read_as, &other).unwrap().matches(&stored), "{other}");
                }
                for selector in foreign {
                    let label = selector.split('=').next().unwrap();
                    let rejected = FieldSelector::parse(read_as, selector).unwrap_err().message;
                    assert_eq!(rejected, format!("field label not supported: {label}"));
                }
            }
        }
    }
}
