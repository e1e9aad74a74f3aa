//! Selection of Node addresses from what VMware Tools report.
//!
//! ```text
//!  NICs ──► without those that are no virtual device ──► addresses that other hosts can reach
//!       ──► those of cloud-init first ──► for each family: by subnet, by network, or the first
//! ```

use std::net::IpAddr;

use bowline_core::{Address, AddressType, IpFamily};

use super::metadata;
use crate::config::{AddressRule, AddressRules};
use crate::vcenter::{Machine, Nic};

const NOT_SUITABLE: &str = "unable to find suitable IP address for node";

/// An address with the network that it is in.
#[derive(Debug, Clone)]
struct Candidate<'a> {
    ip: IpAddr,
    /// As VMware Tools report it.
    text: &'a str,
    network: &'a str,
}

/// Returns the addresses of a Node: host name, then for each family the internal and the external address.
pub(crate) fn select(
    machine: &Machine,
    rules: &AddressRules,
    families: &[IpFamily],
    asked: &str,
) -> Result<Vec<Address>, String> {
    let nics: Vec<_> = machine.nics.iter().filter(|nic| nic.device != -1).collect();
    check_networks(&nics, rules)?;
    let mut candidates = candidates(&nics);
    if candidates.is_empty() {
        return Err(format!("{NOT_SUITABLE} after filtering out localhost IPs"));
    }
    prefer_metadata(&mut candidates, machine)?;
    let mut addresses = vec![Address::new(AddressType::Hostname, machine.host_name.as_str())];
    for family in families {
        addresses.extend(of_family(&candidates, rules, *family, asked)?);
    }
    Ok(addresses)
}

/// Fails if both networks are configured and the machine is in neither.
fn check_networks(nics: &[&Nic], rules: &AddressRules) -> Result<(), String> {
    let names = [&rules.internal.network, &rules.external.network];
    let is_in = |name: &&String| nics.iter().any(|nic| nic.network.eq_ignore_ascii_case(name));
    if names.iter().all(|name| !name.is_empty()) && !names.iter().any(is_in) {
        let networks: Vec<_> = nics.iter().map(|nic| nic.network.as_str()).collect();
        return Err(format!(
            "{NOT_SUITABLE}: it is in the networks {networks:?}, and neither of {names:?} is one of them"
        ));
    }
    Ok(())
}

fn candidates<'a>(nics: &[&'a Nic]) -> Vec<Candidate<'a>> {
    let all = nics.iter().flat_map(|nic| nic.addresses.iter().map(|text| (text.as_str(), nic.network.as_str())));
    let parsed = all.filter_map(|(text, network)| Some(Candidate { ip: text.parse().ok()?, text, network }));
    parsed.filter(|candidate| is_reachable(candidate.ip)).collect()
}

/// Returns whether other hosts can reach an address.
fn is_reachable(ip: IpAddr) -> bool {
    let is_link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.octets().starts_with(&[224, 0, 0]),
        IpAddr::V6(ip) => ip.is_unicast_link_local() || ip.segments()[0] & 0xff0f == 0xff02,
    };
    !ip.is_unspecified() && !ip.is_loopback() && !is_link_local
}

/// Moves the addresses that cloud-init configured to the front.
fn prefer_metadata(candidates: &mut [Candidate<'_>], machine: &Machine) -> Result<(), String> {
    let Some(text) = &machine.metadata else { return Ok(()) };
    let preferred = metadata::addresses(text, &machine.metadata_encoding);
    let preferred = preferred.map_err(|error| format!("the setting guestinfo.metadata is invalid: {error}"))?;
    let rank = |ip| preferred.iter().position(|known| *known == ip).unwrap_or(usize::MAX);
    candidates.sort_by_key(|candidate| rank(candidate.ip));
    Ok(())
}

fn of_family(
    candidates: &[Candidate<'_>],
    rules: &AddressRules,
    family: IpFamily,
    asked: &str,
) -> Result<impl Iterator<Item = Address>, String> {
    let of_family: Vec<_> =
        candidates.iter().filter(|candidate| (family == IpFamily::IPv4) == candidate.ip.is_ipv4()).collect();
    let allowed = |rule: &AddressRule| {
        of_family.iter().copied().filter(|candidate| rule.allows(candidate.ip)).collect::<Vec<_>>()
    };
    let (internal, external) = (allowed(&rules.internal), allowed(&rules.external));
    let mut found = (by_rule(&internal, &rules.internal), by_rule(&external, &rules.external));
    if found == (None, None) {
        let first = |list: &[&Candidate<'_>]| list.first().map(|candidate| candidate.text.to_owned());
        found = (first(&internal), first(&external));
    }
    if found == (None, None) {
        let family = if family == IpFamily::IPv4 { "ipv4" } else { "ipv6" };
        return Err(format!("{NOT_SUITABLE} {asked} with IP family {family}"));
    }
    let address = |kind| move |text: String| Address::new(kind, text);
    let internal = found.0.map(address(AddressType::InternalIP));
    Ok(internal.into_iter().chain(found.1.map(address(AddressType::ExternalIP))))
}

/// Returns the address that the subnets select, otherwise the one that the network selects.
fn by_rule(allowed: &[&Candidate<'_>], rule: &AddressRule) -> Option<String> {
    let in_subnet =
        rule.subnets.iter().find_map(|subnet| allowed.iter().find(|candidate| subnet.contains(&candidate.ip)));
    let in_network = || {
        let is_in = |candidate: &&&Candidate<'_>| candidate.network.eq_ignore_ascii_case(&rule.network);
        allowed.iter().find(is_in).filter(|_| !rule.network.is_empty())
    };
    in_subnet.or_else(in_network).map(|candidate| candidate.text.to_owned())
}

#[cfg(test)]
mod tests;
