//! Normalizes the manager's command line from Go's flag syntax to clap's (FLAG-1, FLAG-3).
//!
//! ```text
//!  --cloud_provider local -v=4 --node-monitor-period 5s --knots=8
//!     └─► --cloud-provider=local --v=4 --node-monitor-period=5s      and an error: unknown flag --knots
//! ```
//!
//! Arguments that clap would reject are removed and kept as errors, so that they are reported together with all other errors.

use std::ffi::OsString;

use bowline_config::{ConfigError, ConfigErrors, nearest};
use clap::{Arg, Command};

use crate::migration::Migration;

/// Hint for an argument that is neither a flag nor a flag's value.
const WORD_HINT: &str = "a command such as apiserver goes before its flags, a value directly after its flag, and the value of a \
                         boolean flag after a =";

/// A command line in clap's syntax, and the errors in the original.
#[derive(Default)]
pub struct Argv {
    /// Program name and arguments, in clap's syntax.
    pub arguments: Vec<OsString>,
    /// Errors in the arguments that were removed.
    pub errors: ConfigErrors,
    /// Leader migration settings of the `--config` file, which has no flag.
    pub migration: Option<Migration>,
}

impl Argv {
    /// Whether the flag is set. The name has no dashes.
    pub fn has(&self, flag: &str) -> bool {
        self.values(flag).next().is_some()
    }

    /// Adds a flag, as `NAME=VALUE`, unless it is set.
    pub fn add_default(&mut self, flag: &str) {
        let name = flag.split('=').next().unwrap_or_default();
        if !self.has(name) {
            self.arguments.insert(1.min(self.arguments.len()), format!("--{flag}").into());
        }
    }

    /// Returns all values of a flag, in order; empty for an occurrence without a value.
    pub fn values<'a>(&'a self, flag: &'a str) -> impl Iterator<Item = &'a str> {
        let behind = move |argument: &'a OsString| argument.to_str()?.strip_prefix("--")?.strip_prefix(flag);
        self.arguments.iter().filter_map(behind).filter_map(|rest| match rest {
            "" => Some(""),
            rest => rest.strip_prefix('='),
        })
    }
}

/// Normalizes the manager's command line. The first argument is the program name.
pub fn normalize(arguments: Vec<OsString>, command: &mut Command) -> Argv {
    // Adds --help to the known flags.
    command.build();
    let mut rest = arguments.into_iter();
    let argv = Argv { arguments: rest.next().into_iter().collect(), ..Argv::default() };
    let values_left = command.get_positionals().count();
    let mut normalized = Normalizer { command, argv, words: Vec::new(), values_left };
    while let Some(argument) = rest.next() {
        match argument.to_str() {
            Some("--") => rest.by_ref().for_each(|word| normalized.word(&word.to_string_lossy())),
            Some(text) => normalized.argument(text, &mut rest),
            None => normalized.error(ConfigError::new("not UTF-8 text").field(argument.to_string_lossy())),
        }
    }
    normalized.finish()
}

/// State of the normalization.
struct Normalizer<'a> {
    command: &'a Command,
    argv: Argv,
    /// Unexpected positional arguments.
    words: Vec<String>,
    /// Number of positional arguments that the command still accepts.
    values_left: usize,
}

impl Normalizer<'_> {
    fn argument(&mut self, text: &str, rest: &mut std::vec::IntoIter<OsString>) {
        match text.strip_prefix('-') {
            None | Some("") => self.word(text),
            Some(flag) => match flag.strip_prefix('-') {
                Some(flag) => self.long(flag, rest),
                None => self.short(flag, rest),
            },
        }
    }

    /// Parses `--name`, `--name=value` and `--name value`, with `_` as an alternative to `-` in the name.
    fn long(&mut self, flag: &str, rest: &mut std::vec::IntoIter<OsString>) {
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (flag, None),
        };
        let name = name.replace('_', "-");
        match self.command.get_arguments().find(|known| known.get_long() == Some(name.as_str())) {
            Some(known) => self.flag(&name, known, value, rest),
            None => {
                self.unknown(&name);
                skip_value(value, rest);
            }
        }
    }

    /// Parses `-v`, `-v=value`, `-v value` and `-vvalue`.
    fn short(&mut self, flag: &str, rest: &mut std::vec::IntoIter<OsString>) {
        let mut letters = flag.chars();
        let letter = letters.next().unwrap_or_default();
        let value = Some(letters.as_str()).filter(|value| !value.is_empty());
        let value = value.map(|value| value.strip_prefix('=').unwrap_or(value));
        match self.command.get_arguments().find(|known| known.get_short() == Some(letter)) {
            // Not replaced by the long name: -h prints less than --help.
            Some(known) if !known.get_action().takes_values() => self.argv.arguments.push(format!("-{letter}").into()),
            Some(known) => self.flag(known.get_long().unwrap_or_default(), known, value, rest),
            None => {
                let hint = "flags start with two dashes; run with --help for the list";
                self.error(ConfigError::new("unknown flag").field(format!("-{letter}")).hint(hint));
                skip_value(value, rest);
            }
        }
    }

    fn flag(&mut self, name: &str, known: &Arg, value: Option<&str>, rest: &mut std::vec::IntoIter<OsString>) {
        if !known.get_action().takes_values() || (known.is_require_equals_set() && value.is_none()) {
            self.argv.arguments.push(format!("--{name}").into());
            return;
        }
        match value.map(OsString::from).or_else(|| rest.next()) {
            Some(value) => {
                let mut argument = OsString::from(format!("--{name}="));
                argument.push(value);
                self.argv.arguments.push(argument);
            }
            None => self.error(ConfigError::flag(name, "flag needs an argument")),
        }
    }

    fn unknown(&mut self, name: &str) {
        let known = self.command.get_arguments().filter_map(Arg::get_long);
        let hint = match nearest(name, known) {
            Some(near) => format!("did you mean --{near}?"),
            None => "run with --help for the list of flags".to_owned(),
        };
        self.error(ConfigError::flag(name, "unknown flag").hint(hint));
    }

    /// Keeps a positional argument, if the command still accepts one; otherwise records it for an error.
    fn word(&mut self, word: &str) {
        match self.values_left {
            0 => self.words.push(word.to_owned()),
            left => {
                self.values_left = left - 1;
                self.argv.arguments.push(word.into());
            }
        }
    }

    // upstream: this message (FLAG-3). Empty arguments alone are no error.
    fn finish(mut self) -> Argv {
        if self.words.iter().any(|word| !word.is_empty()) {
            let words: Vec<_> = self.words.iter().map(|word| format!("{word:?}")).collect();
            let message =
                format!("{:?} does not take any arguments, got [{}]", self.command.get_name(), words.join(" "));
            self.error(ConfigError::new(message).hint(WORD_HINT));
        }
        self.argv
    }

    fn error(&mut self, error: ConfigError) {
        self.argv.errors.push(error);
    }
}

