//! Writing the kubeconfig: it holds a private key, so only its owner may read it; clients poll for it, so it appears whole or
//! not at all; and the place may hold the keys to other clusters, so only a file of our own is replaced.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use bowline_settings::BadInput;
use kube::config::Kubeconfig;

use crate::private_file;

/// What the one cluster and the one context of our files are called.
const OWN_NAME: &str = "bowline";

/// Refuses a place where the file cannot be written, before anything is started for it.
pub(crate) fn check(path: &Path) -> Result<(), BadInput> {
    let folder = folder_of(path);
    if path.file_name().is_none() || path.is_dir() {
        return Err(BadInput(format!(
            "--kubeconfig {}: this is a folder; name a file to write, such as {}",
            path.display(),
            path.join("bowline.kubeconfig").display()
        )));
    }
    if !folder.is_dir() {
        return Err(BadInput(format!(
            "--kubeconfig {}: the folder {} does not exist; make it first, or name a file elsewhere",
            path.display(),
            folder.display()
        )));
    }
    match foreign(path) {
        Some(what) => Err(BadInput(format!(
            "--kubeconfig {}: {what}, and would be replaced; name another file, or remove this one first",
            path.display()
        ))),
        None => Ok(()),
    }
}

/// What a file there is if it is not one that we wrote, and may thus not be replaced.
fn foreign(path: &Path) -> Option<String> {
    let Ok(metadata) = fs::metadata(path) else { return None };
    if !metadata.is_file() {
        return Some("this is no regular file".to_owned());
    }
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => return Some(format!("the file there cannot be read ({error})")),
    };
    let Ok(found) = Kubeconfig::from_yaml(&text) else {
        return Some("the file there is no kubeconfig that Bowline wrote".to_owned());
    };
    let clusters: Vec<&str> = found.clusters.iter().map(|cluster| cluster.name.as_str()).collect();
    let contexts = || found.contexts.iter().map(|context| context.name.as_str());
    let is_empty = text.trim().is_empty();
    match is_empty || (clusters == [OWN_NAME] && contexts().all(|name| name == OWN_NAME) && found.auth_infos.len() <= 1)
    {
        true => None,
        false if clusters.is_empty() => Some("the file there is no kubeconfig that Bowline wrote".to_owned()),
        false => Some(format!("the file there has the clusters {}", clusters.join(", "))),
    }
}

/// Puts `text` at `path`, replacing what was there if we wrote that.
pub(crate) fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    // Much may have happened since the start.
    check(path)?;
    let draft = draft_of(path);
    let written = private_file::create(&draft, text).and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        // The error that matters is the one above; a left-over draft is only untidy.
        let _ = fs::remove_file(&draft);
    }
    written.with_context(|| format!("cannot write the kubeconfig to {}", path.display()))
}

/// A name beside `path`, so that the rename stays within one file system, and of this process only.
fn draft_of(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    folder_of(path).join(format!(".{name}.{}", std::process::id()))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of this test's own, removed when it ends.
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

    /// A kubeconfig as the API server writes it, with these clusters.
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
    fn our_file_is_replaced_and_nothing_else_is_left() {
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
    fn what_we_did_not_write_is_never_replaced() {
        let scratch = Scratch::new("foreign");
        let path = scratch.0.join("kc");
        let cases = [
            (kubeconfig(&["prod", "staging"], "https://prod"), "has the clusters prod, staging, and would be replaced"),
            (kubeconfig(&["bowline", "prod"], "https://prod"), "has the clusters bowline, prod"),
            (kubeconfig(&["kind-kind"], "https://prod"), "has the clusters kind-kind"),
            (kubeconfig(&[], "").replace("\ncontexts:\n", "\n"), "is no kubeconfig that Bowline wrote"),
            ("notes of mine".to_owned(), "is no kubeconfig that Bowline wrote"),
            ("{{{".to_owned(), "is no kubeconfig that Bowline wrote"),
        ];
        for (text, says) in cases {
            fs::write(&path, &text).unwrap();
            let refused = [check(&path).map_err(anyhow::Error::from), write(&path, &kubeconfig(&["bowline"], "x"))];
            for refusal in refused.map(|outcome| outcome.unwrap_err().to_string()) {
                assert!(refusal.contains(says) && refusal.contains("name another file"), "{refusal}");
            }
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_link_does_not_hide_what_it_leads_to_and_a_device_is_no_file() {
        let scratch = Scratch::new("link");
        let (target, link) = (scratch.0.join("config"), scratch.0.join("kc"));
        fs::write(&target, kubeconfig(&["prod"], "https://prod")).unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(check(&link).unwrap_err().to_string().contains("has the clusters prod"));
        assert!(check(Path::new("/dev/null")).unwrap_err().to_string().contains("no regular file"));
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_may_read_it() {
        use std::os::unix::fs::PermissionsExt as _;
        let scratch = Scratch::new("owner");
        let path = scratch.0.join("kc");
        // As `mktemp` leaves it, and readable by all.
        fs::write(&path, "").unwrap();
        write(&path, "secret").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_place_that_cannot_work_is_refused_with_a_way_out() {
        let scratch = Scratch::new("refused");
        let missing = scratch.0.join("missing/kc");
        assert!(check(&missing).unwrap_err().to_string().contains("does not exist; make it first"));
        assert!(check(&scratch.0).unwrap_err().to_string().contains("this is a folder"));
        assert!(check(Path::new("kc-in-the-current-folder")).is_ok());
    }
}
