//! Commands that are not part of this build. They are hidden, accept any arguments, and fail with the name of the missing feature.

use std::ffi::OsString;

use bowline_settings::BadInput;
use clap::{Args, Subcommand};

/// Commands of features that are disabled.
#[derive(Debug, Subcommand)]
pub(crate) enum AbsentCommand {
    /// Not in this build.
    #[cfg(not(feature = "playground"))]
    #[command(hide = true, disable_help_flag = true)]
    Apiserver(Arguments),
    /// Not in this build.
    #[cfg(not(feature = "playground"))]
    #[command(hide = true, disable_help_flag = true)]
    Playground(Arguments),
    /// Not in this build.
    #[cfg(not(feature = "playground"))]
    #[command(hide = true, disable_help_flag = true)]
    Cloud(Arguments),
    /// Not in this build.
    #[cfg(not(feature = "lb-agent"))]
    #[command(hide = true, disable_help_flag = true)]
    LbAgent(Arguments),
    /// Not in this build.
    #[cfg(not(feature = "console"))]
    #[command(hide = true, disable_help_flag = true)]
    Console(Arguments),
    /// Not in this build.
    #[cfg(not(feature = "console"))]
    #[command(hide = true, disable_help_flag = true)]
    Top(Arguments),
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
            #[cfg(not(feature = "playground"))]
            AbsentCommand::Apiserver(words) => ("apiserver", words),
            #[cfg(not(feature = "playground"))]
            AbsentCommand::Playground(words) => ("playground", words),
            #[cfg(not(feature = "playground"))]
            AbsentCommand::Cloud(words) => ("cloud", words),
            #[cfg(not(feature = "lb-agent"))]
            AbsentCommand::LbAgent(words) => ("lb-agent", words),
            #[cfg(not(feature = "console"))]
            AbsentCommand::Console(words) => ("console", words),
            #[cfg(not(feature = "console"))]
            AbsentCommand::Top(words) => ("top", words),
        };
        let (feature, fix) = match name {
            "lb-agent" => {
                ("lb-agent", "build an image with it (docs/guides/image.md), or install the program on the host")
            }
            "console" | "top" => ("console", "use the program of a release (docs/guides/install.md) on your machine"),
            _ => ("playground", "run `cargo run -- NAME` in a checkout of the sources"),
        };
        BadInput(format!(
            "the command {name} is not part of this build: it needs the feature `{feature}`, which the image does not have; {}",
            fix.replace("NAME", name)
        ))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::cli::{Cli, Command};

    #[test]
    fn a_missing_command_names_its_feature_for_any_flags() {
        let table: [(&[&str], &str); 6] = [
            (&["playground"], "playground"),
            (&["apiserver", "--kubeconfig", "kc"], "playground"),
            (&["cloud", "add", "--help"], "playground"),
            (&["lb-agent", "status", "--config=a"], "lb-agent"),
            (&["console", "--help"], "console"),
            (&["top", "-o", "json"], "console"),
        ];
        let is_absent = |feature: &str| match feature {
            "lb-agent" => !cfg!(feature = "lb-agent"),
            "console" => !cfg!(feature = "console"),
            _ => !cfg!(feature = "playground"),
        };
        for (words, feature) in table.into_iter().filter(|(_, feature)| is_absent(feature)) {
            let cli = Cli::parse_from(["bowline"].iter().chain(words));
            let Some(Command::Absent(command)) = cli.command else { panic!("{words:?}") };
            let error = command.error().to_string();
            assert!(error.starts_with(&format!("the command {} is not", words[0])), "{error}");
            assert!(error.contains(&format!("feature `{feature}`")), "{error}");
        }
    }
}
