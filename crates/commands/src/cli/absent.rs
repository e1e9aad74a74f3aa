//! Commands that are not in this build. They are hidden, take any words, and fail with the name of the feature that has them.

use std::ffi::OsString;

use bowline_settings::BadInput;
use clap::{Args, Subcommand};

/// The commands of the feature `playground`.
#[derive(Debug, Subcommand)]
pub(crate) enum AbsentCommand {
    /// Not in this build.
    #[command(hide = true, disable_help_flag = true)]
    Apiserver(Words),
    /// Not in this build.
    #[command(hide = true, disable_help_flag = true)]
    Playground(Words),
    /// Not in this build.
    #[command(hide = true, disable_help_flag = true)]
    Cloud(Words),
}

#[derive(Debug, Args)]
pub(crate) struct Words {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

impl AbsentCommand {
    /// Says why the command cannot run.
    pub(crate) fn error(&self) -> BadInput {
        let (name, Words { words: _ }) = match self {
            AbsentCommand::Apiserver(words) => ("apiserver", words),
            AbsentCommand::Playground(words) => ("playground", words),
            AbsentCommand::Cloud(words) => ("cloud", words),
        };
        BadInput(format!(
            "the command {name} is not in this build: it needs the feature `playground`, which the image leaves out; `cargo run -- \
             {name}` in a checkout of the sources has it"
        ))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::cli::{Cli, Command};

    #[test]
    fn a_command_that_is_not_in_this_build_names_its_feature_whatever_its_flags() {
        for words in [&["playground"] as &[_], &["apiserver", "--kubeconfig", "kc"], &["cloud", "add", "--help"]] {
            let cli = Cli::parse_from(["bowline"].iter().chain(words));
            let Some(Command::Absent(command)) = cli.command else { panic!("{words:?}") };
            let error = command.error().to_string();
            assert!(error.starts_with(&format!("the command {} is not", words[0])), "{error}");
            assert!(error.contains("feature `playground`"), "{error}");
        }
    }
}
