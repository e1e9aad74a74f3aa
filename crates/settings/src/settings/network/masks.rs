//! How large a node's pod range is (IPAM-3).

use bowline_config::{ConfigError, ConfigErrors};
use bowline_core::ipam::{ClusterCidr, ClusterCidrError};
use ipnet::IpNet;

use super::super::taken;
use super::ranges::Ranges;
use crate::cli::NodeIpamArgs;
use crate::flags::Given;

/// The lengths of prefixes that are given.
#[derive(Debug, Clone, Copy)]
pub(super) struct Masks {
    /// `--node-cidr-mask-size`.
    single: Mask,
    /// `--node-cidr-mask-size-ipv4`.
    v4: Mask,
    /// `--node-cidr-mask-size-ipv6`.
    v6: Mask,
}

/// One of the flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mask {
    /// Not given, which is also what zero means.
    Unset,
    /// Given, and no length of a prefix, which has been told.
    Wrong,
    Bits(u8),
}

const SINGLE: &str = "node-cidr-mask-size";
const V4: &str = "node-cidr-mask-size-ipv4";
const V6: &str = "node-cidr-mask-size-ipv6";

impl Masks {
    pub(super) fn resolve(args: &NodeIpamArgs, errors: &mut ConfigErrors) -> Masks {
        Masks {
            single: mask(SINGLE, args.node_cidr_mask_size.as_ref(), errors),
            v4: mask(V4, args.node_cidr_mask_size_ipv4.as_ref(), errors),
            v6: mask(V6, args.node_cidr_mask_size_ipv6.as_ref(), errors),
        }
    }

    /// These ranges, cut into blocks. All that stands in the way is told.
    pub(super) fn cut(self, pods: &Ranges, errors: &mut ConfigErrors) -> Vec<ClusterCidr> {
        self.contradiction(pods).into_iter().for_each(|problem| errors.push(problem));
        let mut cut = Vec::new();
        for range in &pods.read {
            for (flag, bits) in self.of(range, pods.is_dual_stack()) {
                match ClusterCidr::new(*range, bits) {
                    Ok(range) => cut.push(range),
                    Err(why) => errors.push(uncut(flag, range, &why)),
                }
            }
        }
        cut
    }

    /// The one for this range, and its flag. None if it was given and is wrong; two if both of its flags are given, which is
    /// a contradiction.
    fn of(self, range: &IpNet, is_dual_stack: bool) -> Vec<(&'static str, u8)> {
        // upstream: these defaults.
        let (flag, own, default) = match range {
            IpNet::V4(_) => (V4, self.v4, 24),
            IpNet::V6(_) => (V6, self.v6, 64),
        };
        let single = if is_dual_stack { Mask::Unset } else { self.single };
        match (single, own) {
            (Mask::Unset, Mask::Unset) => vec![(flag, default)],
            given => [(SINGLE, given.0), (flag, given.1)].into_iter().filter_map(bits).collect(),
        }
    }

    /// Flags that do not go together, or not with these ranges.
    // upstream: the words of all four, which people look for.
    fn contradiction(self, pods: &Ranges) -> Option<ConfigError> {
        let [single, v4, v6] = [self.single, self.v4, self.v6].map(|mask| mask != Mask::Unset);
        let (flag, message, hint) = match pods.only() {
            None if single && pods.is_dual_stack() => (
                SINGLE,
                "usage of --node-cidr-mask-size is not allowed with dual-stack clusters",
                "use --node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6",
            ),
            Some(_) if single && (v4 || v6) => (
                SINGLE,
                "usage of --node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6 is not allowed if \
                 --node-cidr-mask-size is set",
                "keep this one alone",
            ),
            Some(IpNet::V6(_)) if v4 => (
                V4,
                "usage of --node-cidr-mask-size-ipv4 is not allowed for a single-stack IPv6 cluster",
                "use --node-cidr-mask-size-ipv6, or add a range of IPv4 to --cluster-cidr",
            ),
            Some(IpNet::V4(_)) if v6 => (
                V6,
                "usage of --node-cidr-mask-size-ipv6 is not allowed for a single-stack IPv4 cluster",
                "use --node-cidr-mask-size-ipv4, or add a range of IPv6 to --cluster-cidr",
            ),
            _ => return None,
        };
        Some(ConfigError::flag(flag, message).hint(hint))
    }
}

fn bits((flag, mask): (&'static str, Mask)) -> Option<(&'static str, u8)> {
    match mask {
        Mask::Bits(bits) => Some((flag, bits)),
        Mask::Unset | Mask::Wrong => None,
    }
}

/// What is wrong with the size of a range's blocks, and which sizes would be right.
fn uncut(flag: &str, range: &IpNet, why: &ClusterCidrError) -> ConfigError {
    // Zero would mean that the flag is not given.
    let shortest = range.prefix_len().max(1);
    let longest = match range {
        IpNet::V4(_) => range.max_prefix_len(),
        IpNet::V6(_) => range.max_prefix_len().min(range.prefix_len().saturating_add(16)),
    };
    // upstream: the first words of the one of these, which people look for.
    let message = match why {
        ClusterCidrError::BlockTooLarge { .. } => {
            format!("mask size of cluster CIDR must be less than or equal to --node-cidr-mask-size: {why}")
        }
        _ => why.to_string(),
    };
    let hint = format!("set --{flag} to a number from {shortest} to {longest}, or another --cluster-cidr");
    ConfigError::flag(flag, message).hint(hint)
}

/// The value of one flag.
fn mask(flag: &str, given: Option<&Given<i32>>, errors: &mut ConfigErrors) -> Mask {
    let Some(bits) = given.map_or(Some(0), |given| taken(given, errors)) else { return Mask::Wrong };
    match u8::try_from(bits).ok().filter(|bits| *bits <= 128) {
        Some(0) => Mask::Unset,
        Some(bits) => Mask::Bits(bits),
        None => {
            let message = format!("{bits} is no length of a prefix");
            errors.push(ConfigError::flag(flag, message).hint("write a number such as 24 for IPv4 or 64 for IPv6"));
            Mask::Wrong
        }
    }
}
