//! Commands that are not part of this build. They are hidden, accept any arguments, and fail with the name of the missing feature.

use std::ffi::OsString;

use bowline_settings::BadInput;
use clap::{Args, Subcommand};

/// Commands of the feature `playground`.
#[derive(Debug, Subcommand)]
pub(crate) enum AbsentCommand {
    /// Not in this build.
    #[command(hide = true, disable_help_flag = true)]
    Apiserver(Arguments),
    /// Not in this build.
    #[command(hide = true, disable_help_flag = true)]
    Playground(Arguments),
    /// Not in this build.
    #[command(hide = true, disable_help_flag = true)]
    Cloud(Arguments),
}

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl AbsentCommand {
    /// Returns the error of the command.
    pub(crate) fn error(&self) -> BadInput {
        let (name, Arguments { arguments: _ }) = match self {
            AbsentCommand::Apiserver(words) => ("apiserver", words),
            AbsentCommand::Playground(words) => ("playground", words),
            AbsentCommand::Cloud(words) => ("cloud", words),
        };
        BadInput(format!(
            "the command {name} is not part of this build: it needs the feature `playground`, which the image does not have; run \
             `cargo run -- {name}` in a checkout of the sources"
        ))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::cli::{Cli, Command};

    #[test]
    fn a_missing_command_names_its_feature_for_any_flags() {
        for words in [&["playground"] as &[_], &["apiserver", "--kubeconfig", "kc"], &["cloud", "add", "--help"]] {
            let cli = Cli::parse_from(["bowline"].iter().chain(words));
            let Some(Command::Absent(command)) = cli.command else { panic!("{words:?}") };
            let error = command.error().to_string();
            assert!(error.starts_with(&format!("the command {} is not", words[0])), "{error}");
            assert!(error.contains("feature `playground`"), "{error}");
        }
    }
}
