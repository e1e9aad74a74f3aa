//! Arguments of `bowline completion`.

use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
pub(crate) struct CompletionArgs {
    /// Shell.
    #[arg(value_name = "bash|zsh|fish", value_enum, hide_possible_values = true)]
    pub(crate) shell: Shell,
}

/// Shell with a completion script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}
