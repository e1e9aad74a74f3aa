//! The local time zone, which klog's lines are in.
//!
//! Read here rather than by jiff, whose own search is a feature that every crate above it would be compiled anew for.

use std::path::{Path, PathBuf};

use jiff::tz::TimeZone;

/// Where systems keep their zones.
const ZONES: &str = "/usr/share/zoneinfo";

/// The zone that the environment or the system names. In a container with neither it is UTC.
pub(super) fn local() -> TimeZone {
    named(std::env::var("TZ").ok().as_deref()).unwrap_or(TimeZone::UTC)
}

/// What the variable TZ means: a file, a name, a rule, or nothing said.
fn named(variable: Option<&str>) -> Option<TimeZone> {
    let Some(name) = variable.map(|name| name.trim_start_matches(':')) else {
        return from_file(Path::new("/etc/localtime"));
    };
    match name {
        "" => Some(TimeZone::UTC),
        name => path(name).and_then(|path| from_file(&path)).or_else(|| TimeZone::posix(name).ok()),
    }
}

/// Names come with the environment, and must not lead out of the zones.
fn path(name: &str) -> Option<PathBuf> {
    if name.starts_with('/') {
        return Some(name.into());
    }
    name.split('/').all(|part| part != "..").then(|| Path::new(ZONES).join(name))
}

fn from_file(path: &Path) -> Option<TimeZone> {
    let bytes = std::fs::read(path).ok()?;
    TimeZone::tzif(&path.to_string_lossy(), &bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_is_a_rule_or_a_file_and_else_there_is_none() {
        let offset = |name| named(Some(name)).map(|zone| zone.to_offset(jiff::Timestamp::UNIX_EPOCH).seconds());
        assert_eq!(offset(""), Some(0));
        assert_eq!(offset(":"), Some(0));
        assert_eq!(offset("XYZ-2"), Some(7200));
        assert_eq!(offset("No/Such"), None);
        assert_eq!(offset("../../etc/passwd"), None);
        assert_eq!(offset("/dev/null"), None);
    }
}
