//! How members are watched.

use std::time::Duration;

use bowline_cloud::Result;
use bowline_core::annotations::{Annotation, Integer, LoadBalancerSettings, Reader};
use bowline_core::{HealthCheck, LoadBalancerSpec, Protocol};

use super::super::annotations as known;
use super::super::features::OVN;
use super::super::observation::Features;
use super::wrong;
use crate::config::{LoadBalancer, MonitorTimes};

/// How members are watched, whatever their port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MonitorWish {
    pub(crate) times: MonitorTimes,
    /// How the Service's nodes say themselves whether they want traffic.
    own: Option<HealthCheck>,
    /// What the user chose instead.
    path: Option<String>,
    port: Option<u16>,
}

/// How the members of one pool are watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MonitorKind {
    /// Octavia's word for it.
    pub(crate) kind: &'static str,
    /// What is asked for over HTTP.
    pub(crate) path: Option<String>,
    /// The port that is asked instead of the member's own.
    pub(crate) port: Option<u16>,
}

impl MonitorWish {
    pub(super) fn of(
        reader: &Reader<'_>,
        shared: &LoadBalancerSettings,
        spec: &LoadBalancerSpec,
        cfg: &LoadBalancer,
    ) -> Result<Option<MonitorWish>> {
        let LoadBalancerSettings { health_check_path: path, health_check_port: port, .. } = shared;
        let asked = path.is_some() || port.is_some() || shared.health_check_interval.is_some();
        let times = times(reader, shared.health_check_interval, cfg.monitor);
        if !reader.get(&known::ENABLE_HEALTH_MONITOR).unwrap_or(asked || cfg.create_monitor) {
            return Ok(None);
        }
        check(&times)?;
        Ok(Some(MonitorWish { times, own: spec.health_check.clone(), path: path.clone(), port: *port }))
    }

    /// The user names a path.
    pub(super) fn asks_for_path(&self) -> bool {
        self.path.is_some()
    }

    /// How members of a pool for this protocol are watched. HTTP is not asked where that is not possible; then the node is not
    /// asked on its own port either, which would be well whatever the Service's pods do.
    pub(crate) fn kind(&self, protocol: Protocol, features: Features, provider: &str) -> MonitorKind {
        let can_ask = provider != OVN && (protocol != Protocol::Udp || features.http_monitors_on_udp);
        let path = self.path.as_ref().or(self.own.as_ref().map(|own| &own.path)).filter(|_| can_ask);
        let kind = match protocol {
            _ if path.is_some() => "HTTP",
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP-CONNECT",
            Protocol::Sctp => "SCTP",
        };
        let own_port = self.own.as_ref().map(|own| own.port).filter(|_| path.is_some());
        MonitorKind { kind, path: path.cloned(), port: self.port.or(own_port) }
    }
}

fn times(reader: &Reader<'_>, interval: Option<Duration>, cfg: MonitorTimes) -> MonitorTimes {
    // Octavia counts in seconds, of which there is at least one.
    let interval = interval.and_then(|interval| i64::try_from(interval.as_secs().max(1)).ok());
    let delay = reader.get(&known::HEALTH_MONITOR_DELAY).or(interval).unwrap_or(cfg.delay);
    // An answer may not take longer than the next question.
    let timeout = interval.map_or(cfg.timeout, |interval| cfg.timeout.min(interval));
    MonitorTimes {
        delay,
        timeout: reader.get(&known::HEALTH_MONITOR_TIMEOUT).unwrap_or(timeout),
        max_retries: reader.get(&known::HEALTH_MONITOR_MAX_RETRIES).unwrap_or(cfg.max_retries),
        max_retries_down: reader.get(&known::HEALTH_MONITOR_MAX_RETRIES_DOWN).unwrap_or(cfg.max_retries_down),
    }
}

/// Octavia wants these to be something; it is not asked with nothing.
fn check(times: &MonitorTimes) -> Result<()> {
    let all: [(i64, Annotation<Integer>, &str); 3] = [
        (times.delay, known::HEALTH_MONITOR_DELAY, "monitor-delay"),
        (times.timeout, known::HEALTH_MONITOR_TIMEOUT, "monitor-timeout"),
        (times.max_retries, known::HEALTH_MONITOR_MAX_RETRIES, "monitor-max-retries"),
    ];
    let Some((_, annotation, key)) = all.into_iter().find(|(value, ..)| *value == 0) else { return Ok(()) };
    let key = format!("{} (or {key} in [LoadBalancer])", annotation.key);
    Err(wrong(format!("a health monitor is wanted, and {key} is 0; it must be at least 1")))
}
