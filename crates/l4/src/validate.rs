//! Validation of a configuration before it is applied.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::{HealthCheck, HealthProbe, ListenerConfig, LoadBalancerConfig, Target, Transport};

/// Maximum of all durations: a longer one is a mistake, and could overflow when added to the current time.
pub(crate) const MAX_DURATION: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// An invalid configuration. It was not applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct ConfigError {
    /// Path of the invalid field.
    pub field: String,
    /// What is wrong, and what is valid.
    pub message: String,
}

type Checked = Result<(), ConfigError>;

/// Returns the first error, in the order of the configuration.
pub(crate) fn load_balancer(config: &LoadBalancerConfig) -> Checked {
    addresses(&config.addresses)?;
    let mut ports = HashSet::new();
    for (at, one) in config.listeners.iter().enumerate() {
        let field = format!("listeners[{at}]");
        listener(&field, one)?;
        check_loop(&field, config, one)?;
        if !ports.insert((one.transport, one.port)) {
            return invalid(format!("{field}.port"), "duplicate: another listener has the same transport and port");
        }
    }
    at_most_max("drain".to_owned(), config.drain)
}

fn addresses(addresses: &[IpAddr]) -> Checked {
    if addresses.is_empty() {
        return invalid("addresses".to_owned(), "required: a load balancer needs at least one address");
    }
    let mut seen = HashSet::new();
    for (at, address) in addresses.iter().enumerate() {
        let field = format!("addresses[{at}]");
        if address.is_multicast() {
            return invalid(field, "must not be a multicast address; use an address of this machine");
        }
        if !seen.insert(address) {
            return invalid(field, "duplicate address");
        }
    }
    Ok(())
}

fn listener(field: &str, listener: &ListenerConfig) -> Checked {
    if listener.port == 0 {
        return invalid(format!("{field}.port"), "must be from 1 to 65535");
    }
    targets(field, &listener.targets)?;
    if let Some(affinity) = listener.affinity {
        period(format!("{field}.affinity"), affinity)?;
    }
    if let Some(check) = &listener.health {
        health(&format!("{field}.health"), check)?;
    }
    if listener.proxy_protocol.is_some() && listener.transport == Transport::Udp {
        return invalid(format!("{field}.proxyProtocol"), "not supported for UDP; remove it");
    }
    period(format!("{field}.idleTimeout"), listener.idle_timeout)?;
    period(format!("{field}.connectTimeout"), listener.connect_timeout)
}

fn targets(field: &str, targets: &[Target]) -> Checked {
    let mut seen = HashSet::new();
    for (at, target) in targets.iter().enumerate() {
        let field = format!("{field}.targets[{at}].address");
        if target.address.port() == 0 {
            return invalid(field, "the port must be from 1 to 65535");
        }
        let ip = target.address.ip();
        if ip.is_unspecified() || ip.is_multicast() {
            return invalid(field, "must be the address of one host, not an unspecified or multicast address");
        }
        if !seen.insert(target.address) {
            return invalid(field, "duplicate target; use the weight for a larger share");
        }
    }
    Ok(())
}

/// Rejects targets that this load balancer itself listens on: it would connect to itself until no connection is left.
fn check_loop(field: &str, config: &LoadBalancerConfig, listener: &ListenerConfig) -> Checked {
    let listens_at = |target: SocketAddr| {
        let same_transport = config.listeners.iter().filter(|other| other.transport == listener.transport);
        config.addresses.contains(&target.ip()) && same_transport.clone().any(|other| other.port == target.port())
    };
    match listener.targets.iter().position(|target| listens_at(target.address)) {
        Some(at) => invalid(
            format!("{field}.targets[{at}].address"),
            "this load balancer itself listens on this address, so traffic would loop; use another target",
        ),
        None => Ok(()),
    }
}

fn health(field: &str, check: &HealthCheck) -> Checked {
    if let HealthProbe::Http { path } = &check.probe
        && !(path.starts_with('/') && path.chars().all(|c| c.is_ascii_graphic()))
    {
        return invalid(
            format!("{field}.probe.http.path"),
            "must start with / and contain only printable ASCII characters without spaces",
        );
    }
    if check.port == Some(0) {
        return invalid(format!("{field}.port"), "must be from 1 to 65535; remove it to use the target's own port");
    }
    period(format!("{field}.interval"), check.interval)?;
    period(format!("{field}.timeout"), check.timeout)?;
    at_least_one(format!("{field}.rise"), check.rise)?;
    at_least_one(format!("{field}.fall"), check.fall)
}

fn at_least_one(field: String, count: u32) -> Checked {
    if count == 0 { invalid(field, "must be at least 1") } else { Ok(()) }
}

fn period(field: String, period: Duration) -> Checked {
    if period.is_zero() {
        return invalid(field, "must be greater than 0");
    }
    at_most_max(field, period)
}

