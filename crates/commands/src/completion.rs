//! `bowline completion`: scripts that complete commands, flags and values in bash, zsh and fish.
//!
//! ```text
//!  clap's definition ──► Levels: commands and flags of each command ──► script of a shell
//! ```
//!
//! `clap_complete` would make the image 110 kB larger, offers flags where only a command is expected, and repeats the manager's
//! flags for every command that accepts them.

mod bash;
mod fish;
mod zsh;

use std::collections::BTreeMap;

use bowline_cloud::Registry;
use clap::builder::ValueHint;
use clap::{Arg, Command};

use crate::cli::{self, CompletionArgs, Shell};
use crate::output;

/// Prints the script of the shell.
pub(crate) fn run(args: &CompletionArgs, registry: &Registry) -> anyhow::Result<()> {
    output::print(format_args!("{}", script(args.shell, registry)))
}

/// Returns the script of a shell.
fn script(shell: Shell, registry: &Registry) -> String {
    let levels = Levels::new(registry);
    match shell {
        Shell::Bash => bash::script(&levels),
        Shell::Zsh => zsh::script(&levels),
        Shell::Fish => fish::script(&levels),
    }
}

/// The program and all its commands.
struct Levels {
    /// Flags of the manager, and the paths of the commands that accept all of them.
    manager: (Vec<Flag>, Vec<String>),
    /// Each command.
    levels: Vec<Level>,
    /// Values of the flags by their spelling, `--output` and `-o`; flags that need no value are not included.
    values: BTreeMap<String, Values>,
}

/// A command.
struct Level {
    /// Words of the command line that select it, empty for the program itself.
    path: String,
    /// Commands below it, with their summaries.
    commands: Vec<(String, String)>,
    /// Flags, except those of the manager.
    flags: Vec<Flag>,
    /// Values of its positional argument.
    words: Vec<String>,
}

/// A flag.
#[derive(Clone)]
struct Flag {
    long: String,
    short: Option<char>,
    help: String,
    /// Values; `None` for a flag without a value.
    values: Option<Values>,
    /// Whether the value may be left out.
    is_switch: bool,
}

/// Values of a flag.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Values {
    Files,
    Directories,
    /// These words; empty if they are not known.
    Words(Vec<String>),
}

impl Levels {
    fn new(registry: &Registry) -> Levels {
        let mut program = cli::definition(registry);
        program.build();
        let providers: Vec<_> = registry.iter().map(|kind| kind.name.to_owned()).collect();
        let of = |command: &Command| -> Vec<Flag> {
            let flags = command.get_arguments().filter(|flag| is_offered(flag));
            flags.filter_map(|flag| Flag::new(flag, &providers)).collect()
        };
        let manager = of(&program);
        let has_manager_flags =
            |command: &&Command| command.get_arguments().any(|flag| flag.get_id() == "leader_elect");
        let paths = program.get_subcommands().filter(has_manager_flags).map(|command| command.get_name().to_owned());
        let paths: Vec<_> = std::iter::once(String::new()).chain(paths).collect();
        let mut levels = Vec::new();
        collect(&program, "", &mut levels, &|path, command| {
            let is_shared =
                |flag: &Flag| paths.iter().any(|known| known == path) && manager.iter().any(|it| it.long == flag.long);
            of(command).into_iter().filter(|flag| !is_shared(flag)).collect()
        });
        let mut values = BTreeMap::new();
        for flag in manager.iter().chain(levels.iter().flat_map(|level| &level.flags)) {
            let Some(known) = &flag.values else { continue };
            values.extend(flag.spellings().into_iter().map(|spelling| (spelling, known.clone())));
        }
        Levels { manager: (manager, paths), levels, values }
    }

    /// Spellings of the flags whose value may be the next word.
    fn with_next_word(&self) -> Vec<String> {
        let switches: Vec<String> = self.all_flags().filter(|flag| flag.is_switch).flat_map(Flag::spellings).collect();
        self.values.keys().filter(|spelling| !switches.contains(spelling)).cloned().collect()
    }

    fn all_flags(&self) -> impl Iterator<Item = &Flag> {
        self.manager.0.iter().chain(self.levels.iter().flat_map(|level| &level.flags))
    }

    /// Commands below another, as patterns `PATH:COMMAND`.
    fn steps(&self) -> Vec<String> {
        let below = |level: &Level| -> Vec<String> {
            level.commands.iter().map(|(name, _)| format!("{}:{name}", level.path)).collect()
        };
        self.levels.iter().flat_map(below).collect()
    }

    /// Spellings by their values, so that a script has one case for each kind.
    fn spellings_by_values(&self) -> BTreeMap<&Values, Vec<&str>> {
        let mut grouped: BTreeMap<&Values, Vec<&str>> = BTreeMap::new();
        for (spelling, values) in &self.values {
            grouped.entry(values).or_default().push(spelling);
        }
        grouped
    }
}

/// Collects a command and all below it.
fn collect(command: &Command, path: &str, levels: &mut Vec<Level>, flags: &dyn Fn(&str, &Command) -> Vec<Flag>) {
    // Their names select what help prints.
    let below: Vec<_> = command.get_subcommands().filter(|below| !below.is_hide_set()).collect();
    let about = |command: &Command| command.get_about().map(ToString::to_string).unwrap_or_default();
    let words = command.get_positionals().next().map(literals).unwrap_or_default();
    levels.push(Level {
        path: path.to_owned(),
        commands: below.iter().map(|below| (below.get_name().to_owned(), about(below))).collect(),
        flags: flags(path, command),
        words,
    });
    for below in below.into_iter().filter(|below| below.get_name() != "help") {
        collect(below, format!("{path} {}", below.get_name()).trim_start(), levels, flags);
    }
}

/// Whether the flag is worth offering: not one that is only accepted for old manifests.
fn is_offered(flag: &Arg) -> bool {
    !flag.is_hide_set() && flag.get_help_heading().is_none_or(|heading| !heading.ends_with("without effect"))
}

impl Flag {
    fn new(flag: &Arg, providers: &[String]) -> Option<Flag> {
        let long = flag.get_long()?.to_owned();
        let values = match flag.get_value_hint() {
            _ if !flag.get_action().takes_values() => None,
            _ if long == "cloud-provider" => Some(Values::Words(providers.to_vec())),
            ValueHint::FilePath => Some(Values::Files),
            ValueHint::DirPath => Some(Values::Directories),
            _ => Some(Values::Words(literals(flag))),
        };
        let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
        Some(Flag { long, short: flag.get_short(), help, values, is_switch: flag.is_require_equals_set() })
    }

    fn spellings(&self) -> Vec<String> {
        let short = self.short.map(|short| format!("-{short}"));
        short.into_iter().chain([format!("--{}", self.long)]).collect()
    }
}

/// Values that the declaration lists: the possible ones, or a placeholder such as `text|json`.
fn literals(flag: &Arg) -> Vec<String> {
    let possible: Vec<_> = flag.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    let placeholder = flag.get_value_names().and_then(<[_]>::first).map(|name| name.as_str()).unwrap_or_default();
    match possible.is_empty() && placeholder.contains('|') {
        true => {
            let is_literal = |word: &&str| word.chars().any(char::is_lowercase) && !word.contains('/');
            placeholder.split('|').filter(is_literal).map(str::to_owned).collect()
        }
        false => possible,
    }
}

/// Names of the commands of a level and the words of its positional argument, separated by spaces.
fn words_of(level: &Level) -> String {
    let commands = level.commands.iter().map(|(name, _)| name.as_str());
    commands.chain(level.words.iter().map(String::as_str)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
