//! Who may connect.

use std::net::IpAddr;

use ipnet::IpNet;

/// Ranges of addresses.
pub(crate) struct SourceFilter {
    allow: Vec<IpNet>,
}

impl SourceFilter {
    pub(crate) fn new(allow: &[IpNet]) -> SourceFilter {
        SourceFilter { allow: allow.to_vec() }
    }

    pub(crate) fn allows(&self, client: IpAddr) -> bool {
        self.allow.is_empty() || self.allow.iter().any(|range| range.contains(&client))
    }
}
