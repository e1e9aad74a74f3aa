//! Settings of a Service in Octavia's terms, as far as they are known without a call.
//!
//! ```text
//!  annotations of this cloud > annotations of all clouds > cloud.conf ──► Settings, or an error
//! ```
//!
//! Networks and subnets have an order of their own, with classes: see `placement`.

mod common;
mod monitor;
mod placement;
mod warnings;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use bowline_cloud::{Error, ErrorKind, Result};
use bowline_core::annotations::{LoadBalancerSettings, ProxyProtocol, Reader};
use bowline_core::{
    DesiredLoadBalancer, IpFamily, LoadBalancerSpec, PortSpec, Protocol, SessionAffinity, TrafficPolicy, Warning,
};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::annotations as known;
use crate::Config;
use crate::api::octavia::LoadBalancer;

pub(crate) use common::common_settings;
pub(crate) use monitor::{MonitorKind, MonitorSettings};
pub(crate) use placement::{FloatingIpSettings, PlacementSettings};
pub(crate) use warnings::warning;

const SETTLE: &str = "read the settings of a load balancer";

/// Settings of a Service.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    /// Without a floating IP.
    pub(crate) internal: bool,
    /// IP family of the VIP, if the Service requests one.
    pub(crate) family: Option<IpFamily>,
    /// `load-balancer-id`.
    pub(crate) balancer_id: Option<String>,
    /// An existing load balancer to adopt, by name or ID.
    pub(crate) adopt: Option<String>,
    pub(crate) placement: PlacementSettings,
    pub(crate) floating: FloatingIpSettings,
    /// `default-tls-container-ref`; empty for none.
    pub(crate) tls_container_ref: String,
    pub(crate) x_forwarded_for: bool,
    pub(crate) proxy_protocol: Option<ProxyProtocol>,
    pub(crate) connection_limit: i64,
    pub(crate) timeouts: Timeouts,
    /// The common annotation sets the idle timeout.
    has_idle_timeout: bool,
    /// Algorithm of pools.
    pub(crate) method: String,
    /// Session affinity by client address.
    pub(crate) sticky: bool,
    /// Only nodes with a Pod of the Service get traffic.
    pub(crate) local: bool,
    /// Health monitor of the pools; `None` for none.
    pub(crate) monitor: Option<MonitorSettings>,
    /// Empty for none.
    pub(crate) flavor_id: String,
    /// Empty for none.
    pub(crate) availability_zone: String,
    /// Allowed client ranges; empty for no limit.
    pub(crate) source_ranges: BTreeSet<IpNet>,
    /// A node selector is set, which may match no node.
    pub(crate) selects_nodes: bool,
    /// Host name for the status of the Service, instead of the address; empty for none.
    pub(crate) hostname: String,
    /// Warnings about ignored annotations.
    pub(crate) warnings: Vec<Warning>,
}

/// In milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timeouts {
    pub(crate) client_data: i64,
    pub(crate) member_connect: i64,
    pub(crate) member_data: i64,
    pub(crate) tcp_inspect: i64,
}

impl Settings {
    /// Reads the settings of a Service, or fails.
    pub(crate) fn of(desired: &DesiredLoadBalancer, spec: &LoadBalancerSpec, config: &Config) -> Result<Settings> {
        let cfg = &config.load_balancer;
        let reader = known::TABLE.reader(&desired.annotations);
        let shared = common_settings(config, &reader, LoadBalancerSettings::clone(&desired.settings));
        let class = placement::class(&reader, config)?;
        let settings = Settings {
            internal: shared.internal,
            family: spec.ip_families.first().copied(),
            balancer_id: reader.get(&known::LOAD_BALANCER_ID).map(str::to_owned),
            adopt: shared.adopt.clone(),
            placement: PlacementSettings::of(&reader, class, cfg, shared.internal),
            floating: FloatingIpSettings::of(&reader, class, cfg),
            tls_container_ref: reader.get(&known::TLS_CONTAINER_REF).unwrap_or(&cfg.tls_container_ref).to_owned(),
            x_forwarded_for: reader.get(&known::X_FORWARDED_FOR).unwrap_or_default(),
            proxy_protocol: shared.proxy_protocol,
            connection_limit: reader.get(&known::CONNECTION_LIMIT).unwrap_or(-1),
            timeouts: Timeouts::of(&reader, &shared),
            has_idle_timeout: shared.idle_timeout.is_some(),
            // upstream: an empty method is replaced by the configured one.
            method: reader.get(&known::LB_METHOD).unwrap_or(&cfg.method).to_owned(),
            sticky: matches!(spec.session_affinity, SessionAffinity::ClientIp { .. }),
            local: spec.traffic_policy == TrafficPolicy::Local,
            monitor: MonitorSettings::of(&reader, &shared, spec, cfg)?,
            flavor_id: reader.get(&known::FLAVOR_ID).unwrap_or(&cfg.flavor_id).to_owned(),
            availability_zone: reader.get(&known::AVAILABILITY_ZONE).unwrap_or(&cfg.availability_zone).to_owned(),
            source_ranges: spec.source_ranges.iter().map(IpNet::trunc).collect(),
            selects_nodes: shared.target_nodes.is_some(),
            hostname: reader.get(&known::HOSTNAME).unwrap_or_default().to_owned(),
            warnings: known::warnings(reader),
        };
        settings.checked(spec)
    }

