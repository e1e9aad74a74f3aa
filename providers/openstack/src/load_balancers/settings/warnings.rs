//! What is asked for and cannot be had, in warnings that become Events.

use bowline_core::Warning;
use bowline_core::annotations::{HEALTH_CHECK_PATH, IDLE_TIMEOUT};

use super::super::annotations::ENABLE_HEALTH_MONITOR;
use super::super::features::OVN;
use super::super::observation::Features;
use super::{MonitorWish, Settings};
use crate::Config;

impl Settings {
    /// All that the owner of the Service should know of what was asked for.
    pub(crate) fn warnings(&self, features: Features, config: &Config) -> Vec<Warning> {
        let found = [
            self.ignored_ranges(features, config),
            self.ignored_zone(features),
            self.ignored_timeout(features),
            self.ignored_path(config),
            self.unwatched(),
        ];
        self.warnings.iter().cloned().chain(found.into_iter().flatten()).collect()
    }

    // upstream: tells this in every pass, also of the range that lets everybody in.
    fn ignored_ranges(&self, features: Features, config: &Config) -> Option<Warning> {
        let cfg = &config.load_balancer;
        let are_applied = features.allowed_cidrs || cfg.provider == OVN && cfg.manage_security_groups;
        let message = "source ranges are passed over, and everybody may connect: this needs Octavia 2.12 or newer and a provider \
                       other than ovn; with ovn, manage-security-groups in [LoadBalancer] limits who may connect";
        (!self.source_ranges.is_empty() && !are_applied).then(|| warning("LoadBalancerSourceRangesIgnored", message))
    }

    fn ignored_zone(&self, features: Features) -> Option<Warning> {
        let zone = &self.availability_zone;
        let message = format!(
            "the availability zone {zone:?} is passed over: this needs Octavia 2.14 or newer and a provider other than ovn"
        );
        let is_ignored = !zone.is_empty() && !features.availability_zones && !features.guessed;
        is_ignored.then(|| warning("LoadBalancerAvailabilityZonesIgnored", &message))
    }

    fn ignored_timeout(&self, features: Features) -> Option<Warning> {
        let message = format!(
            "the annotation {IDLE_TIMEOUT} is passed over: this needs Octavia 2.1 or newer and a provider other than ovn"
        );
        let is_ignored = self.asks_for_idle_timeout && !features.timeouts;
        is_ignored.then(|| warning("LoadBalancerIdleTimeoutIgnored", &message))
    }

    fn ignored_path(&self, config: &Config) -> Option<Warning> {
        let is_asked = self.monitor.as_ref().is_some_and(MonitorWish::asks_for_path);
        let message = format!("the annotation {HEALTH_CHECK_PATH} is passed over: ovn cannot ask over HTTP");
        let is_ignored = is_asked && config.load_balancer.provider == OVN;
        is_ignored.then(|| warning("LoadBalancerHealthCheckPathIgnored", &message))
    }

    /// Nothing keeps traffic from nodes that would drop it.
    fn unwatched(&self) -> Option<Warning> {
        let message = format!(
            "externalTrafficPolicy is Local and members are not watched: nodes without a pod of the Service get traffic, too, and \
             drop it. Set the annotation {} to \"true\", or create-monitor in [LoadBalancer]",
            ENABLE_HEALTH_MONITOR.key
        );
        (self.local && self.monitor.is_none()).then(|| warning("LoadBalancerHealthMonitorMissing", &message))
    }
}

pub(crate) fn warning(reason: &str, message: &str) -> Warning {
    Warning { reason: reason.to_owned(), message: message.to_owned() }
}
