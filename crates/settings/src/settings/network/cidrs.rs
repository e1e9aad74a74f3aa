//! Flags with one CIDR, or one of each IP family.

use bowline_config::{ConfigError, ConfigErrors};
use bowline_core::parse_cidr;
use ipnet::IpNet;

/// Value of a CIDR flag, as far as it could be parsed.
#[derive(Debug)]
pub struct CidrFlag {
    /// Number of parts, valid or not.
    parts: usize,
    /// Valid parts.
    pub cidrs: Vec<IpNet>,
    /// Whether all parts are valid; otherwise the errors have been reported.
    is_valid: bool,
}

/// Parses `--cluster-cidr`.
// upstream: validated only if a controller needs it. Here an invalid value is always an error.
pub fn parse_cluster_cidr(text: &str, errors: &mut ConfigErrors) -> CidrFlag {
    let text = text.trim();
    let parts: Vec<_> = if text.is_empty() { Vec::new() } else { text.split(',').collect() };
    // upstream: this message, which differs from that of the other flag.
    let too_many = format!("length of clusterCIDRs is:{} more than max allowed of 2", parts.len());
    CidrFlag::parse("cluster-cidr", &parts, too_many, errors)
}

/// Parses `--service-cluster-ip-range`.
// upstream: an invalid value is logged and ignored, and pods then get the addresses of Services. Here it is an error. Empty parts
// are ignored in both.
pub(super) fn parse_service_cidr(text: &str, errors: &mut ConfigErrors) -> CidrFlag {
    let parts: Vec<_> = text.split(',').filter(|part| !part.trim().is_empty()).collect();
    let too_many = format!("--service-cluster-ip-range can not contain more than two entries, but has {}", parts.len());
    CidrFlag::parse("service-cluster-ip-range", &parts, too_many, errors)
}

impl CidrFlag {
    fn parse(flag: &str, parts: &[&str], too_many: String, errors: &mut ConfigErrors) -> CidrFlag {
        let mut value = CidrFlag { parts: parts.len(), cidrs: Vec::new(), is_valid: true };
        let mut found = ConfigErrors::new();
        for (index, part) in parts.iter().enumerate() {
            match parse_cidr(part) {
                Some(range) => value.cidrs.push(range),
                None => found.push(invalid_cidr(flag, index, part)),
            }
        }
        let hint = "use one range, or one IPv4 and one IPv6 range";
        if parts.len() > 2 {
            found.push(ConfigError::flag(flag, too_many).hint(hint));
        } else if value.are_of_one_family() {
            // upstream: the message from "not" on.
            let message =
                format!("{} are not configured as dual stack (at least one from each IPFamily)", parts.join(" and "));
            found.push(ConfigError::flag(flag, message).hint(hint));
        }
        value.is_valid = found.is_empty();
        errors.extend(found);
        value
    }

    /// Whether the flag is not set.
    pub(super) fn is_unset(&self) -> bool {
        self.parts == 0
    }

    pub(super) fn is_valid(&self) -> bool {
        self.is_valid
    }

    /// Whether the flag has one CIDR of each family, even if one of them is invalid.
    pub(super) fn is_dual_stack(&self) -> bool {
        self.parts == 2 && !self.are_of_one_family()
    }

    /// Returns the CIDR if the flag has exactly one and it is valid.
    pub(super) fn only(&self) -> Option<&IpNet> {
        self.cidrs.first().filter(|_| self.parts == 1)
    }

    fn are_of_one_family(&self) -> bool {
        matches!(*self.cidrs, [IpNet::V4(_), IpNet::V4(_)] | [IpNet::V6(_), IpNet::V6(_)])
    }
}

// upstream: "invalid CIDR[1]" and "invalid CIDR address", which users search for. Spaces are not trimmed, as upstream: a value that
// only one of the managers accepts would break the way back.
fn invalid_cidr(flag: &str, index: usize, part: &str) -> ConfigError {
    let hint = match parse_cidr(part.trim()) {
        Some(_) => format!("remove the space: {}", part.trim()),
        None => "use a CIDR such as 10.244.0.0/16 or fd00:10:244::/56, or one of each, separated by a comma".to_owned(),
    };
    ConfigError::flag(flag, format!("invalid CIDR[{index}]: invalid CIDR address: {part:?}")).hint(hint)
}

/// Compares pod and Service CIDRs: an overlap is excluded from allocation (I2), and a full overlap is an error.
pub(super) fn compare(pods: &[IpNet], services: &[IpNet], warnings: &mut Vec<String>, errors: &mut ConfigErrors) {
    for (pods, services) in pods.iter().flat_map(|pods| services.iter().map(move |services| (pods, services))) {
        if services.contains(pods) {
            let message =
                format!("{services} covers the whole of --cluster-cidr {pods}, so that no pod CIDR can be allocated");
            let hint = "use separate ranges for Services and pods";
            errors.push(ConfigError::flag("service-cluster-ip-range", message).hint(hint));
        } else if pods.contains(services) {
            warnings.push(format!(
                "--service-cluster-ip-range {services} is inside --cluster-cidr {pods}: pod CIDRs that overlap it are not allocated"
            ));
        }
    }
}
