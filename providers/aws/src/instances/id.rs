//! Provider IDs: `aws:///ZONE/INSTANCE`.
//!
//! The last element of the path decides: an EC2 instance (`i-…`) or a Fargate Pod (`fargate-…`). The zone is the first one.

use bowline_cloud::{Error, ErrorKind, Result};
use bowline_core::ProviderId;

use super::zones::region_of;
use crate::NAME;

/// Prefix of instance IDs.
pub(super) const INSTANCE: &str = "i-";

/// Prefix of the last element of a Fargate Node's provider ID.
pub(super) const FARGATE: &str = "fargate-";

/// A provider ID of AWS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parsed {
    /// Zone; empty if the ID has none.
    pub(super) zone: String,
    /// Instance ID, or the last element of a Fargate Node's provider ID.
    pub(super) machine: String,
}

impl Parsed {
    /// Returns whether the machine may be in this region. An ID without a zone, or with an unknown format, may.
    pub(super) fn may_be_in(&self, region: &str) -> bool {
        region_of(&self.zone).is_none_or(|other| other == region)
    }
}

/// Returns whether this is the ID of a Fargate Node.
pub(crate) fn is_fargate(machine: &str) -> bool {
    machine.starts_with(FARGATE)
}

/// Returns whether AWS is the owner of a provider ID: by its prefix, or by its format if it has none.
pub(crate) fn owns(id: &ProviderId) -> bool {
    match id.prefix() {
        Some(prefix) => prefix == NAME,
        None => parse(id).is_ok_and(|parsed| parsed.is_some()),
    }
}

/// Returns the provider ID of an instance.
pub(crate) fn provider_id(zone: &str, instance: &str) -> ProviderId {
    ProviderId::of(NAME, &format!("/{zone}/{instance}"))
}

/// Returns the ID of the EC2 instance in a provider ID; `None` for a Fargate Node and for another cloud.
pub(crate) fn instance_id(id: &ProviderId) -> Result<Option<String>> {
    let invalid = |why| Error::new(ErrorKind::InvalidConfig, "read provider ID", why);
    let parsed = parse(id).map_err(invalid)?.filter(|parsed| !is_fargate(&parsed.machine));
    Ok(parsed.map(|parsed| parsed.machine))
}

/// Parses a provider ID; `None` if it is the ID of another cloud.
// upstream: an ID of another cloud whose path ends with `/i-…` counts as an instance ID.
pub(super) fn parse(id: &ProviderId) -> std::result::Result<Option<Parsed>, String> {
    let path = match (id.prefix(), id.rest()) {
        (Some(NAME), Some(rest)) => path_of(id, rest)?,
        (Some(_), _) => return Ok(None),
        (None, _) => path_of(id, &format!("/{id}"))?,
    };
    let mut elements: Vec<_> = path.trim_matches('/').split('/').collect();
    let machine = elements.pop().filter(|last| last.starts_with(INSTANCE) || is_fargate(last));
    let machine = machine.ok_or_else(|| format!("Invalid format for AWS instance ({id})"))?.to_owned();
    Ok(Some(Parsed { zone: elements.first().copied().unwrap_or_default().to_owned(), machine }))
}

/// Returns the path of the URL with this rest after its scheme, without host, query and fragment.
fn path_of(id: &ProviderId, rest: &str) -> std::result::Result<String, String> {
    let whole = rest.split(['?', '#']).next().unwrap_or_default();
    let path = whole.find('/').and_then(|at| whole.get(at..)).unwrap_or_default();
    let invalid = |why: String| format!("Invalid instance name ({id}): parse {:?}: {why}", id.as_str());
    if id.as_str().chars().any(|c| c.is_ascii_control()) {
        return Err(invalid("net/url: invalid control character in URL".to_owned()));
    }
    unescaped(path).map_err(invalid)
}

/// Decodes `%XX` escapes.
fn unescaped(path: &str) -> std::result::Result<String, String> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut parts = path.split('%');
    decoded.extend_from_slice(parts.next().unwrap_or_default().as_bytes());
    for part in parts {
        let digits = part.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let shown = || part.get(..2).unwrap_or(part);
        decoded.push(byte.ok_or_else(|| format!("invalid URL escape {:?}", format!("%{}", shown())))?);
        decoded.extend_from_slice(part.get(2..).unwrap_or_default().as_bytes());
    }
    String::from_utf8(decoded).map_err(|_| "the path is not UTF-8 text".to_owned())
}

