//! What an Octavia can do, by its version.

use super::observation::Features;

/// The provider that differs from all others.
pub(crate) const OVN: &str = "ovn";

impl Features {
    /// By the versions that it lists (`v2.26`), the newest of which counts, and the provider that is asked of it. Of an Octavia
    /// that lists none nothing is known, and nothing expected.
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

    fn all(features: Features) -> [bool; 6] {
        let Features { timeouts, tags, flavors, allowed_cidrs, availability_zones, http_monitors_on_udp } = features;
        [timeouts, tags, flavors, allowed_cidrs, availability_zones, http_monitors_on_udp]
    }

    #[test]
    fn each_feature_has_the_version_that_it_came_with() {
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
    fn the_newest_version_counts_wherever_it_stands_in_the_list() {
        assert_eq!(all(Features::of(["v2.26", "v2.0", "v2.9"], "amphora")), [true; 6]);
        assert_eq!(all(Features::of(["v3.0"], "amphora")), [true; 6]);
    }

    #[test]
    fn of_versions_that_make_no_sense_nothing_is_expected() {
        for versions in [&[][..], &["v2"], &["2.26"], &["v2.x", "latest", "v.1", ""]] {
            assert_eq!(all(Features::of(versions.iter().copied(), "amphora")), [false; 6], "{versions:?}");
        }
    }
}
