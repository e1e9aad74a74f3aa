//! Writes the kubeconfig. It contains a private key, so only the file owner can read it; clients poll for it, so it is created
//! atomically; and the path may hold the credentials of other clusters, so only a file that Bowline wrote is replaced.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use bowline_settings::BadInput;
use kube::config::Kubeconfig;

use crate::private_file;

/// Name of the only cluster and the only context in a file that Bowline wrote.
const OWN_NAME: &str = "bowline";

/// Rejects a path that cannot be written, before the server starts.
pub(crate) fn check(path: &Path) -> Result<(), BadInput> {
    let directory = directory_of(path);
    if path.file_name().is_none() || path.is_dir() {
        return Err(BadInput(format!(
            "--kubeconfig {}: is a directory; specify a file, such as {}",
            path.display(),
            path.join("bowline.kubeconfig").display()
        )));
    }
    if !directory.is_dir() {
        return Err(BadInput(format!(
            "--kubeconfig {}: the directory {} does not exist; create it, or specify another path",
            path.display(),
            directory.display()
        )));
    }
    match foreign(path) {
        Some(what) => Err(BadInput(format!(
            "--kubeconfig {}: {what} and would be overwritten; specify another file, or remove this one first",
            path.display()
        ))),
        None => Ok(()),
    }
}

/// Describes the existing file if Bowline did not write it, so that it must not be replaced.
fn foreign(path: &Path) -> Option<String> {
    let Ok(metadata) = fs::metadata(path) else { return None };
    if !metadata.is_file() {
        return Some("is not a regular file".to_owned());
    }
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => return Some(format!("the existing file cannot be read ({error})")),
    };
    let Ok(found) = Kubeconfig::from_yaml(&text) else {
        return Some("the existing file is not a kubeconfig that Bowline wrote".to_owned());
    };
    let clusters: Vec<&str> = found.clusters.iter().map(|cluster| cluster.name.as_str()).collect();
    let contexts = || found.contexts.iter().map(|context| context.name.as_str());
    let is_empty = text.trim().is_empty();
    match is_empty || (clusters == [OWN_NAME] && contexts().all(|name| name == OWN_NAME) && found.auth_infos.len() <= 1)
    {
        true => None,
        false if clusters.is_empty() => Some("the existing file is not a kubeconfig that Bowline wrote".to_owned()),
        false => Some(format!("the existing file contains the clusters {}", clusters.join(", "))),
    }
}

/// Writes `text` to `path`, replacing a file that Bowline wrote.
pub(crate) fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    // The file may have changed since the start.
    check(path)?;
    let temporary = temporary_path(path);
    let written = private_file::create(&temporary, text).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // Only the error above matters; a leftover temporary file is harmless.
        let _ = fs::remove_file(&temporary);
    }
    written.with_context(|| format!("cannot write the kubeconfig to {}", path.display()))
}

/// Returns a path in the same directory, so that the rename stays within one file system, with a name unique to this process.
fn temporary_path(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    directory_of(path).join(format!(".{name}.{}", std::process::id()))
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Temporary directory, removed on drop.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(test: &str) -> Scratch {
            let path = std::env::temp_dir().join(format!("bowline-{test}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Scratch(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Returns a kubeconfig with these clusters, in the format of the API server.
    fn kubeconfig(clusters: &[&str], server: &str) -> String {
        let cluster = |name: &&str| format!("- name: {name}\n  cluster: {{server: {server}}}\n");
        let context = |name: &&str| format!("- name: {name}\n  context: {{cluster: {name}, user: u}}\n");
        let clusters_text: String = clusters.iter().map(cluster).collect();
        let contexts: String = clusters.iter().map(context).collect();
        format!(
            "apiVersion: v1\nkind: Config\nclusters:\n{clusters_text}contexts:\n{contexts}users:\n- name: u\n  user: {{}}\n"
        )
    }

    #[test]
    fn our_own_file_is_replaced_without_leftovers() {
        let scratch = Scratch::new("replaced");
        let path = scratch.0.join("kc");
        let (old, new) =
            (kubeconfig(&["bowline"], "https://127.0.0.1:12345"), kubeconfig(&["bowline"], "https://[::1]:1"));
        for text in [&old, &new] {
            write(&path, text).unwrap();
            assert_eq!(&fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_bowline_did_not_write_is_never_replaced() {
        let scratch = Scratch::new("foreign");
        let path = scratch.0.join("kc");
        let cases = [
            (
                kubeconfig(&["prod", "staging"], "https://prod"),
                "contains the clusters prod, staging and would be overwritten",
            ),
            (kubeconfig(&["bowline", "prod"], "https://prod"), "contains the clusters bowline, prod"),
            (kubeconfig(&["kind-kind"], "https://prod"), "contains the clusters kind-kind"),
            (kubeconfig(&[], "").replace("\ncontexts:\n", "\n"), "is not a kubeconfig that Bowline wrote"),
            ("notes of mine".to_owned(), "is not a kubeconfig that Bowline wrote"),
            ("{{{".to_owned(), "is not a kubeconfig that Bowline wrote"),
        ];
        for (text, expected) in cases {
            fs::write(&path, &text).unwrap();
            let outcomes = [check(&path).map_err(anyhow::Error::from), write(&path, &kubeconfig(&["bowline"], "x"))];
            for error in outcomes.map(|outcome| outcome.unwrap_err().to_string()) {
                assert!(error.contains(expected) && error.contains("specify another file"), "{error}");
            }
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[cfg(unix)]
    #[test]
    fn symlinks_are_followed_and_devices_are_rejected() {
        let scratch = Scratch::new("link");
        let (target, link) = (scratch.0.join("config"), scratch.0.join("kc"));
        fs::write(&target, kubeconfig(&["prod"], "https://prod")).unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(check(&link).unwrap_err().to_string().contains("contains the clusters prod"));
        assert!(check(Path::new("/dev/null")).unwrap_err().to_string().contains("not a regular file"));
    }

    #[cfg(unix)]
    #[test]
    fn only_the_file_owner_can_read_it() {
        use std::os::unix::fs::PermissionsExt as _;
        let scratch = Scratch::new("owner");
        let path = scratch.0.join("kc");
        // An empty file as `mktemp` creates it, readable by all.
        fs::write(&path, "").unwrap();
        write(&path, "secret").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn an_unusable_path_is_rejected_with_a_hint() {
        let scratch = Scratch::new("refused");
        let missing = scratch.0.join("missing/kc");
        assert!(check(&missing).unwrap_err().to_string().contains("does not exist; create it"));
        assert!(check(&scratch.0).unwrap_err().to_string().contains("is a directory"));
        assert!(check(Path::new("kc-in-the-current-directory")).is_ok());
    }
}
