//! Names that must not be mixed up.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The name of a Node. Cheap to clone: it is the key of queues, stores and maps.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeName(Arc<str>);

/// `--cluster-name`: what a cloud's resources are marked with, so that two clusters in one account do not meet.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClusterName(Arc<str>);

/// `spec.providerID` of a Node, such as `openstack:///8f2c…`: which machine, in which cloud. Never empty.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProviderId(Arc<str>);

impl ProviderId {
    /// The ID in `text`, unless that is empty: Kubernetes does not tell an empty ID from none.
    pub fn new(text: &str) -> Option<ProviderId> {
        (!text.is_empty()).then(|| ProviderId(text.into()))
    }

    /// `prefix://id`, the form that new IDs have.
    pub fn of(prefix: &str, id: &str) -> ProviderId {
        ProviderId(format!("{prefix}://{id}").into())
    }

    /// What stands before `://`, and so says whose it is; `None` if there is no such mark.
    pub fn prefix(&self) -> Option<&str> {
        self.0.split_once("://").map(|(prefix, _)| prefix)
    }

    /// What stands behind `://`; how to read it is the provider's affair.
    pub fn rest(&self) -> Option<&str> {
        self.0.split_once("://").map(|(_, rest)| rest)
    }
}

/// The three are texts with a meaning; reading them as text is always allowed.
macro_rules! text {
    ($name:ident) => {
        impl $name {
            /// The name as text.
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

text!(NodeName);
text!(ClusterName);
text!(ProviderId);

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
    fn a_provider_id_is_split_at_its_first_mark() {
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
    fn a_map_by_name_is_searched_by_text() {
        let map = BTreeMap::from([(NodeName::from("n1"), 1)]);
        assert_eq!(map.get("n1"), Some(&1));
    }

    #[test]
    fn names_print_quoted_for_people_who_debug_and_plain_for_others() {
        let name = NodeName::from("n1");
        assert_eq!((format!("{name}"), format!("{name:?}")), ("n1".to_owned(), "\"n1\"".to_owned()));
        assert_eq!(serde_json::to_string(&name).unwrap(), "\"n1\"");
    }
}
