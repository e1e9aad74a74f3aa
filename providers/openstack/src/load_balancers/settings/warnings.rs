//! Warnings about settings without effect, which become Events.

use bowline_core::Warning;
use bowline_core::annotations::{HEALTH_CHECK_PATH, IDLE_TIMEOUT};

use super::super::annotations::ENABLE_HEALTH_MONITOR;
use super::super::features::OVN;
use super::super::observation::Features;
use super::{MonitorSettings, Settings};
use crate::Config;

impl Settings {
    /// Returns warnings about settings that have no effect, or an unexpected one.
    pub(crate) fn warnings(&self, features: Features, config: &Config) -> Vec<Warning> {
        let cfg = &config.load_balancer;
        let (is_ovn, zone) = (cfg.provider == OVN, &self.availability_zone);
        let are_applied = features.allowed_cidrs || is_ovn && cfg.manage_security_groups;
        // upstream: emits the first one in every sync, also for a range that contains every address.
        let table = [
            (
                !self.source_ranges.is_empty() && !are_applied,
                "LoadBalancerSourceRangesIgnored",
                "source ranges are ignored, and every client may connect: they need Octavia API version 2.12 or newer and a provider other \
                 than ovn; with ovn, set manage-security-groups in [LoadBalancer]"
                    .to_owned(),
            ),
            (
                !zone.is_empty() && !features.availability_zones && !features.guessed,
                "LoadBalancerAvailabilityZonesIgnored",
                format!("the availability zone {zone:?} is ignored: it needs Octavia API version 2.14 or newer and a provider other than ovn"),
            ),
            (
                self.has_idle_timeout && !features.timeouts,
                "LoadBalancerIdleTimeoutIgnored",
                format!("the annotation {IDLE_TIMEOUT} is ignored: it needs Octavia API version 2.1 or newer and a provider other than ovn"),
            ),
            (
                is_ovn && self.monitor.as_ref().is_some_and(MonitorSettings::has_path),
                "LoadBalancerHealthCheckPathIgnored",
                format!("the annotation {HEALTH_CHECK_PATH} is ignored: ovn has no HTTP health monitors"),
            ),
            (
                self.local && self.monitor.is_none(),
                "LoadBalancerHealthMonitorMissing",
                format!(
                    "externalTrafficPolicy is Local and there is no health monitor: nodes without a Pod of the Service get traffic and drop \
                     it. Set the annotation {} to \"true\", or create-monitor in [LoadBalancer]",
                    ENABLE_HEALTH_MONITOR.key
                ),
            ),
        ];
        let found = table.into_iter().filter(|(holds, ..)| *holds);
        let found = found.map(|(_, reason, message)| warning(reason, &message));
        self.warnings.iter().cloned().chain(found).collect()
    }
}

pub(crate) fn warning(reason: &str, message: &str) -> Warning {
    Warning { reason: reason.to_owned(), message: message.to_owned() }
}
