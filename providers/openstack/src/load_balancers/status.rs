//! What a Service is told of its balancer: its status, and the annotations that lead back to the balancer.

use std::collections::BTreeMap;

use bowline_core::{DesiredLoadBalancer, Ingress, IpMode, LoadBalancerState, LoadBalancerStatus};

use super::annotations::{HOSTNAME, LOAD_BALANCER_ADDRESS, LOAD_BALANCER_ID, TABLE};
use super::observation::{Found, Observation};
use super::plan::goes_with;
use super::settings::{Settings, common_settings};
use super::waiting::ACTIVE;
use crate::Config;

pub(super) type State = LoadBalancerState<Observation>;

/// What a Service says that its status depends on.
#[derive(Clone, Copy)]
struct Said<'a> {
    hostname: &'a str,
    is_proxied: bool,
}

/// The state of a balancer that is wished.
pub(super) fn of_service(config: &Config, settings: &Settings, seen: Observation) -> State {
    let address = address(settings.internal, &seen);
    let said = Said { hostname: &settings.hostname, is_proxied: settings.proxy_protocol.is_some() };
    let status = status(config, said, address);
    // One that fails before it is in service is deleted, and an annotation would then lead nowhere for ever.
    let is_lasting =
        matches!(&seen.found, Found::One { fresh, balancer, .. } if !fresh || balancer.provisioning_status == ACTIVE);
    let annotations = if is_lasting { annotations(&seen, address) } else { BTreeMap::new() };
    State { annotations, ..State::new(status, seen) }
}

/// The state of one that is to go; `None` if nothing is left. The annotations are those that would lead nowhere.
pub(super) fn of_removal(config: &Config, desired: &DesiredLoadBalancer, seen: Observation) -> Option<State> {
    if seen.is_nothing() {
        return None;
    }
    let address = address(false, &seen);
    let reader = TABLE.reader(&desired.annotations);
    let said = Said {
        hostname: reader.get(&HOSTNAME).unwrap_or_default(),
        is_proxied: common_settings(config, &reader, desired.settings.as_ref().clone()).proxy_protocol.is_some(),
    };
    let goes = seen.found.balancer().is_some_and(|balancer| goes_with(desired, balancer, &seen.listeners));
    let annotations = if goes { annotations(&seen, address) } else { BTreeMap::new() };
    let status = status(config, said, address);
    Some(State { annotations, ..State::new(status, seen) })
}

/// Where clients connect; `None` if they cannot yet, or nobody has looked because the balancer is at work.
fn address(internal: bool, seen: &Observation) -> Option<&str> {
    let balancer = seen.found.balancer().filter(|balancer| !balancer.is_at_work())?;
    let vip = Some(balancer.vip_address.as_str()).filter(|address| !address.is_empty());
    match &seen.floating.attached {
        _ if internal || balancer.has_ipv6_vip() => vip,
        Some(attached) => Some(&attached.floating_ip_address),
        // There may be one that nobody has seen.
        None if seen.errors.floating.is_some() => None,
        // There will be one.
        None if seen.floating.network_id.is_some() || seen.floating.requested.is_some() => None,
        None => vip,
    }
}

fn annotations(seen: &Observation, address: Option<&str>) -> BTreeMap<String, String> {
    let id = seen.found.balancer().map(|balancer| (LOAD_BALANCER_ID.key, balancer.id.as_str()));
    let address = address.map(|address| (LOAD_BALANCER_ADDRESS.key, address));
    id.into_iter().chain(address).map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn status(config: &Config, said: Said<'_>, address: Option<&str>) -> LoadBalancerStatus {
    LoadBalancerStatus { ingress: address.map(|address| ingress(config, said, address)).into_iter().collect() }
}

fn ingress(config: &Config, said: Said<'_>, address: &str) -> Ingress {
    let named = |hostname: String| Ingress { hostname: Some(hostname), ..Ingress::default() };
    let cfg = &config.load_balancer;
    match said.hostname {
        "" if said.is_proxied && cfg.ingress_hostname => named(format!("{address}.{}", cfg.ingress_hostname_suffix)),
        "" => {
            let mode = if said.is_proxied { IpMode::Proxy } else { IpMode::Vip };
            Ingress { ip: Some(address.to_owned()), ip_mode: Some(mode), ..Ingress::default() }
        }
        hostname => named(hostname.to_owned()),
    }
}
