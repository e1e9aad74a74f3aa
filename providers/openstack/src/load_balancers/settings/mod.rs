//! What a Service wishes in terms of Octavia, as far as that is known without a call.
//!
//! ```text
//!  this cloud's annotations > annotations of all clouds > cloud.conf ──► Settings, or what is wrong with them
//! ```
//!
//! Where things are has an order of its own, with classes in it: see `places`.

mod common;
mod monitor;
mod places;
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
pub(crate) use monitor::{MonitorKind, MonitorWish};
pub(crate) use places::{FloatingWish, PlacesWish};
pub(crate) use warnings::warning;

const SETTLE: &str = "read the settings of a balancer";

/// What a Service wishes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    /// Without a floating IP.
    pub(crate) internal: bool,
    /// The family of the balancer's address, if the Service says.
    pub(crate) family: Option<IpFamily>,
    /// `load-balancer-id`.
    pub(crate) balancer_id: Option<String>,
    /// An existing balancer that is to become the Service's, by name or ID.
    pub(crate) adopt: Option<String>,
    pub(crate) places: PlacesWish,
    pub(crate) floating: FloatingWish,
    /// `default-tls-container-ref`; empty for none.
    pub(crate) tls_container_ref: String,
    pub(crate) x_forwarded_for: bool,
    pub(crate) proxy_protocol: Option<ProxyProtocol>,
    pub(crate) connection_limit: i64,
    pub(crate) timeouts: Timeouts,
    /// The annotation of all clouds says after which time a silent connection is closed.
    asks_for_idle_timeout: bool,
    /// The algorithm of pools.
    pub(crate) method: String,
    /// Connections of one client stay together.
    pub(crate) sticky: bool,
    /// Only nodes with a pod of the Service are to get traffic.
    pub(crate) local: bool,
    /// How members are watched; `None` if they are not.
    pub(crate) monitor: Option<MonitorWish>,
    /// Empty for none.
    pub(crate) flavor_id: String,
    /// Empty for none.
    pub(crate) availability_zone: String,
    /// Who may connect; empty if nobody asked for a limit.
    pub(crate) source_ranges: BTreeSet<IpNet>,
    /// Nodes are left out on purpose, which may be all.
    pub(crate) selects_nodes: bool,
    /// What the status of the Service says instead of the address; empty for nothing.
    pub(crate) hostname: String,
    /// What is passed over.
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
    /// What this wish says, or what is wrong with it.
    pub(crate) fn of(desired: &DesiredLoadBalancer, spec: &LoadBalancerSpec, config: &Config) -> Result<Settings> {
        let cfg = &config.load_balancer;
        let reader = known::TABLE.reader(&desired.annotations);
        let shared = common_settings(config, &reader, LoadBalancerSettings::clone(&desired.settings));
        let class = places::class(&reader, config)?;
        let settings = Settings {
            internal: shared.internal,
            family: spec.ip_families.first().copied(),
            balancer_id: reader.get(&known::LOAD_BALANCER_ID).map(str::to_owned),
            adopt: shared.adopt.clone(),
            places: PlacesWish::of(&reader, class, cfg, shared.internal),
            floating: FloatingWish::of(&reader, class, cfg),
            tls_container_ref: reader.get(&known::TLS_CONTAINER_REF).unwrap_or(&cfg.tls_container_ref).to_owned(),
            x_forwarded_for: reader.get(&known::X_FORWARDED_FOR).unwrap_or_default(),
            proxy_protocol: shared.proxy_protocol,
            connection_limit: reader.get(&known::CONNECTION_LIMIT).unwrap_or(-1),
            timeouts: Timeouts::of(&reader, &shared),
            asks_for_idle_timeout: shared.idle_timeout.is_some(),
            // upstream: an empty method is that of the configuration.
            method: reader.get(&known::LB_METHOD).unwrap_or(&cfg.method).to_owned(),
            sticky: matches!(spec.session_affinity, SessionAffinity::ClientIp { .. }),
            local: spec.traffic_policy == TrafficPolicy::Local,
            monitor: MonitorWish::of(&reader, &shared, spec, cfg)?,
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
            return Err(wrong("the Service has no ports; a balancer needs at least one"));
        }
        if self.proxy_protocol.is_some() && self.x_forwarded_for {
            let (proxy, forwarded) = (known::PROXY_PROTOCOL.key, known::X_FORWARDED_FOR.key);
            return Err(wrong(format!("the annotations {proxy} and {forwarded} cannot be used together; remove one")));
        }
        // Octavia would refuse the pool, when the one that was there is gone already.
        let other = spec.ports.iter().find(|port| port.protocol != Protocol::Tcp);
        if let (Some(_), Some(PortSpec { port, protocol, .. })) = (self.proxy_protocol, other) {
            return Err(wrong(format!(
                "Octavia speaks the PROXY protocol over TCP alone, and port {port} is of {protocol}; remove {}, or the port",
                known::PROXY_PROTOCOL.key
            )));
        }
        Ok(self)
    }

    /// What a listener for this protocol of a Service speaks.
    pub(crate) fn listener_protocol(&self, protocol: Protocol) -> &'static str {
        match protocol {
            _ if !self.tls_container_ref.is_empty() => "TERMINATED_HTTPS",
            _ if self.x_forwarded_for => "HTTP",
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
            Protocol::Sctp => "SCTP",
        }
    }

    /// What is spoken to the members behind it.
    pub(crate) fn pool_protocol(&self, protocol: Protocol) -> &'static str {
        match self.proxy_protocol {
            Some(ProxyProtocol::V1) => "PROXY",
            Some(ProxyProtocol::V2) => "PROXYV2",
            None if self.x_forwarded_for || !self.tls_container_ref.is_empty() => "HTTP",
            None => self.listener_protocol(protocol),
        }
    }

    /// Clients reach this balancer by IPv6. A new one has the family that is asked for, if one is.
    pub(crate) fn is_ipv6(&self, balancer: Option<&LoadBalancer>) -> bool {
        balancer.map_or(self.family == Some(IpFamily::IPv6), LoadBalancer::has_ipv6_vip)
    }

    /// VIP that the Service requests for a new load balancer. An external one for IPv4 is reached by its floating IP instead.
    pub(crate) fn vip_address<'a>(&self, spec: &'a LoadBalancerSpec) -> Option<&'a str> {
        let requested = spec.requested_address.as_deref().filter(|address| !address.is_empty());
        requested.filter(|_| self.internal || self.is_ipv6(None))
    }

    /// Who may connect to addresses of these families, as Octavia wants it told: everybody of the Service's own family, or else of
    /// the first one, where nobody is kept out.
    pub(crate) fn allowed_cidrs(&self, families: &[IpFamily]) -> BTreeSet<IpNet> {
        if self.source_ranges.is_empty() {
            let own = self.family.filter(|own| families.contains(own)).or(families.first().copied());
            return BTreeSet::from([everybody(own.unwrap_or(IpFamily::IPv4))]);
        }
        // Octavia refuses a range of a family that none of the addresses has, and a Service may have ranges of both.
        let fitting: BTreeSet<IpNet> =
            self.source_ranges.iter().copied().filter(|range| families.contains(&family_of(range))).collect();
        // None of them would let everybody in.
        if fitting.is_empty() { self.source_ranges.clone() } else { fitting }
    }

    /// Besides, these stay where they are: they keep nobody out, and the Service wishes to keep nobody out.
    pub(crate) fn tolerated_cidrs(&self, families: &[IpFamily]) -> BTreeSet<IpNet> {
        let nobody_is_kept_out = self.source_ranges.is_empty();
        families.iter().filter(|_| nobody_is_kept_out).copied().map(everybody).collect()
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

fn everybody(family: IpFamily) -> IpNet {
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

fn wrong(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidConfig, SETTLE, message)
}

#[cfg(test)]
mod tests;