fn at_most_max(field: String, period: Duration) -> Checked {
    if period > MAX_DURATION { invalid(field, "must be at most one year") } else { Ok(()) }
}

fn invalid(field: String, message: &str) -> Checked {
    Err(ConfigError { field, message: message.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ProxyProtocol;

    fn config() -> LoadBalancerConfig {
        let target = |port| Target::new(SocketAddr::from(([127, 0, 1, 1], port)));
        LoadBalancerConfig {
            addresses: vec![[127, 0, 5, 1].into(), [127, 0, 5, 2].into()],
            listeners: vec![
                ListenerConfig::new(Transport::Tcp, 80, vec![target(30080), target(30081)]),
                ListenerConfig::new(Transport::Udp, 80, vec![target(30080)]),
            ],
            allow: Vec::new(),
            drain: Duration::ZERO,
        }
    }

    fn check() -> HealthCheck {
        let second = Duration::from_secs(1);
        HealthCheck { probe: HealthProbe::Tcp, port: None, interval: second, timeout: second, rise: 1, fall: 1 }
    }

    #[test]
    fn a_valid_configuration_is_accepted() {
        assert_eq!(load_balancer(&config()), Ok(()));
    }

    #[test]
    fn a_listener_without_targets_and_a_load_balancer_without_listeners_are_accepted() {
        let mut bare = config();
        bare.listeners[0].targets.clear();
        assert_eq!(load_balancer(&bare), Ok(()));
        bare.listeners.clear();
        assert_eq!(load_balancer(&bare), Ok(()));
    }

    #[test]
    fn an_invalid_field_is_reported_by_its_path() {
        type Change = fn(&mut LoadBalancerConfig);
        let cases: [(&str, Change); 23] = [
            ("addresses", |c| c.addresses.clear()),
            ("addresses[1]", |c| c.addresses[1] = c.addresses[0]),
            ("addresses[0]", |c| c.addresses[0] = [224, 0, 0, 1].into()),
            ("listeners[0].port", |c| c.listeners[0].port = 0),
            ("listeners[1].port", |c| c.listeners[1].transport = Transport::Tcp),
            ("listeners[0].targets[1].address", |c| c.listeners[0].targets[1].address.set_port(0)),
            ("listeners[0].targets[1].address", |c| c.listeners[0].targets[1].address.set_port(30080)),
            ("listeners[1].targets[0].address", |c| c.listeners[1].targets[0].address.set_ip([0, 0, 0, 0].into())),
            ("listeners[0].targets[0].address", |c| c.listeners[0].targets[0].address = ([127, 0, 5, 2], 80).into()),
            ("listeners[0].affinity", |c| c.listeners[0].affinity = Some(Duration::ZERO)),
            ("listeners[1].proxyProtocol", |c| c.listeners[1].proxy_protocol = Some(ProxyProtocol::V2)),
            ("listeners[0].idleTimeout", |c| c.listeners[0].idle_timeout = Duration::ZERO),
            ("listeners[0].idleTimeout", |c| c.listeners[0].idle_timeout = Duration::MAX),
            ("listeners[1].connectTimeout", |c| c.listeners[1].connect_timeout = Duration::ZERO),
            ("drain", |c| c.drain = Duration::MAX),
            ("listeners[0].health.port", |c| c.listeners[0].health = Some(HealthCheck { port: Some(0), ..check() })),
            ("listeners[0].health.rise", |c| c.listeners[0].health = Some(HealthCheck { rise: 0, ..check() })),
            ("listeners[0].health.fall", |c| c.listeners[0].health = Some(HealthCheck { fall: 0, ..check() })),
            ("listeners[0].health.interval", |c| {
                c.listeners[0].health = Some(HealthCheck { interval: Duration::ZERO, ..check() });
            }),
            ("listeners[0].health.timeout", |c| {
                c.listeners[0].health = Some(HealthCheck { timeout: Duration::ZERO, ..check() });
            }),
            ("listeners[0].health.probe.http.path", |c| {
                c.listeners[0].health =
                    Some(HealthCheck { probe: HealthProbe::Http { path: String::new() }, ..check() });
            }),
            ("listeners[0].health.probe.http.path", |c| {
                let path = "/a HTTP/1.1\r\nHost: other".to_owned();
                c.listeners[0].health = Some(HealthCheck { probe: HealthProbe::Http { path }, ..check() });
            }),
            ("listeners[0].health.probe.http.path", |c| {
                let path = "healthz".to_owned();
                c.listeners[0].health = Some(HealthCheck { probe: HealthProbe::Http { path }, ..check() });
            }),
        ];
        for (field, change) in cases {
            let mut changed = config();
            change(&mut changed);
            assert_eq!(load_balancer(&changed).map_err(|error| error.field), Err(field.to_owned()));
        }
    }
}
