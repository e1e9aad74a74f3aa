//! Health monitor settings.

use std::time::Duration;

use bowline_cloud::Result;
use bowline_core::annotations::{Annotation, Integer, LoadBalancerSettings, Reader};
use bowline_core::{HealthCheck, LoadBalancerSpec, Protocol};

use super::super::annotations as known;
use super::super::features::OVN;
use super::super::observation::Features;
use super::invalid_config;
use crate::config::{LoadBalancer, MonitorTimes};

/// Health monitor settings of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MonitorSettings {
    pub(crate) times: MonitorTimes,
    /// Health check of the Service's nodes (traffic policy Local).
    own: Option<HealthCheck>,
    /// Path and port of the common annotations, which take precedence.
    path: Option<String>,
    port: Option<u16>,
}

/// Health monitor of one pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MonitorKind {
    /// Octavia's type.
    pub(crate) kind: &'static str,
    /// Path of HTTP requests.
    pub(crate) path: Option<String>,
    /// Port that is probed instead of the member's own.
    pub(crate) port: Option<u16>,
}

impl MonitorSettings {
    pub(super) fn of(
        reader: &Reader<'_>,
        shared: &LoadBalancerSettings,
        spec: &LoadBalancerSpec,
        cfg: &LoadBalancer,
    ) -> Result<Option<MonitorSettings>> {
        let LoadBalancerSettings { health_check_path: path, health_check_port: port, .. } = shared;
        let is_requested = path.is_some() || port.is_some() || shared.health_check_interval.is_some();
        let times = times(reader, shared.health_check_interval, cfg.monitor);
        if !reader.get(&known::ENABLE_HEALTH_MONITOR).unwrap_or(is_requested || cfg.create_monitor) {
            return Ok(None);
        }
        check(&times)?;
        Ok(Some(MonitorSettings { times, own: spec.health_check.clone(), path: path.clone(), port: *port }))
    }

    /// Returns whether the user sets a path.
    pub(super) fn has_path(&self) -> bool {
        self.path.is_some()
    }

    /// Returns the health monitor of a pool for this protocol. Without HTTP support, the node's health check port is not probed
    /// either: it accepts connections whatever the Service's Pods do.
    pub(crate) fn kind(&self, protocol: Protocol, features: Features, provider: &str) -> MonitorKind {
        let supports_http = provider != OVN && (protocol != Protocol::Udp || features.http_monitors_on_udp);
        let path = self.path.as_ref().or(self.own.as_ref().map(|own| &own.path)).filter(|_| supports_http);
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
    // Octavia's minimum is one second.
    let interval = interval.and_then(|interval| i64::try_from(interval.as_secs().max(1)).ok());
    let delay = reader.get(&known::HEALTH_MONITOR_DELAY).or(interval).unwrap_or(cfg.delay);
    // The timeout must not exceed the interval.
    let timeout = interval.map_or(cfg.timeout, |interval| cfg.timeout.min(interval));
    MonitorTimes {
        delay,
        timeout: reader.get(&known::HEALTH_MONITOR_TIMEOUT).unwrap_or(timeout),
        max_retries: reader.get(&known::HEALTH_MONITOR_MAX_RETRIES).unwrap_or(cfg.max_retries),
        max_retries_down: reader.get(&known::HEALTH_MONITOR_MAX_RETRIES_DOWN).unwrap_or(cfg.max_retries_down),
    }
}

/// Checks that none of these is zero, which Octavia rejects.
fn check(times: &MonitorTimes) -> Result<()> {
    let all: [(i64, Annotation<Integer>, &str); 3] = [
        (times.delay, known::HEALTH_MONITOR_DELAY, "monitor-delay"),
        (times.timeout, known::HEALTH_MONITOR_TIMEOUT, "monitor-timeout"),
        (times.max_retries, known::HEALTH_MONITOR_MAX_RETRIES, "monitor-max-retries"),
    ];
    let Some((_, annotation, key)) = all.into_iter().find(|(value, ..)| *value == 0) else { return Ok(()) };
    let key = format!("{} (or {key} in [LoadBalancer])", annotation.key);
    Err(invalid_config(format!("health monitors are enabled, and {key} is 0; it must be at least 1")))
}
