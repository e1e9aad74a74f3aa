//! Open-files limit of this process. A connection needs two files: one for the client, one for the target.

use std::io::Error;

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};

/// Files reserved for the rest of the process.
const RESERVED: usize = 64;

/// `EMFILE` and `ENFILE`: this process or the whole system has too many open files.
const EXHAUSTED: [i32; 2] = [24, 23];

/// Raises the soft limit to the hard limit. The soft one is 1,024 on most systems, for programs that use `select`.
pub(crate) fn raise_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| match soft < hard {
        true => setrlimit(Resource::RLIMIT_NOFILE, hard, hard),
        false => Ok(()),
    });
    if let Err(error) = raised {
        tracing::warn!(%error, "cannot raise the open-files limit");
    }
}

/// Returns the number of connections that the soft limit allows, at least one; `None` if it is unlimited.
pub(crate) fn max_connections() -> Option<usize> {
    let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).ok().filter(|(soft, _)| *soft != RLIM_INFINITY)?;
    Some(connections_for(usize::try_from(soft).unwrap_or(usize::MAX)))
}

/// Returns whether the error is a lack of file descriptors, which is temporary and not the fault of a target.
pub(crate) fn is_exhausted(error: &Error) -> bool {
    error.raw_os_error().is_some_and(|code| EXHAUSTED.contains(&code))
}

fn connections_for(files: usize) -> usize {
    (files.saturating_sub(RESERVED) / 2).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_needs_two_files_and_some_are_reserved() {
        assert_eq!(connections_for(1024), 480);
        assert_eq!(connections_for(3), 1);
    }
}
