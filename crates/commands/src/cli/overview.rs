//! What `bowline` prints without arguments: one screen with the first commands to try.

use std::env;
use std::io::IsTerminal as _;

use clap::builder::styling::Style;

/// Text, with the headings between asterisks.
const TEXT: &str = "\
Bowline is a cloud controller manager for Kubernetes: it initialises Nodes,
provides load balancers for Services, allocates pod CIDRs and creates routes.

*Try it on this machine, without a cloud account, Docker or root*
  bowline playground

*Before it runs in your cluster*
  bowline check --cloud-provider=NAME --cloud-config=FILE --kubeconfig=FILE
      checks flags, permissions, credentials and Nodes; changes nothing
  bowline plan --cloud-provider=NAME --cloud-config=FILE --kubeconfig=FILE
      shows what the manager would change
  bowline manifests --cloud-provider=NAME | kubectl apply -f -
      installs it

*Run the manager*
  bowline --cloud-provider=NAME --cloud-config=FILE --kubeconfig=FILE
      NAME is one of {providers}
  bowline console              shows what it does, in a browser; top: here

*Help*
  bowline --help               summary; --help-all has all flags
  bowline COMMAND --help       help of a command
  bowline completion bash      completion for the shell; also zsh and fish
  docs/README.md               documentation, in the source tree
";

/// Returns the screen, with this style for headings.
fn text(providers: &str, heading: Style) -> String {
    let line = |line: &str| match line.strip_prefix('*').and_then(|line| line.strip_suffix('*')) {
        Some(title) => format!("{heading}{title}:{heading:#}\n"),
        None => format!("{line}\n"),
    };
    TEXT.replace("{providers}", providers).lines().map(line).collect()
}

/// Returns the screen for standard output: headings are bold on a terminal, unless NO_COLOR is set.
pub(crate) fn screen(providers: &str) -> String {
    let is_plain = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
        || env::var_os("TERM").is_some_and(|name| name == "dumb")
        || !std::io::stdout().is_terminal();
    text(providers, if is_plain { Style::new() } else { Style::new().bold() })
}

/// Returns the message for standard error where the screen would not be read.
pub(crate) fn usage(providers: &str) -> String {
    format!("Usage: bowline [FLAGS], or bowline COMMAND [FLAGS]\n\n{}", text(providers, Style::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_screen_fits_a_small_terminal() {
        let text = text("local, aws, digitalocean, openstack, vsphere", Style::new());
        assert!(text.lines().count() <= 24 && text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn headings_are_styled() {
        let text = text("local", Style::new().bold());
        assert!(text.contains("\u{1b}[1mHelp:\u{1b}[0m\n") && !text.contains('*'), "{text}");
    }
}