    fn checked(self, spec: &LoadBalancerSpec) -> Result<Settings> {
        if spec.ports.is_empty() {
            return Err(invalid_config("the Service has no ports; a load balancer needs at least one"));
        }
        if self.proxy_protocol.is_some() && self.x_forwarded_for {
            let (proxy, forwarded) = (known::PROXY_PROTOCOL.key, known::X_FORWARDED_FOR.key);
            return Err(invalid_config(format!(
                "the annotations {proxy} and {forwarded} cannot be used together; remove one"
            )));
        }
        // Octavia would reject the new pool after the old one was deleted.
        let other = spec.ports.iter().find(|port| port.protocol != Protocol::Tcp);
        if let (Some(_), Some(PortSpec { port, protocol, .. })) = (self.proxy_protocol, other) {
            return Err(invalid_config(format!(
                "Octavia supports the PROXY protocol over TCP alone, and port {port} uses {protocol}; remove {}, or the port",
                known::PROXY_PROTOCOL.key
            )));
        }
        Ok(self)
    }

    /// Returns the listener protocol for a protocol of a Service.
    pub(crate) fn listener_protocol(&self, protocol: Protocol) -> &'static str {
        match protocol {
            _ if !self.tls_container_ref.is_empty() => "TERMINATED_HTTPS",
            _ if self.x_forwarded_for => "HTTP",
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
            Protocol::Sctp => "SCTP",
        }
    }

    /// Returns the protocol between load balancer and members.
    pub(crate) fn pool_protocol(&self, protocol: Protocol) -> &'static str {
        match self.proxy_protocol {
            Some(ProxyProtocol::V1) => "PROXY",
            Some(ProxyProtocol::V2) => "PROXYV2",
            None if self.x_forwarded_for || !self.tls_container_ref.is_empty() => "HTTP",
            None => self.listener_protocol(protocol),
        }
    }

    /// Returns whether clients connect by IPv6. A new load balancer has the requested family, if any.
    pub(crate) fn is_ipv6(&self, balancer: Option<&LoadBalancer>) -> bool {
        balancer.map_or(self.family == Some(IpFamily::IPv6), LoadBalancer::has_ipv6_vip)
    }

    /// Returns the VIP that the Service requests for a new load balancer. An external IPv4 one requests a floating IP instead.
    pub(crate) fn vip_address<'a>(&self, spec: &'a LoadBalancerSpec) -> Option<&'a str> {
        let requested = spec.requested_address.as_deref().filter(|address| !address.is_empty());
        requested.filter(|_| self.internal || self.is_ipv6(None))
    }

    /// Returns the allowed ranges for addresses of these families, as Octavia takes them: without source ranges, every address of
    /// the Service's own family, by default of the first one.
    pub(crate) fn allowed_cidrs(&self, families: &[IpFamily]) -> BTreeSet<IpNet> {
        if self.source_ranges.is_empty() {
            let own = self.family.filter(|own| families.contains(own)).or(families.first().copied());
            return BTreeSet::from([any_address(own.unwrap_or(IpFamily::IPv4))]);
        }
        // Octavia rejects a range of a family that none of the addresses has, and a Service may have ranges of both.
        let fitting: BTreeSet<IpNet> =
            self.source_ranges.iter().copied().filter(|range| families.contains(&family_of(range))).collect();
        // An empty list would allow every client.
        if fitting.is_empty() { self.source_ranges.clone() } else { fitting }
    }

    /// Returns additional ranges that may stay: without source ranges, every address of each family.
    pub(crate) fn tolerated_cidrs(&self, families: &[IpFamily]) -> BTreeSet<IpNet> {
        let is_unrestricted = self.source_ranges.is_empty();
        families.iter().filter(|_| is_unrestricted).copied().map(any_address).collect()
    }
}

impl Timeouts {
    fn of(reader: &Reader<'_>, shared: &LoadBalancerSettings) -> Timeouts {
        let idle = shared.idle_timeout.and_then(|idle| i64::try_from(idle.as_millis()).ok());
        Timeouts {
            client_data: reader.get(&known::TIMEOUT_CLIENT_DATA).or(idle).unwrap_or(50_000),
            member_connect: reader.get(&known::TIMEOUT_MEMBER_CONNECT).unwrap_or(5_000),
            member_data: reader.get(&known::TIMEOUT_MEMBER_DATA).or(idle).unwrap_or(50_000),
            tcp_inspect: reader.get(&known::TIMEOUT_TCP_INSPECT).unwrap_or(0),
        }
    }
}

fn any_address(family: IpFamily) -> IpNet {
    match family {
        IpFamily::IPv4 => IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 0)),
        IpFamily::IPv6 => IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 0)),
    }
}

fn family_of(range: &IpNet) -> IpFamily {
    match range {
        IpNet::V4(_) => IpFamily::IPv4,
        IpNet::V6(_) => IpFamily::IPv6,
    }
}

fn invalid_config(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidConfig, SETTLE, message)
}

#[cfg(test)]
mod tests;
