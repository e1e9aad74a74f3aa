//! The flags whose value is a range, or one of each family.

use bowline_config::{Problem, Problems};
use bowline_core::parse_cidr;
use ipnet::IpNet;

/// `--cluster-cidr`; empty if it is not given, `None` if something is wrong with it.
// upstream: looked at only where something needs it. A range that is wrong is wrong before that, too.
pub(crate) fn pods(text: &str, problems: &mut Problems) -> Option<Vec<IpNet>> {
    let text = text.trim();
    let parts = if text.is_empty() { Vec::new() } else { text.split(',').collect() };
    ranges("cluster-cidr", &parts, problems)
}

/// `--service-cluster-ip-range`, likewise.
// upstream: what does not parse is logged and ignored, and pods then get the addresses of Services. Nobody means that, so
// here it is a problem. A part that is empty is no part, in both.
pub(super) fn services(text: &str, problems: &mut Problems) -> Option<Vec<IpNet>> {
    let parts: Vec<_> = text.split(',').filter(|part| !part.trim().is_empty()).collect();
    ranges("service-cluster-ip-range", &parts, problems)
}

/// `None` if something is wrong with them, all of which is told.
fn ranges(flag: &str, parts: &[&str], problems: &mut Problems) -> Option<Vec<IpNet>> {
    let read: Vec<_> = parts.iter().map(|part| parse_cidr(part)).collect();
    for (index, part) in parts.iter().enumerate().filter(|(index, _)| !matches!(read.get(*index), Some(Some(_)))) {
        problems.push(unreadable(flag, index, part));
    }
    let ranges = read.into_iter().collect::<Option<Vec<_>>>();
    match (parts, ranges.as_deref()) {
        ([_, _, _, ..], _) => {
            let message = format!("--{flag} can not contain more than two entries, and has {}", parts.len());
            // upstream: these words for the one flag, and others for the other.
            problems.push(Problem::new(message).hint("give one range, or one of IPv4 and one of IPv6"));
            None
        }
        (_, Some([IpNet::V4(_), IpNet::V4(_)] | [IpNet::V6(_), IpNet::V6(_)])) => {
            let message = format!("{} are not dual-stack: both are of one family", parts.join(" and "));
            let hint = "give one range, or one of IPv4 and one of IPv6";
            problems.push(Problem::flag(flag, message).hint(hint));
            None
        }
        _ => ranges,
    }
}

// upstream: "invalid CIDR[1]", which people look for. Blanks are not taken away, there and here: a value that one manager
// takes and the other does not is a trap on the way back.
fn unreadable(flag: &str, index: usize, part: &str) -> Problem {
    let hint = match parse_cidr(part.trim()) {
        Some(_) => format!("leave the blank out: {}", part.trim()),
        None => {
            "write a range such as 10.244.0.0/16 or fd00:10:244::/56, or one of each, separated by a comma".to_owned()
        }
    };
    Problem::flag(flag, format!("invalid CIDR[{index}]: {part:?} is no range of addresses")).hint(hint)
}

/// Services in the middle of the pods' range cost some of it (I2); around all of it, they leave nothing.
pub(super) fn compare(pods: &[IpNet], services: &[IpNet], remarks: &mut Vec<String>, problems: &mut Problems) {
    for (pods, services) in pods.iter().flat_map(|pods| services.iter().map(move |services| (pods, services))) {
        if services.contains(pods) {
            let message =
                format!("{services} covers the whole of --cluster-cidr {pods}, so that nothing is left for pods");
            let hint = "give Services and pods ranges of their own";
            problems.push(Problem::flag("service-cluster-ip-range", message).hint(hint));
        } else if pods.contains(services) {
            remarks.push(format!(
                "--service-cluster-ip-range {services} lies in --cluster-cidr {pods}: this part of it is not handed out to nodes"
            ));
        }
    }
}
