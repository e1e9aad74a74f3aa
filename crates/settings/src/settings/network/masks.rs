//! Mask sizes of node CIDRs (IPAM-3).

use bowline_config::{ConfigError, ConfigErrors};
use bowline_core::ipam::{ClusterCidr, ClusterCidrError};
use ipnet::IpNet;

use super::super::valid;
use super::cidrs::CidrFlag;
use crate::cli::NodeIpamArgs;
use crate::flags::Given;

/// Values of the mask size flags.
#[derive(Debug, Clone, Copy)]
pub(super) struct Masks {
    /// `--node-cidr-mask-size`.
    single: Mask,
    /// `--node-cidr-mask-size-ipv4`.
    v4: Mask,
    /// `--node-cidr-mask-size-ipv6`.
    v6: Mask,
}

/// Value of one flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mask {
    /// Not set, or 0.
    Unset,
    /// Invalid; the error has been reported.
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

    /// Splits the cluster CIDRs into blocks, and reports all errors.
    pub(super) fn split(self, pods: &CidrFlag, errors: &mut ConfigErrors) -> Vec<ClusterCidr> {
        self.contradiction(pods).into_iter().for_each(|error| errors.push(error));
        let mut blocks = Vec::new();
        for range in &pods.cidrs {
            for (flag, bits) in self.of(range, pods.is_dual_stack()) {
                match ClusterCidr::new(*range, bits) {
                    Ok(range) => blocks.push(range),
                    Err(why) => errors.push(invalid_mask(flag, range, &why)),
                }
            }
        }
        blocks
    }

    /// Returns the mask size for this CIDR, and its flag. Empty if the flag is invalid; two if both of its flags are set, which is
    /// an error.
    fn of(self, range: &IpNet, is_dual_stack: bool) -> Vec<(&'static str, u8)> {
        // upstream: the same defaults.
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

    /// Reports flags that cannot be combined, with each other or with these CIDRs.
    // upstream: all four messages, which users search for.
    fn contradiction(self, pods: &CidrFlag) -> Option<ConfigError> {
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
                "keep only --node-cidr-mask-size",
            ),
            Some(IpNet::V6(_)) if v4 => (
                V4,
                "usage of --node-cidr-mask-size-ipv4 is not allowed for a single-stack IPv6 cluster",
                "use --node-cidr-mask-size-ipv6, or add an IPv4 range to --cluster-cidr",
            ),
            Some(IpNet::V4(_)) if v6 => (
                V6,
                "usage of --node-cidr-mask-size-ipv6 is not allowed for a single-stack IPv4 cluster",
                "use --node-cidr-mask-size-ipv4, or add an IPv6 range to --cluster-cidr",
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

/// Error for an invalid mask size, with the valid range.
fn invalid_mask(flag: &str, range: &IpNet, why: &ClusterCidrError) -> ConfigError {
    // 0 would mean that the flag is not set.
    let shortest = range.prefix_len().max(1);
    let longest = match range {
        IpNet::V4(_) => range.max_prefix_len(),
        IpNet::V6(_) => range.max_prefix_len().min(range.prefix_len().saturating_add(16)),
    };
    // upstream: the beginning of the first message, which users search for.
    let message = match why {
        ClusterCidrError::BlockTooLarge { .. } => {
            format!("mask size of cluster CIDR must be less than or equal to --node-cidr-mask-size: {why}")
        }
        _ => why.to_string(),
    };
    let hint = format!("set --{flag} to a number from {shortest} to {longest}, or change --cluster-cidr");
    ConfigError::flag(flag, message).hint(hint)
}

/// Parses one flag.
fn mask(flag: &str, given: Option<&Given<i32>>, errors: &mut ConfigErrors) -> Mask {
    let Some(bits) = given.map_or(Some(0), |given| valid(given, errors)) else { return Mask::Wrong };
    match u8::try_from(bits).ok().filter(|bits| *bits <= 128) {
        Some(0) => Mask::Unset,
        Some(bits) => Mask::Bits(bits),
        None => {
            let message = format!("{bits} is not a valid prefix length");
            errors.push(ConfigError::flag(flag, message).hint("use a number such as 24 for IPv4 or 64 for IPv6"));
            Mask::Wrong
        }
    }
}
