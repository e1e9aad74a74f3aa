//! Who may connect (helper 1.8, H1 to H4).

use std::collections::BTreeSet;

use ipnet::IpNet;

use super::Service;

/// A range that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {text:?} is not a range like 10.0.0.0/8")]
pub struct RangeError {
    /// The field or the annotation.
    pub place: &'static str,
    /// What stands there.
    pub text: String,
}

/// The ranges from which clients may connect: those of the field, else of our annotation, else of the old annotation, else
/// `0.0.0.0/0`. As a set of networks: host bits are cleared, and doubles are one.
pub fn source_ranges(service: &Service) -> Result<BTreeSet<IpNet>, RangeError> {
    let _ = service;
    todo!()
}

/// Everybody may connect: `0.0.0.0/0` is among them.
// upstream: `::/0` does not count.
pub fn is_allow_all(ranges: &BTreeSet<IpNet>) -> bool {
    let _ = ranges;
    todo!()
}
