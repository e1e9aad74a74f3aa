//! Network namespace of a machine: a name under `/run/netns`, where `ip netns add` creates it, or a path, for instance of a
//! process.

use crate::CloudError;

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
}
