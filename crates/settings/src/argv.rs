//! The manager's command line as Go programs take it, made into what clap takes (FLAG-1, FLAG-3).
//!
//! ```text
//!  --cloud_provider local -v=4 --node-monitor-period 5s --knots=8
//!     └─► --cloud-provider=local --v=4 --node-monitor-period=5s      and the problem: no flag --knots
//! ```
//!
//! What clap would refuse is taken out and kept as a problem, so that it is told together with all others.

use std::ffi::OsString;

use bowline_config::{ConfigError, ConfigErrors, nearest};
use clap::{Arg, Command};

use crate::migration::Migration;

/// What may have been meant by a word that is no flag.
const WORD_HINT: &str = "a command such as apiserver stands in front of its flags, a value behind its flag, and that of a \
                         switch behind a =";

/// A command line that clap can take, and what was wrong with it before.
#[derive(Default)]
pub struct Argv {
    /// The program's name, and the arguments as clap reads them.
    pub arguments: Vec<OsString>,
    /// What is wrong with the others.
    pub errors: ConfigErrors,
    /// The part of `--config` that is no flag.
    pub migration: Option<Migration>,
}

impl Argv {
    /// Whether the flag of this name is there, without dashes.
    pub fn has(&self, flag: &str) -> bool {
        self.values(flag).next().is_some()
    }

    /// What the flag of this name is given, each time; nothing where it stands without a value.
    pub fn values<'a>(&'a self, flag: &'a str) -> impl Iterator<Item = &'a str> {
        let behind = move |argument: &'a OsString| argument.to_str()?.strip_prefix("--")?.strip_prefix(flag);
        self.arguments.iter().filter_map(behind).filter_map(|rest| match rest {
            "" => Some(""),
            rest => rest.strip_prefix('='),
        })
    }
}

/// Tidies the manager's command line. The first argument is the program's name.
pub fn tidy(arguments: Vec<OsString>, command: &mut Command) -> Argv {
    // Adds --help, which is to be known here.
    command.build();
    let mut rest = arguments.into_iter();
    let argv = Argv { arguments: rest.next().into_iter().collect(), ..Argv::default() };
    let values_left = command.get_positionals().count();
    let mut tidied = Tidied { command, argv, words: Vec::new(), values_left };
    while let Some(argument) = rest.next() {
        match argument.to_str() {
            Some("--") => rest.by_ref().for_each(|word| tidied.word(&word.to_string_lossy())),
            Some(text) => tidied.argument(text, &mut rest),
            None => tidied.problem(ConfigError::new("is not UTF-8 text").field(argument.to_string_lossy())),
        }
    }
    tidied.finish()
}

/// The result, as far as it is.
struct Tidied<'a> {
    command: &'a Command,
    argv: Argv,
    /// What is no flag and no flag's value.
    words: Vec<String>,
    /// Number of values without a flag that the command still takes.
    values_left: usize,
}

impl Tidied<'_> {
    fn argument(&mut self, text: &str, rest: &mut std::vec::IntoIter<OsString>) {
        match text.strip_prefix('-') {
            None | Some("") => self.word(text),
            Some(flag) => match flag.strip_prefix('-') {
                Some(flag) => self.long(flag, rest),
                None => self.short(flag, rest),
            },
        }
    }

    /// `--name`, `--name=value`, `--name value`, with `_` as good as `-` in the name.
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

    /// `-v`, `-v=value`, `-v value`, `-vvalue`.
    fn short(&mut self, flag: &str, rest: &mut std::vec::IntoIter<OsString>) {
        let mut letters = flag.chars();
        let letter = letters.next().unwrap_or_default();
        let value = Some(letters.as_str()).filter(|value| !value.is_empty());
        let value = value.map(|value| value.strip_prefix('=').unwrap_or(value));
        match self.command.get_arguments().find(|known| known.get_short() == Some(letter)) {
            // Kept as it is: -h is shorter than --help.
            Some(known) if !known.get_action().takes_values() => self.argv.arguments.push(format!("-{letter}").into()),
            Some(known) => self.flag(known.get_long().unwrap_or_default(), known, value, rest),
            None => {
                let hint = "flags are written with two dashes; --help lists them";
                self.problem(ConfigError::new("there is no such flag").field(format!("-{letter}")).hint(hint));
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
            None => self.problem(ConfigError::flag(name, "the value is missing")),
        }
    }

    fn unknown(&mut self, name: &str) {
        let known = self.command.get_arguments().filter_map(Arg::get_long);
        let hint = match nearest(name, known) {
            Some(near) => format!("did you mean --{near}?"),
            None => "--help lists those there are".to_owned(),
        };
        self.problem(ConfigError::flag(name, "there is no such flag").hint(hint));
    }

    /// A value of its own, if the command takes one; else it is kept for an error.
    fn word(&mut self, word: &str) {
        match self.values_left {
            0 => self.words.push(word.to_owned()),
            left => {
                self.values_left = left - 1;
                self.argv.arguments.push(word.into());
            }
        }
    }

    // upstream: these words (FLAG-3); one that is empty is none, unless there is another.
    fn finish(mut self) -> Argv {
        if self.words.iter().any(|word| !word.is_empty()) {
            let words: Vec<_> = self.words.iter().map(|word| format!("{word:?}")).collect();
            let message =
                format!("{:?} does not take any arguments, got [{}]", self.command.get_name(), words.join(" "));
            self.problem(ConfigError::new(message).hint(WORD_HINT));
        }
        self.argv
    }

    fn problem(&mut self, problem: ConfigError) {
        self.argv.errors.push(problem);
    }
}

/// The word behind a flag that nobody knows is its value, and not a second thing that is wrong.
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

    /// What becomes of it, and what is wrong with it.
    fn tidied(arguments: &[&str]) -> (Vec<String>, Vec<String>) {
        let arguments = ["bowline"].iter().chain(arguments).map(OsString::from).collect();
        let argv = tidy(arguments, &mut ManagerArgs::definition("bowline"));
        let arguments = argv.arguments.iter().skip(1).map(|argument| argument.to_string_lossy().into_owned());
        (arguments.collect(), argv.errors.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn flags_may_be_written_in_all_the_ways_that_go_takes() {
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
            let (arguments, errors) = tidied(given);
            assert_eq!((arguments.iter().map(String::as_str).collect::<Vec<_>>(), errors), (expected.to_vec(), vec![]));
        }
    }

    #[test]
    fn what_a_flag_is_given_is_found_in_all_its_spellings() {
        let given = ["bowline", "--controllers", "a", "--controllers=b", "--controllers-of", "--leader-elect", "--v=1"];
        let argv = tidy(given.map(OsString::from).to_vec(), &mut ManagerArgs::definition("bowline"));
        assert_eq!(argv.values("controllers").collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(argv.values("leader-elect").collect::<Vec<_>>(), [""]);
        assert!(argv.has("v") && !argv.has("vmodule") && !argv.has("leader"));
    }

    #[test]
    fn all_that_is_wrong_is_kept_and_the_rest_goes_on() {
        let (arguments, errors) = tidied(&[
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
            "--cloud-provder: there is no such flag; did you mean --cloud-provider?",
            "--knots: there is no such flag; --help lists those there are",
            "-q: there is no such flag; ",
            "--cloud-config: the value is missing",
            // upstream: the word behind a boolean flag is not its value.
            "\"bowline\" does not take any arguments, got [\"false\" \"sail\"]; ",
        ];
        assert_eq!(errors.len(), expected.len(), "{errors:#?}");
        for (problem, expected) in errors.iter().zip(expected) {
            assert!(problem.starts_with(expected), "{problem}");
        }
    }
}
