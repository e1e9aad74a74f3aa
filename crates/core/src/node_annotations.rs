//! Annotations that a provider keeps on a Node.
//!
//! The provider owns the keys that it names: its value replaces another one, at initialisation and at every sync after it.
//! Keys that it does not name, or no longer names, are left alone. Keys that belong to Kubernetes and to operators are
//! refused: a tag in the cloud must neither move a Node's address nor allow its deletion.
// upstream: there are none; each provider that needs some has a controller of its own for it.

use std::collections::BTreeMap;

use crate::Node;
use crate::initialize::is_kubernetes_namespace;

/// Values by key; `None` removes the annotation.
pub type AnnotationValues = BTreeMap<String, Option<String>>;

/// Prefix of the annotations and labels with which operators control Bowline.
const OPERATORS: &str = "bowline.dev/";

/// Changes to the annotations of a Node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AnnotationChange {
    /// Annotations to write: only those that differ.
    pub values: AnnotationValues,
    /// One sentence for each key that is refused, for the log.
    pub warnings: Vec<String>,
}

/// Compares the annotations of `node` with those that its provider names.
pub fn decide<'a>(node: &Node, wanted: impl IntoIterator<Item = (&'a String, Option<&'a String>)>) -> AnnotationChange {
    let mut change = AnnotationChange::default();
    for (key, value) in wanted {
        if is_kubernetes_namespace(key) || key.starts_with(OPERATORS) {
            let why = "keys under kubernetes.io, k8s.io and bowline.dev are not for clouds to set";
            change.warnings.push(format!("annotation {key} is not written to node {}: {why}", node.name));
        } else if node.annotations.get(key) != value {
            change.values.insert(key.clone(), value.cloned());
        }
    }
    change
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::node;
    use crate::well_known::{ALLOW_DELETION, PROVIDED_NODE_IP};

    fn decided(wanted: &[(&str, Option<&str>)]) -> AnnotationChange {
        let annotations = [("a.example/rack", "r1"), ("other.example/kept", "x")];
        let annotations = annotations.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let wanted: AnnotationValues =
            wanted.iter().map(|(key, value)| ((*key).to_owned(), value.map(str::to_owned))).collect();
        decide(&Node { annotations, ..node("n") }, wanted.iter().map(|(key, value)| (key, value.as_ref())))
    }

    #[test]
    fn only_differences_are_written_and_the_provider_wins() {
        assert_eq!(decided(&[("a.example/rack", Some("r1")), ("a.example/gone", None)]), AnnotationChange::default());
        let change = decided(&[("a.example/rack", Some("r2")), ("a.example/new", Some(""))]);
        let values = [("a.example/new", Some("")), ("a.example/rack", Some("r2"))];
        assert_eq!(
            change.values,
            values.map(|(key, value)| (key.to_owned(), value.map(str::to_owned))).into(),
            "a key that is not named stays"
        );
        assert_eq!(decided(&[("a.example/rack", None)]).values, [("a.example/rack".to_owned(), None)].into());
    }

    #[test]
    fn keys_of_kubernetes_and_of_operators_are_refused() {
        for key in [PROVIDED_NODE_IP, ALLOW_DELETION, "node.k8s.io/x"] {
            let change = decided(&[(key, Some("true"))]);
            assert!(change.values.is_empty() && change.warnings.len() == 1, "{key}: {change:?}");
        }
    }
}
