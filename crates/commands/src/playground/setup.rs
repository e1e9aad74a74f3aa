//! Commands that prepare another terminal for the commands of the tour.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// Where kubectl can be downloaded.
const KUBECTL: &str = "https://kubernetes.io/docs/tasks/tools/";

/// What the commands of the tour need.
#[derive(Debug, Default)]
pub(super) struct Setup {
    /// Path of the kubeconfig.
    pub(super) kubeconfig: PathBuf,
    /// URL of the cloud's API.
    pub(super) endpoint: String,
    /// File with the owner's token, if `bowline cloud` does not find it by itself.
    pub(super) token: Option<PathBuf>,
    /// Path of this program, if `bowline` is not in the search path.
    pub(super) program: Option<PathBuf>,
    /// kubectl is in the search path.
    pub(super) has_kubectl: bool,
}

impl Setup {
    /// Returns the setup on this machine.
    pub(super) fn new(kubeconfig: &Path, endpoint: String, token: Option<PathBuf>) -> Setup {
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let own = env::current_exe().ok().and_then(|path| fs::canonicalize(path).ok());
        let in_path = find("bowline").and_then(|path| fs::canonicalize(path).ok());
        Setup {
            kubeconfig: absolute(kubeconfig),
            endpoint,
            token: token.as_deref().map(absolute),
            program: own.filter(|own| in_path.as_ref() != Some(own)),
            has_kubectl: find("kubectl").is_some(),
        }
    }

    /// Returns the shell commands.
    pub(super) fn commands(&self) -> Vec<String> {
        let mut commands = vec![
            format!("export KUBECONFIG={}", quoted(&self.kubeconfig)),
            format!("export BOWLINE_CLOUD_ENDPOINT={}", self.endpoint),
        ];
        commands.extend(self.token.iter().map(|path| format!("export BOWLINE_CLOUD_TOKEN_FILE={}", quoted(path))));
        commands.extend(self.program.iter().map(|path| format!("alias bowline={}", quoted(path))));
        commands
    }

    /// Returns how to get kubectl, if it is missing.
    pub(super) fn hint(&self) -> Option<String> {
        let hint = || format!("kubectl is not installed; the tour works without it. To get it, see {KUBECTL}");
        (!self.has_kubectl).then(hint)
    }
}

/// Returns the path of a program in the search path.
fn find(program: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// Returns a path in quotes if the shell needs them.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+,:@%".contains(c);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_prepare_a_shell() {
        let setup = Setup {
            kubeconfig: "/home/ann/it's/kc".into(),
            endpoint: "http://127.0.0.1:7480".to_owned(),
            program: Some("/opt/bowline".into()),
            ..Setup::default()
        };
        assert_eq!(
            setup.commands(),
            [
                r"export KUBECONFIG='/home/ann/it'\''s/kc'",
                "export BOWLINE_CLOUD_ENDPOINT=http://127.0.0.1:7480",
                "alias bowline=/opt/bowline",
            ]
        );
        assert!(setup.hint().unwrap().contains(KUBECTL));
        let installed = Setup { has_kubectl: true, token: Some("/t".into()), ..Setup::default() };
        assert!(installed.commands().contains(&"export BOWLINE_CLOUD_TOKEN_FILE=/t".to_owned()));
        assert_eq!(installed.hint(), None);
    }
}