/// Skips the value of an unknown flag, so that it does not cause a second error.
fn skip_value(value: Option<&str>, rest: &mut std::vec::IntoIter<OsString>) {
    let is_word = |next: &OsString| next.to_str().is_none_or(|next| !next.starts_with('-'));
    if value.is_none() && rest.as_slice().first().is_some_and(is_word) {
        rest.next();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::ManagerArgs;

    /// Returns the normalized arguments and the errors.
    fn normalized(arguments: &[&str]) -> (Vec<String>, Vec<String>) {
        let arguments = ["bowline"].iter().chain(arguments).map(OsString::from).collect();
        let argv = normalize(arguments, &mut ManagerArgs::definition("bowline"));
        let arguments = argv.arguments.iter().skip(1).map(|argument| argument.to_string_lossy().into_owned());
        (arguments.collect(), argv.errors.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn all_spellings_that_go_accepts_are_accepted() {
        let cases: [(&[&str], &[&str]); 12] = [
            (&["--cloud-provider=local"], &["--cloud-provider=local"]),
            (&["--cloud-provider", "local"], &["--cloud-provider=local"]),
            (&["--cloud_provider=local"], &["--cloud-provider=local"]),
            (&["--cloud-provider="], &["--cloud-provider="]),
            (&["--concurrent-node-syncs", "-5"], &["--concurrent-node-syncs=-5"]),
            (&["--controllers", "-cloud-node"], &["--controllers=-cloud-node"]),
            (&["--leader-elect"], &["--leader-elect"]),
            (&["--leader-elect=false"], &["--leader-elect=false"]),
            (&["-v=4"], &["--v=4"]),
            (&["-v4", "-v", "5"], &["--v=4", "--v=5"]),
            (&["--help"], &["--help"]),
            (&["-h", "--", ""], &["-h"]),
        ];
        for (given, expected) in cases {
            let (arguments, errors) = normalized(given);
            assert_eq!((arguments.iter().map(String::as_str).collect::<Vec<_>>(), errors), (expected.to_vec(), vec![]));
        }
    }

    #[test]
    fn values_are_found_in_all_spellings_of_a_flag() {
        let given = ["bowline", "--controllers", "a", "--controllers=b", "--controllers-of", "--leader-elect", "--v=1"];
        let argv = normalize(given.map(OsString::from).to_vec(), &mut ManagerArgs::definition("bowline"));
        assert_eq!(argv.values("controllers").collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(argv.values("leader-elect").collect::<Vec<_>>(), [""]);
        assert!(argv.has("v") && !argv.has("vmodule") && !argv.has("leader"));
    }

    #[test]
    fn all_errors_are_kept_and_the_remaining_arguments_are_parsed() {
        let (arguments, errors) = normalized(&[
            "--cloud-provder=local",
            "--knots",
            "8",
            "-q",
            "--leader-elect",
            "false",
            "--v=2",
            "sail",
            "--cloud-config",
        ]);
        assert_eq!(arguments, ["--leader-elect", "--v=2"]);
        let expected = [
            "--cloud-provder: unknown flag; did you mean --cloud-provider?",
            "--knots: unknown flag; run with --help for the list of flags",
            "-q: unknown flag; ",
            "--cloud-config: flag needs an argument",
            // upstream: the argument after a boolean flag is not its value.
            "\"bowline\" does not take any arguments, got [\"false\" \"sail\"]; ",
        ];
        assert_eq!(errors.len(), expected.len(), "{errors:#?}");
        for (error, expected) in errors.iter().zip(expected) {
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
