//! Paths of files: relative or absolute, and never climbing out with `..`.

use crate::resources::check::{Findings, Path};

pub(super) fn no_backsteps(path: &str, at: Path<'_>, found: &mut Findings) {
    if has_backsteps(path) {
        found.invalid(at, path, "must not contain '..'");
    }
}

pub(super) fn has_backsteps(path: &str) -> bool {
    path.split('/').any(|part| part == "..")
}

/// A path below something.
pub(super) fn descending(path: &str, at: Path<'_>, found: &mut Findings) {
    if path.starts_with('/') {
        found.invalid(at, path, "must be a relative path");
    }
    no_backsteps(path, at, found);
}

/// A descending path whose first part does not look like one of the kubelet's own (`..data`).
pub(super) fn unreserved(path: &str, at: Path<'_>, found: &mut Findings) {
    descending(path, at, found);
    if path.starts_with("..") && !path.starts_with("../") {
        found.invalid(at, path, "must not start with '..'");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_may_not_climb() {
        let table = [("a/b", 0), ("/a", 1), ("a/../b", 1), ("..", 2), ("../a", 1), ("..data", 1), ("/..", 2)];
        for (path, expected) in table {
            let mut found = Findings::default();
            unreserved(path, Path::new("p"), &mut found);
            assert_eq!(found.len(), expected, "{path}");
        }
    }
}
