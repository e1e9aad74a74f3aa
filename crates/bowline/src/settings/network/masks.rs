//! How large a node's pod range is (IPAM-3).

use bowline_config::{Problem, Problems};
use bowline_core::ipam::{ClusterRange, RangeProblem};
use ipnet::IpNet;

use super::super::taken;
use crate::cli::NodeIpamArgs;
use crate::flags::Given;

/// The lengths of prefixes that are given. Zero is not.
#[derive(Debug, Clone, Copy)]
pub(super) struct Masks {
    /// `--node-cidr-mask-size`.
    single: Option<u8>,
    /// `--node-cidr-mask-size-ipv4`.
    v4: Option<u8>,
    /// `--node-cidr-mask-size-ipv6`.
    v6: Option<u8>,
}

impl Masks {
    /// `None` if one of them is wrong.
    pub(super) fn resolve(args: &NodeIpamArgs, problems: &mut Problems) -> Option<Masks> {
        let single = mask("node-cidr-mask-size", args.node_cidr_mask_size.as_ref(), problems);
        let v4 = mask("node-cidr-mask-size-ipv4", args.node_cidr_mask_size_ipv4.as_ref(), problems);
        let v6 = mask("node-cidr-mask-size-ipv6", args.node_cidr_mask_size_ipv6.as_ref(), problems);
        Some(Masks { single: single?, v4: v4?, v6: v6? })
    }

    /// These ranges, cut into blocks; `None` if that does not work, all of which is told.
    pub(super) fn cut(self, ranges: &[IpNet], problems: &mut Problems) -> Option<Vec<ClusterRange>> {
        if let Some(problem) = self.contradiction(ranges) {
            problems.push(problem);
            return None;
        }
        let mut cut = Vec::new();
        for range in ranges {
            match ClusterRange::new(*range, self.of(range)) {
                Ok(range) => cut.push(range),
                Err(why) => problems.push(self.uncut(range, &why, ranges.len() > 1)),
            }
        }
        (cut.len() == ranges.len()).then_some(cut)
    }

    /// The one for this range.
    fn of(self, range: &IpNet) -> u8 {
        // upstream: these defaults.
        match range {
            IpNet::V4(_) => self.single.or(self.v4).unwrap_or(24),
            IpNet::V6(_) => self.single.or(self.v6).unwrap_or(64),
        }
    }

    /// Flags that do not go together, or not with these ranges.
    // upstream: the words of all four, which people look for.
    fn contradiction(self, ranges: &[IpNet]) -> Option<Problem> {
        let (flag, message, hint) = match (ranges, self) {
            ([_, _, ..], Masks { single: Some(_), .. }) => (
                "node-cidr-mask-size",
                "usage of --node-cidr-mask-size is not allowed with dual-stack clusters",
                "use --node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6",
            ),
            ([_], Masks { single: Some(_), v4, v6 }) if v4.or(v6).is_some() => (
                "node-cidr-mask-size",
                "usage of --node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6 is not allowed if \
                 --node-cidr-mask-size is set",
                "keep one of them",
            ),
            ([IpNet::V6(_)], Masks { v4: Some(_), .. }) => (
                "node-cidr-mask-size-ipv4",
                "usage of --node-cidr-mask-size-ipv4 is not allowed for a single-stack IPv6 cluster",
                "use --node-cidr-mask-size-ipv6, or add a range of IPv4 to --cluster-cidr",
            ),
            ([IpNet::V4(_)], Masks { v6: Some(_), .. }) => (
                "node-cidr-mask-size-ipv6",
                "usage of --node-cidr-mask-size-ipv6 is not allowed for a single-stack IPv4 cluster",
                "use --node-cidr-mask-size-ipv4, or add a range of IPv6 to --cluster-cidr",
            ),
            _ => return None,
        };
        Some(Problem::flag(flag, message).hint(hint))
    }

    /// What is wrong with the size of a range's blocks, and which sizes would be right.
    fn uncut(self, range: &IpNet, why: &RangeProblem, is_dual_stack: bool) -> Problem {
        let flag = match (range, is_dual_stack || self.single.is_none()) {
            (IpNet::V4(_), true) => "node-cidr-mask-size-ipv4",
            (IpNet::V6(_), true) => "node-cidr-mask-size-ipv6",
            (_, false) => "node-cidr-mask-size",
        };
        let shortest = range.prefix_len();
        let longest = match range {
            IpNet::V4(_) => range.max_prefix_len(),
            IpNet::V6(_) => range.max_prefix_len().min(shortest.saturating_add(16)),
        };
        let hint = format!("set --{flag} to a number from {shortest} to {longest}, or another --cluster-cidr");
        Problem::flag(flag, why.to_string()).hint(hint)
    }
}

/// The value of one flag: `None` if it is wrong, `Some(None)` if it is not given.
fn mask(flag: &str, given: Option<&Given<i32>>, problems: &mut Problems) -> Option<Option<u8>> {
    let bits = match given {
        Some(given) => taken(given, problems)?,
        None => 0,
    };
    match u8::try_from(bits).ok().filter(|bits| *bits <= 128) {
        Some(bits) => Some(Some(bits).filter(|bits| *bits != 0)),
        None => {
            let message = format!("{bits} is no length of a prefix");
            problems.push(Problem::flag(flag, message).hint("write a number such as 24 for IPv4 or 64 for IPv6"));
            None
        }
    }
}
