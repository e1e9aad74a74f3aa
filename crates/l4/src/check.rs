//! Whether a configuration makes sense, before anything is done about it.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::{BalancerConfig, HealthCheck, HealthProbe, ListenerConfig, Target, Transport};

/// No time in a configuration may be longer: it is a mistake, and could not be added to the clock in the worst case.
pub(crate) const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// Why a configuration is refused. Nothing has changed then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {message}")]
pub struct ConfigError {
    /// The field.
    pub place: String,
    /// What is wrong, and what would be right.
    pub message: String,
}

type Checked = Result<(), ConfigError>;

/// The first thing that is wrong, in the order of the configuration.
pub(crate) fn balancer(config: &BalancerConfig) -> Checked {
    addresses(&config.addresses)?;
    let mut ports = HashSet::new();
    for (at, one) in config.listeners.iter().enumerate() {
        let place = format!("listeners[{at}]");
        listener(&place, one)?;
        loops(&place, config, one)?;
        if !ports.insert((one.transport, one.port)) {
            return refuse(format!("{place}.port"), "another listener has the same transport and port; name each once");
        }
    }
    at_most_longest("drain".to_owned(), config.drain)
}

fn addresses(addresses: &[IpAddr]) -> Checked {
    if addresses.is_empty() {
        return refuse("addresses".to_owned(), "there is none; a balancer needs one to listen on");
    }
    let mut seen = HashSet::new();
    for (at, address) in addresses.iter().enumerate() {
        let place = format!("addresses[{at}]");
        if address.is_multicast() {
            return refuse(place, "a multicast address cannot be listened on; use an address of this machine");
        }
        if !seen.insert(address) {
            return refuse(place, "this address is named before; name each once");
        }
    }
    Ok(())
}

fn listener(place: &str, listener: &ListenerConfig) -> Checked {
    if listener.port == 0 {
        return refuse(format!("{place}.port"), "0 is no port; use 1 to 65535");
    }
    targets(place, &listener.targets)?;
    if let Some(affinity) = listener.affinity {
        period(format!("{place}.affinity"), affinity)?;
    }
    if let Some(check) = &listener.health {
        health(&format!("{place}.health"), check)?;
    }
    if listener.proxy_protocol.is_some() && listener.transport == Transport::Udp {
        return refuse(format!("{place}.proxyProtocol"), "the PROXY protocol is for TCP; leave it out for UDP");
    }
    period(format!("{place}.idleTimeout"), listener.idle_timeout)?;
    period(format!("{place}.connectTimeout"), listener.connect_timeout)
}

fn targets(place: &str, targets: &[Target]) -> Checked {
    let mut seen = HashSet::new();
    for (at, target) in targets.iter().enumerate() {
        let place = format!("{place}.targets[{at}].address");
        if target.address.port() == 0 {
            return refuse(place, "0 is no port; use 1 to 65535");
        }
        let ip = target.address.ip();
        if ip.is_unspecified() || ip.is_multicast() {
            return refuse(place, "nobody can be reached at this address; use the address of one host");
        }
        if !seen.insert(target.address) {
            return refuse(place, "this target is named before; name each once, with a weight for a bigger share");
        }
    }
    Ok(())
}

/// A balancer that connects to itself would do so until no connection is left.
fn loops(place: &str, config: &BalancerConfig, listener: &ListenerConfig) -> Checked {
    let listens_at = |target: SocketAddr| {
        let same_transport = config.listeners.iter().filter(|other| other.transport == listener.transport);
        config.addresses.contains(&target.ip()) && same_transport.clone().any(|other| other.port == target.port())
    };
    match listener.targets.iter().position(|target| listens_at(target.address)) {
        Some(at) => refuse(
            format!("{place}.targets[{at}].address"),
            "this balancer listens there itself, so traffic would go in a circle; use another target",
        ),
        None => Ok(()),
    }
}

fn health(place: &str, check: &HealthCheck) -> Checked {
    if let HealthProbe::Http { path } = &check.probe
        && !(path.starts_with('/') && path.chars().all(|c| c.is_ascii_graphic()))
    {
        return refuse(
            format!("{place}.probe.http.path"),
            "a path begins with / and has neither spaces nor control characters nor letters outside ASCII",
        );
    }
    if check.port == Some(0) {
        return refuse(format!("{place}.port"), "0 is no port; use 1 to 65535, or leave it out for the target's own");
    }
    period(format!("{place}.interval"), check.interval)?;
    period(format!("{place}.timeout"), check.timeout)?;
    at_least_one(format!("{place}.rise"), check.rise)?;
    at_least_one(format!("{place}.fall"), check.fall)
}

fn at_least_one(place: String, count: u32) -> Checked {
    if count == 0 { refuse(place, "0 would mean without asking; use 1 or more") } else { Ok(()) }
}

fn period(place: String, period: Duration) -> Checked {
    if period.is_zero() {
        return refuse(place, "no time at all; use more than 0");
    }
    at_most_longest(place, period)
}

fn at_most_longest(place: String, period: Duration) -> Checked {
    if period > LONGEST { refuse(place, "longer than a year; use less") } else { Ok(()) }
}

fn refuse(place: String, message: &str) -> Checked {
    Err(ConfigError { place, message: message.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ProxyProtocol;

    fn config() -> BalancerConfig {
        let target = |port| Target::new(SocketAddr::from(([127, 0, 1, 1], port)));
        BalancerConfig {
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
    fn a_configuration_that_makes_sense_is_taken() {
        assert_eq!(balancer(&config()), Ok(()));
    }

    #[test]
    fn a_listener_without_targets_and_a_balancer_without_listeners_are_taken() {
        let mut bare = config();
        bare.listeners[0].targets.clear();
        assert_eq!(balancer(&bare), Ok(()));
        bare.listeners.clear();
        assert_eq!(balancer(&bare), Ok(()));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_place() {
        type Spoil = fn(&mut BalancerConfig);
        let cases: [(&str, Spoil); 23] = [
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
        for (place, spoil) in cases {
            let mut spoilt = config();
            spoil(&mut spoilt);
            assert_eq!(balancer(&spoilt).map_err(|error| error.place), Err(place.to_owned()));
        }
    }
}
