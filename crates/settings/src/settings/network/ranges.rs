//! The flags whose value is a range, or one of each family.

use bowline_config::{ConfigError, ConfigErrors};
use bowline_core::parse_cidr;
use ipnet::IpNet;

/// The value of such a flag, as far as it could be read.
#[derive(Debug)]
pub struct Ranges {
    /// How many there are or should be.
    parts: usize,
    /// The parts that are ranges.
    pub read: Vec<IpNet>,
    /// Nothing is wrong with it; otherwise that has been told.
    is_right: bool,
}

/// `--cluster-cidr`.
// upstream: looked at only where something needs it. A range that is wrong is wrong before that, too.
pub fn pods(text: &str, errors: &mut ConfigErrors) -> Ranges {
    let text = text.trim();
    let parts: Vec<_> = if text.is_empty() { Vec::new() } else { text.split(',').collect() };
    // upstream: these words, and others for the other flag.
    let too_many = format!("length of clusterCIDRs is:{} more than max allowed of 2", parts.len());
    Ranges::read("cluster-cidr", &parts, too_many, errors)
}

/// `--service-cluster-ip-range`.
// upstream: what does not parse is logged and ignored, and pods then get the addresses of Services. Nobody means that, so
// here it is a problem. A part that is empty is no part, in both.
pub(super) fn services(text: &str, errors: &mut ConfigErrors) -> Ranges {
    let parts: Vec<_> = text.split(',').filter(|part| !part.trim().is_empty()).collect();
    let too_many = format!("--service-cluster-ip-range can not contain more than two entries, and has {}", parts.len());
    Ranges::read("service-cluster-ip-range", &parts, too_many, errors)
}

impl Ranges {
    fn read(flag: &str, parts: &[&str], too_many: String, errors: &mut ConfigErrors) -> Ranges {
        let mut ranges = Ranges { parts: parts.len(), read: Vec::new(), is_right: true };
        let mut wrong = ConfigErrors::new();
        for (index, part) in parts.iter().enumerate() {
            match parse_cidr(part) {
                Some(range) => ranges.read.push(range),
                None => wrong.push(unreadable(flag, index, part)),
            }
        }
        let hint = "give one range, or one of IPv4 and one of IPv6";
        if parts.len() > 2 {
            wrong.push(ConfigError::flag(flag, too_many).hint(hint));
        } else if ranges.are_of_one_family() {
            // upstream: the words from "not" on.
            let message =
                format!("{} are not configured as dual stack (at least one from each IPFamily)", parts.join(" and "));
            wrong.push(ConfigError::flag(flag, message).hint(hint));
        }
        ranges.is_right = wrong.is_empty();
        errors.extend(wrong);
        ranges
    }

    /// It is not given.
    pub(super) fn is_unset(&self) -> bool {
        self.parts == 0
    }

    pub(super) fn is_right(&self) -> bool {
        self.is_right
    }

    /// Two are meant, one of each family, whether or not both could be read.
    pub(super) fn is_dual_stack(&self) -> bool {
        self.parts == 2 && !self.are_of_one_family()
    }

    /// The range, if one is meant and it could be read.
    pub(super) fn only(&self) -> Option<&IpNet> {
        self.read.first().filter(|_| self.parts == 1)
    }

    fn are_of_one_family(&self) -> bool {
        matches!(*self.read, [IpNet::V4(_), IpNet::V4(_)] | [IpNet::V6(_), IpNet::V6(_)])
    }
}

// upstream: "invalid CIDR[1]" and "invalid CIDR address", which people look for. Blanks are not taken away, there and here:
// a value that one manager takes and the other does not is a trap on the way back.
fn unreadable(flag: &str, index: usize, part: &str) -> ConfigError {
    let hint = match parse_cidr(part.trim()) {
        Some(_) => format!("leave the blank out: {}", part.trim()),
        None => {
            "write a range such as 10.244.0.0/16 or fd00:10:244::/56, or one of each, separated by a comma".to_owned()
        }
    };
    ConfigError::flag(flag, format!("invalid CIDR[{index}]: invalid CIDR address: {part:?}")).hint(hint)
}

/// Services in the middle of the pods' range cost some of it (I2); around all of it, they leave nothing.
pub(super) fn compare(pods: &[IpNet], services: &[IpNet], remarks: &mut Vec<String>, errors: &mut ConfigErrors) {
    for (pods, services) in pods.iter().flat_map(|pods| services.iter().map(move |services| (pods, services))) {
        if services.contains(pods) {
            let message =
                format!("{services} covers the whole of --cluster-cidr {pods}, so that nothing is left for pods");
            let hint = "give Services and pods ranges of their own";
            errors.push(ConfigError::flag("service-cluster-ip-range", message).hint(hint));
        } else if pods.contains(services) {
            remarks.push(format!(
                "--service-cluster-ip-range {services} lies in --cluster-cidr {pods}: this part of it is not handed out to nodes"
            ));
        }
    }
}
