//! Node annotations that a provider owns.
//!
//! The provider's value replaces any other value of the keys that it names, at initialisation and at every later sync. Keys that
//! it does not name, or no longer names, stay unchanged. Keys of Kubernetes and of operators are rejected: a tag in the cloud must
//! neither change a Node's address nor allow its deletion.
// upstream: has no such mechanism; a provider that needs annotations runs its own controller.

use std::collections::BTreeMap;

use crate::Node;
use crate::initialize::is_kubernetes_namespace;

/// Annotation values by key; `None` removes the annotation.
pub type AnnotationValues = BTreeMap<String, Option<String>>;

/// Prefix of the annotations and labels with which operators control Bowline.
const OPERATORS: &str = "bowline.dev/";

/// Changes to the annotations of a Node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AnnotationChange {
    /// Annotations to write, limited to those that differ.
    pub values: AnnotationValues,
    /// One message for each rejected key, for the log.
    pub warnings: Vec<String>,
}

/// Compares the annotations of `node` with those desired by its provider.
pub fn decide<'a>(
    node: &Node,
    desired: impl IntoIterator<Item = (&'a String, Option<&'a String>)>,
) -> AnnotationChange {
    let mut change = AnnotationChange::default();
    for (key, value) in desired {
        if is_kubernetes_namespace(key) || key.starts_with(OPERATORS) {
            let why = "keys under kubernetes.io, k8s.io and bowline.dev are reserved";
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

    fn decided(desired: &[(&str, Option<&str>)]) -> AnnotationChange {
        let annotations = [("a.example/rack", "r1"), ("other.example/kept", "x")];
        let annotations = annotations.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let desired: AnnotationValues =
            desired.iter().map(|(key, value)| ((*key).to_owned(), value.map(str::to_owned))).collect();
        decide(&Node { annotations, ..node("n") }, desired.iter().map(|(key, value)| (key, value.as_ref())))
    }

    #[test]
    fn only_differences_are_written_and_the_provider_wins() {
        assert_eq!(decided(&[("a.example/rack", Some("r1")), ("a.example/gone", None)]), AnnotationChange::default());
        let change = decided(&[("a.example/rack", Some("r2")), ("a.example/new", Some(""))]);
        let values = [("a.example/new", Some("")), ("a.example/rack", Some("r2"))];
        assert_eq!(
            change.values,
            values.map(|(key, value)| (key.to_owned(), value.map(str::to_owned))).into(),
            "a key that the provider does not name is kept"
        );
        assert_eq!(decided(&[("a.example/rack", None)]).values, [("a.example/rack".to_owned(), None)].into());
    }

    #[test]
    fn keys_of_kubernetes_and_of_operators_are_rejected() {
        for key in [PROVIDED_NODE_IP, ALLOW_DELETION, "node.k8s.io/x"] {
            let change = decided(&[(key, Some("true"))]);
            assert!(change.values.is_empty() && change.warnings.len() == 1, "{key}: {change:?}");
        }
    }
}
