//! Features of Octavia, by API version.

use super::observation::{Features, PoolState};
use crate::api::octavia::{Listener, LoadBalancer};

/// The OVN provider, which supports less than the others.
pub(crate) const OVN: &str = "ovn";

impl Features {
    /// Returns the features of the newest listed version (`v2.26`) with this provider. Without versions, no feature is assumed.
    pub(crate) fn of<'a>(versions: impl IntoIterator<Item = &'a str>, provider: &str) -> Features {
        let Some(newest) = versions.into_iter().filter_map(version).max() else { return Features::default() };
        let is_ovn = provider == OVN;
        let since = |minor| newest >= (2, minor);
        Features {
            timeouts: since(1) && !is_ovn,
            tags: since(5),
            flavors: since(6) && !is_ovn,
            allowed_cidrs: since(12) && !is_ovn,
            availability_zones: since(14) && !is_ovn,
            http_monitors_on_udp: since(16) && !is_ovn,
            guessed: false,
        }
    }

    /// Infers features from existing resources while Octavia does not list its versions. Fields of other features are neither
    /// compared nor written.
    pub(crate) fn shown_by(
        balancer: &LoadBalancer,
        listeners: &[Listener],
        pools: &[PoolState],
        provider: &str,
    ) -> Features {
        let is_full = provider != OVN;
        let has_http_monitor = |seen: &PoolState| {
            seen.pool.protocol == "UDP" && seen.monitor.as_ref().is_some_and(|monitor| monitor.kind == "HTTP")
        };
        Features {
            timeouts: is_full && listeners.iter().any(|listener| listener.timeout_client_data != 0),
            tags: !balancer.tags.is_empty() || listeners.iter().any(|listener| !listener.tags.is_empty()),
            allowed_cidrs: is_full && listeners.iter().any(|listener| !listener.allowed_cidrs.is_empty()),
            http_monitors_on_udp: is_full && pools.iter().any(has_http_monitor),
            guessed: true,
            ..Features::default()
        }
    }
}

fn version(id: &str) -> Option<(u32, u32)> {
    let (major, minor) = id.strip_prefix('v')?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::octavia::HealthMonitor;
    use std::slice::from_ref;

    fn all(features: Features) -> [bool; 6] {
        let Features { timeouts, tags, flavors, allowed_cidrs, availability_zones, http_monitors_on_udp, .. } =
            features;
        [timeouts, tags, flavors, allowed_cidrs, availability_zones, http_monitors_on_udp]
    }

    #[test]
    fn each_feature_starts_at_its_version() {
        let gates = [1, 5, 6, 12, 14, 16];
        for (place, gate) in gates.into_iter().enumerate() {
            let before = Features::of([format!("v2.{}", gate - 1).as_str()], "amphora");
            let since = Features::of([format!("v2.{gate}").as_str()], "amphora");
            assert_eq!((all(before)[place], all(since)[place]), (false, true), "v2.{gate}");
        }
    }

    #[test]
    fn ovn_has_tags_and_nothing_else() {
        assert_eq!(all(Features::of(["v2.26"], OVN)), [false, true, false, false, false, false]);
        assert_eq!(all(Features::of(["v2.4"], OVN)), [false; 6]);
    }

    #[test]
    fn features_are_inferred_from_existing_resources() {
        let nothing = (LoadBalancer::default(), Listener::default(), PoolState::default());
        let shown = |(balancer, listener, pool): &(LoadBalancer, Listener, PoolState), provider| {
            let features = Features::shown_by(balancer, from_ref(listener), from_ref(pool), provider);
            assert!(features.guessed);
            all(features)
        };
        assert_eq!(shown(&nothing, "amphora"), [false; 6]);
        let some = || vec!["a".to_owned()];
        let mut everything = nothing;
        everything.1 = Listener { timeout_client_data: 1, allowed_cidrs: some(), tags: some(), ..everything.1 };
        everything.2.pool.protocol = "UDP".to_owned();
        everything.2.monitor = Some(HealthMonitor { kind: "HTTP".to_owned(), ..HealthMonitor::default() });
        assert_eq!(shown(&everything, "amphora"), [true, true, false, true, false, true]);
        assert_eq!(shown(&everything, OVN), [false, true, false, false, false, false]);
    }

    #[test]
    fn the_newest_version_counts_in_any_order() {
        assert_eq!(all(Features::of(["v2.26", "v2.0", "v2.9"], "amphora")), [true; 6]);
        assert_eq!(all(Features::of(["v3.0"], "amphora")), [true; 6]);
    }

    #[test]
    fn unreadable_versions_have_no_features() {
        for versions in [&[][..], &["v2"], &["2.26"], &["v2.x", "latest", "v.1", ""]] {
            assert_eq!(all(Features::of(versions.iter().copied(), "amphora")), [false; 6], "{versions:?}");
        }
    }
}
