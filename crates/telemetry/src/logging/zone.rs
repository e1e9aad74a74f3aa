//! Local time zone, which klog's lines use.
//!
//! Not read by jiff, because its time zone feature would have to be enabled for every crate that depends on it.

use std::path::{Path, PathBuf};

use jiff::tz::TimeZone;

/// Directory of the time zone database.
const ZONES: &str = "/usr/share/zoneinfo";

/// Time zone of the environment or the system; UTC without both.
pub(super) fn local() -> TimeZone {
    named(std::env::var("TZ").ok().as_deref()).unwrap_or(TimeZone::UTC)
}

/// Resolves the variable TZ: a file, a name, a POSIX rule, or unset.
fn named(variable: Option<&str>) -> Option<TimeZone> {
    let Some(name) = variable.map(|name| name.trim_start_matches(':')) else {
        return from_file(Path::new("/etc/localtime"));
    };
    match name {
        "" => Some(TimeZone::UTC),
        name => path(name).and_then(|path| from_file(&path)).or_else(|| TimeZone::posix(name).ok()),
    }
}

/// Path of a time zone. A name must not leave the directory of time zones.
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
    fn a_time_zone_is_a_rule_or_a_file() {
        let offset = |name| named(Some(name)).map(|zone| zone.to_offset(jiff::Timestamp::UNIX_EPOCH).seconds());
        assert_eq!(offset(""), Some(0));
        assert_eq!(offset(":"), Some(0));
        assert_eq!(offset("XYZ-2"), Some(7200));
        assert_eq!(offset("No/Such"), None);
        assert_eq!(offset("../../etc/passwd"), None);
        assert_eq!(offset("/dev/null"), None);
    }
}
