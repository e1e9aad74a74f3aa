//! Network namespace of a machine: a name under `/run/netns`, where `ip netns add` creates it, or a path, for instance of a
//! process.

#[cfg(all(feature = "netlink", target_os = "linux"))]
use std::path::{Path, PathBuf};

use crate::CloudError;

/// Directory of named namespaces.
#[cfg(all(feature = "netlink", target_os = "linux"))]
const NAMED: &str = "/run/netns";

/// Limit of a path (`PATH_MAX`).
const MAX_PATH: usize = 4096;

/// Validates a namespace. Its existence is checked on use, because machines may be created first.
pub(crate) fn check_namespace(name: &str) -> Result<(), CloudError> {
    let is_file = !name.contains('/') && !matches!(name, "" | "." | "..");
    let is_plain = name.len() < MAX_PATH && !name.chars().any(char::is_control);
    if is_plain && (is_file || name.starts_with('/')) {
        return Ok(());
    }
    Err(CloudError::Invalid(format!(
        "the network namespace {name:?} must be a name under /run/netns, such as \"worker-1\", or a path that begins with '/'"
    )))
}

/// Path of a validated namespace.
#[cfg(all(feature = "netlink", target_os = "linux"))]
pub(crate) fn path(name: &str) -> PathBuf {
    // `join` with an absolute path returns that path.
    Path::new(NAMED).join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_a_name_or_an_absolute_path() {
        for name in ["worker-1", "...", "/run/netns/worker-1", "/proc/42/task/43/ns/net"] {
            assert!(check_namespace(name).is_ok(), "{name:?}");
        }
        for name in ["", ".", "..", "../etc", "a/b", "a\0b", "a\n", &"a".repeat(MAX_PATH)] {
            assert!(check_namespace(name).unwrap_err().to_string().contains("/run/netns"), "{name:?}");
        }
    }

    #[cfg(all(feature = "netlink", target_os = "linux"))]
    #[test]
    fn a_name_is_under_run_netns_and_a_path_is_used_as_is() {
        assert_eq!(path("worker-1"), Path::new("/run/netns/worker-1"));
        assert_eq!(path("/proc/42/ns/net"), Path::new("/proc/42/ns/net"));
    }
}