/// Returns the error for the Node whose provider ID is invalid. Its spec never changes by itself.
pub(super) fn invalid(node: &str, why: String) -> Error {
    let operation = format!("failed to map provider ID to AWS instance ID for node {node}");
    Error::new(ErrorKind::InvalidConfig, operation, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> std::result::Result<Option<(String, String)>, String> {
        let id = ProviderId::new(text).expect("not empty");
        parse(&id).map(|parsed| parsed.map(|parsed| (parsed.zone, parsed.machine)))
    }

    #[test]
    fn the_last_element_of_the_path_is_the_machine() {
        for (text, zone, machine) in [
            ("aws:///us-east-1a/i-12345678", "us-east-1a", "i-12345678"),
            ("aws:////i-12345678", "", "i-12345678"),
            ("i-12345678", "", "i-12345678"),
            (
                "aws:///us-east-1a/fargate-ip-192-168-1-1.ec2.internal",
                "us-east-1a",
                "fargate-ip-192-168-1-1.ec2.internal",
            ),
            ("aws:///us-west-2c/1abc-2def/fargate-192.168.164.88", "us-west-2c", "fargate-192.168.164.88"),
            ("aws://acct/us-east-1a/i-1", "us-east-1a", "i-1"),
            ("aws:///us-east-1a/i-1/", "us-east-1a", "i-1"),
            ("aws:///a/i-1?x", "a", "i-1"),
            ("aws:///a/i-1#x", "a", "i-1"),
            ("aws:///a/i-%31", "a", "i-1"),
            ("aws:///a/i-", "a", "i-"),
        ] {
            assert_eq!(parsed(text), Ok(Some((zone.to_owned(), machine.to_owned()))), "{text}");
        }
    }

    #[test]
    fn other_ids_are_errors_or_of_another_cloud() {
        for text in ["aws:///us-east-1a/i-1/extra", "aws:///", "aws://", "aws:///us-east-1a/vol-1", "foo", "aws:i-1"] {
            assert_eq!(parsed(text), Err(format!("Invalid format for AWS instance ({text})")), "{text}");
        }
        for text in ["aws:///a/i-%zz", "aws:///a/i-%1", "aws:///a/i-%"] {
            let error = parsed(text).unwrap_err();
            assert!(error.starts_with(&format!("Invalid instance name ({text}): parse ")), "{error}");
        }
        for text in ["vsphere://4222", "gce://p/z/vm", "gce://p/z/i-node", "eks-hybrid:///us-east-1/c/i-node"] {
            assert_eq!(parsed(text), Ok(None), "{text}");
        }
    }

    #[test]
    fn an_id_belongs_to_aws_by_its_prefix_or_its_format() {
        for (text, expected) in [
            ("aws:///us-east-1a/i-1", true),
            ("aws:///us-east-1a/vol-1", true),
            ("i-1", true),
            ("foo", false),
            ("gce://p/z/i-1", false),
            ("eks-hybrid:///r/c/n", false),
        ] {
            assert_eq!(owns(&ProviderId::new(text).expect("not empty")), expected, "{text}");
        }
    }

    #[test]
    fn a_zone_of_another_region_is_recognised() {
        for (id, expected) in [
            ("aws:///us-east-1a/i-1", false),
            ("aws:///us-west-2a/i-1", true),
            ("aws:///us-west-2-lax-1a/i-1", true),
            ("aws:///us-west-2-wl1-las-wlz-1/i-1", true),
            ("aws:///us-gov-west-2a/i-1", false),
            ("aws:////i-1", true),
            ("aws:///a/i-1", true),
            ("i-1", true),
        ] {
            let parsed = parse(&ProviderId::new(id).expect("not empty")).unwrap().unwrap();
            assert_eq!(parsed.may_be_in("us-west-2"), expected, "{id}");
        }
    }

    #[test]
    fn only_instances_are_targets() {
        let target = |text: &str| instance_id(&ProviderId::new(text).expect("not empty"));
        assert_eq!(target("aws:///a/i-1").unwrap(), Some("i-1".to_owned()));
        for text in ["gce://p/z/i-1", "aws:///a/fargate-10.0.0.1"] {
            assert_eq!(target(text).unwrap(), None, "{text}");
        }
        let error = target("aws:///a/vol-1").unwrap_err().to_string();
        assert_eq!(error, "read provider ID: Invalid format for AWS instance (aws:///a/vol-1)");
    }
}
