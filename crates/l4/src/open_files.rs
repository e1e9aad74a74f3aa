//! How many files this process may have open. A connection needs two: one for the client, one for the target.

use std::io::Error;

/// For everything else that the process has open.
const OTHERS: usize = 64;

/// `EMFILE` and `ENFILE`: this process or the whole machine has too many files open.
const TOO_MANY: [i32; 2] = [24, 23];

/// How many connections there is room for, if anybody says; at least one.
pub(crate) fn room_for_connections() -> Option<usize> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    Some(room_in(soft_limit(&limits)?))
}

/// Whether something failed for want of a free descriptor, which is nobody else's fault and passes.
pub(crate) fn are_too_many(error: &Error) -> bool {
    error.raw_os_error().is_some_and(|code| TOO_MANY.contains(&code))
}

fn room_in(files: usize) -> usize {
    (files.saturating_sub(OTHERS) / 2).max(1)
}

fn soft_limit(limits: &str) -> Option<usize> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    // "unlimited" is no number, and no limit.
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_is_found_among_the_others() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
                      Max processes             95592                95592                processes\n\
                      Max open files            1024                 524288               files\n";
        assert_eq!(soft_limit(limits), Some(1024));
        assert_eq!(soft_limit("Max open files            unlimited            unlimited            files\n"), None);
        assert_eq!(soft_limit(""), None);
    }

    #[test]
    fn a_connection_needs_two_files_and_others_need_some() {
        assert_eq!(room_in(1024), 480);
        assert_eq!(room_in(3), 1);
    }
}
