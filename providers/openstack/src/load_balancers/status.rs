//! Status of a Service, and the annotations that refer to its load balancer.

use std::collections::BTreeMap;

use bowline_core::{DesiredLoadBalancer, Ingress, IpMode, LoadBalancerState, LoadBalancerStatus};

use super::annotations::{HOSTNAME, LOAD_BALANCER_ADDRESS, LOAD_BALANCER_ID, TABLE};
use super::observation::{Found, Observation};
use super::plan::is_deleted_with;
use super::settings::{Settings, common_settings};
use super::tracker::ACTIVE;
use crate::Config;

pub(super) type State = LoadBalancerState<Observation>;

/// Returns the state of a desired load balancer.
pub(super) fn of_service(config: &Config, settings: &Settings, seen: Observation) -> State {
    let address = address(settings.internal, &seen);
    let status = status(config, &settings.hostname, settings.proxy_protocol.is_some(), address);
    // One that fails before it is in service is deleted, and its ID must not stay in an annotation.
    let is_lasting =
        matches!(&seen.found, Found::One { fresh, balancer, .. } if !fresh || balancer.provisioning_status == ACTIVE);
    let annotations = if is_lasting { annotations(&seen, address) } else { BTreeMap::new() };
    State { annotations, ..State::new(status, seen) }
}

/// Returns the state of a load balancer to delete; `None` if nothing is left. Its annotations are those that become invalid.
pub(super) fn of_removal(config: &Config, desired: &DesiredLoadBalancer, seen: Observation) -> Option<State> {
    if seen.is_nothing() {
        return None;
    }
    let address = address(false, &seen);
    let reader = TABLE.reader(&desired.annotations);
    let common = common_settings(config, &reader, desired.settings.as_ref().clone());
    let is_deleted = seen.found.balancer().is_some_and(|balancer| is_deleted_with(desired, balancer, &seen.listeners));
    let annotations = if is_deleted { annotations(&seen, address) } else { BTreeMap::new() };
    let hostname = reader.get(&HOSTNAME).unwrap_or_default();
    let status = status(config, hostname, common.proxy_protocol.is_some(), address);
    Some(State { annotations, ..State::new(status, seen) })
}

/// Returns the address for clients; `None` if there is none yet, or it was not observed because the load balancer is PENDING.
fn address(internal: bool, seen: &Observation) -> Option<&str> {
    let balancer = seen.found.balancer().filter(|balancer| !balancer.is_pending())?;
    let vip = Some(balancer.vip_address.as_str()).filter(|address| !address.is_empty());
    match &seen.floating.attached {
        _ if internal || balancer.has_ipv6_vip() => vip,
        Some(attached) => Some(&attached.floating_ip_address),
        // A floating IP may exist, but could not be read.
        None if seen.errors.floating.is_some() => None,
        // A floating IP will be attached.
        None if seen.floating.network_id.is_some() || seen.floating.requested.is_some() => None,
        None => vip,
    }
}

fn annotations(seen: &Observation, address: Option<&str>) -> BTreeMap<String, String> {
    let id = seen.found.balancer().map(|balancer| (LOAD_BALANCER_ID.key, balancer.id.as_str()));
    let address = address.map(|address| (LOAD_BALANCER_ADDRESS.key, address));
    id.into_iter().chain(address).map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn status(config: &Config, hostname: &str, is_proxied: bool, address: Option<&str>) -> LoadBalancerStatus {
    let named = |hostname: String| Ingress { hostname: Some(hostname), ..Ingress::default() };
    let cfg = &config.load_balancer;
    let ingress = address.map(|address| match hostname {
        "" if is_proxied && cfg.ingress_hostname => named(format!("{address}.{}", cfg.ingress_hostname_suffix)),
        "" => {
            let mode = if is_proxied { IpMode::Proxy } else { IpMode::Vip };
            Ingress { ip: Some(address.to_owned()), ip_mode: Some(mode), ..Ingress::default() }
        }
        hostname => named(hostname.to_owned()),
    });
    LoadBalancerStatus { ingress: ingress.into_iter().collect() }
}
