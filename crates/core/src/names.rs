//! Newtypes for names and IDs that must not be confused.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Name of a Node. Cheap to clone, because it is the key of queues, stores and maps.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeName(Arc<str>);

/// `--cluster-name`: the name of the cluster. It is part of the mark on its cloud resources, so that several clusters can share an
/// account.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClusterName(Arc<str>);

/// `spec.providerID` of a Node, such as `openstack:///8f2c…`: identifies the cloud and the machine. Never empty.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProviderId(Arc<str>);

impl ProviderId {
    /// Creates an ID; `None` if `text` is empty, because Kubernetes does not distinguish an empty ID from a missing one.
    pub fn new(text: &str) -> Option<ProviderId> {
        (!text.is_empty()).then(|| ProviderId(text.into()))
    }

    /// Creates the ID `prefix://id`, the format of new IDs.
    pub fn of(prefix: &str, id: &str) -> ProviderId {
        ProviderId(format!("{prefix}://{id}").into())
    }

    /// Returns the part before `://`, which identifies the provider; `None` without a `://`.
    pub fn prefix(&self) -> Option<&str> {
        self.0.split_once("://").map(|(prefix, _)| prefix)
    }

    /// Returns the part after `://`, whose format is defined by the provider; `None` without a `://`.
    pub fn rest(&self) -> Option<&str> {
        self.0.split_once("://").map(|(_, rest)| rest)
    }
}

/// Implements read access as `str` and formatting for a newtype around `Arc<str>`.
macro_rules! string_newtype {
    ($name:ident) => {
        impl $name {
            /// Returns the value as a string slice.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                &*self.0 == other
            }
        }
        impl PartialEq<&str> for $name {
            fn eq(&self, other: &&str) -> bool {
                &*self.0 == *other
            }
        }
    };
}

string_newtype!(NodeName);
string_newtype!(ClusterName);
string_newtype!(ProviderId);

impl From<&str> for NodeName {
    fn from(text: &str) -> NodeName {
        NodeName(text.into())
    }
}

impl From<String> for NodeName {
    fn from(text: String) -> NodeName {
        NodeName(text.into())
    }
}

impl From<&str> for ClusterName {
    fn from(text: &str) -> ClusterName {
        ClusterName(text.into())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn an_empty_provider_id_is_none() {
        assert_eq!(ProviderId::new(""), None);
        assert_eq!(ProviderId::new("x").map(|id| id.to_string()), Some("x".to_owned()));
    }

    #[test]
    fn a_provider_id_is_split_at_the_first_separator() {
        let cases = [
            ("openstack:///8f2c", Some("openstack"), Some("/8f2c")),
            ("openstack://region/8f2c", Some("openstack"), Some("region/8f2c")),
            ("a://b://c", Some("a"), Some("b://c")),
            ("aws://", Some("aws"), Some("")),
            ("://x", Some(""), Some("x")),
            ("8f2c", None, None),
            ("openstack:/8f2c", None, None),
        ];
        for (text, prefix, rest) in cases {
            let id = ProviderId::new(text).unwrap();
            assert_eq!((id.prefix(), id.rest()), (prefix, rest), "{text}");
        }
        assert_eq!(ProviderId::of("fake", "12345"), *"fake://12345");
    }

    #[test]
    fn a_map_keyed_by_name_can_be_searched_by_str() {
        let map = BTreeMap::from([(NodeName::from("n1"), 1)]);
        assert_eq!(map.get("n1"), Some(&1));
    }

    #[test]
    fn names_are_formatted_plain_with_display_and_quoted_with_debug() {
        let name = NodeName::from("n1");
        assert_eq!((format!("{name}"), format!("{name:?}")), ("n1".to_owned(), "\"n1\"".to_owned()));
        assert_eq!(serde_json::to_string(&name).unwrap(), "\"n1\"");
    }
}
