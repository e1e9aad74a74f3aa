//! How many files this process may have open. A connection needs two: one for the client, one for the target.

use std::io::Error;

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};

/// For everything else that the process has open.
const OTHERS: usize = 64;

/// `EMFILE` and `ENFILE`: this process or the whole machine has too many files open.
const TOO_MANY: [i32; 2] = [24, 23];

/// Raises the soft limit to the hard limit. The soft one is 1,024 on most systems, for programs that use `select`.
pub(crate) fn raise_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| match soft < hard {
        true => setrlimit(Resource::RLIMIT_NOFILE, hard, hard),
        false => Ok(()),
    });
    if let Err(error) = raised {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}

/// Number of connections that the soft limit allows, at least one; `None` without a limit.
pub(crate) fn room_for_connections() -> Option<usize> {
    let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).ok().filter(|(soft, _)| *soft != RLIM_INFINITY)?;
    Some(room_in(usize::try_from(soft).unwrap_or(usize::MAX)))
}

/// Whether something failed for want of a free descriptor, which is nobody else's fault and passes.
pub(crate) fn are_too_many(error: &Error) -> bool {
    error.raw_os_error().is_some_and(|code| TOO_MANY.contains(&code))
}

fn room_in(files: usize) -> usize {
    (files.saturating_sub(OTHERS) / 2).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_needs_two_files_and_others_need_some() {
        assert_eq!(room_in(1024), 480);
        assert_eq!(room_in(3), 1);
    }
}
