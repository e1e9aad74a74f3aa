//! Flags in any order: moves flags that are given before a command behind it.
//!
//! ```text
//!  bowline --v=2 plan -o json              ──► bowline plan --v=2 -o json
//!  bowline --cloud-provider=aws cloud list ──► bowline cloud list --cloud-provider=aws      which clap rejects by name
//!  bowline --kubeconfig plan               ──► unchanged: plan is the value of the flag
//! ```
//!
//! A word is a command only if everything before it is a flag with its value. Any other command line is left unchanged, and is
//! reported as usual.

use std::ffi::OsString;

use clap::{Arg, Command};

/// Reorders the command line. The first argument is the program name.
pub(super) fn reorder(arguments: Vec<OsString>, program: &Command) -> Vec<OsString> {
    let mut arguments = arguments.into_iter();
    let mut sorted: Vec<OsString> = arguments.next().into_iter().collect();
    let mut rest: Vec<OsString> = arguments.collect();
    let (mut command, mut moved) = (program, Vec::new());
    while let Some((index, below)) = next_command(&rest, command) {
        let behind = rest.split_off(index);
        let mut behind = behind.into_iter();
        moved.append(&mut rest);
        sorted.extend(behind.next());
        (rest, command) = (behind.collect(), below);
    }
    // The manager's flags of `manifests` are behind its own.
    let takes_flags = command.get_positionals().any(|value| value.is_trailing_var_arg_set());
    moved.append(&mut rest);
    if takes_flags {
        moved = own_flags_first(moved, command, program);
    }
    sorted.append(&mut moved);
    sorted
}

/// Finds the command in the words: its index, and its definition.
fn next_command<'a>(words: &[OsString], parent: &'a Command) -> Option<(usize, &'a Command)> {
    let named = |word: &OsString| parent.find_subcommand(word.to_str()?);
    let mut candidates = words.iter().enumerate().filter_map(|(index, word)| Some((index, named(word)?)));
    candidates.find(|(index, below)| is_flags(words.get(..*index).unwrap_or_default(), below, parent))
}

/// Whether all words are flags with their values.
fn is_flags(words: &[OsString], below: &Command, parent: &Command) -> bool {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.to_str() {
            Some(flag) if flag.starts_with('-') && !matches!(flag, "-" | "--") => {
                // The value is missing, so that it is the next word after these.
                if takes_next_word(flag, &[below, parent]) && words.next().is_none() {
                    return false;
                }
            }
            _ => return false,
        }
    }
    true
}

/// Whether the value of the flag is the next word.
fn takes_next_word(flag: &str, commands: &[&Command]) -> bool {
    let known = commands.iter().find_map(|command| find(flag, command));
    !flag.contains('=')
        && known.is_some_and(|known| known.get_action().takes_values() && !known.is_require_equals_set())
}

/// Finds a flag, in Go's spellings too, in a command or below it.
fn find<'a>(flag: &str, command: &'a Command) -> Option<&'a Arg> {
    let name = flag.split('=').next().unwrap_or_default();
    let known = match name.strip_prefix("--") {
        Some(name) => {
            let name = name.replace('_', "-");
            command.get_arguments().find(|known| known.get_long() == Some(name.as_str()))
        }
        None => {
            // A short flag with its value behind it, such as -v4, takes no further word.
            let mut letters = name.chars().skip(1);
            let letter = letters.next().filter(|_| letters.next().is_none())?;
            command.get_arguments().find(|known| known.get_short() == Some(letter))
        }
    };
    known.or_else(|| command.get_subcommands().find_map(|below| find(flag, below)))
}

/// Moves the flags that the command itself has before the others. The order within each of the two is kept; words, and everything
/// behind them, stay at the end.
fn own_flags_first(words: Vec<OsString>, command: &Command, program: &Command) -> Vec<OsString> {
    let (mut own, mut others) = (Vec::new(), Vec::new());
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let Some(flag) = word.to_str().filter(|flag| flag.starts_with('-') && *flag != "--").map(str::to_owned) else {
            others.push(word);
            others.extend(words);
            break;
        };
        let is_own = find(&flag, command).is_some();
        let value = if takes_next_word(&flag, &[command, program]) { words.next() } else { None };
        let part = if is_own { &mut own } else { &mut others };
        part.push(word);
        part.extend(value);
    }
    own.append(&mut others);
    own
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reordered(line: &str) -> String {
        let program = crate::cli::definition(&bowline_cloud::Registry::default());
        let words = reorder(line.split(' ').map(OsString::from).collect(), &program);
        words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn flags_before_a_command_move_behind_it() {
        let cases = [
            ("bowline --v=2 plan -o json", "bowline plan --v=2 -o json"),
            (
                "bowline --cloud_provider local -v 4 --leader-elect=false check",
                "bowline check --cloud_provider local -v 4 --leader-elect=false",
            ),
            ("bowline -v4 --leader-elect plan", "bowline plan -v4 --leader-elect"),
            ("bowline --help orphans --yes", "bowline orphans --help --yes"),
            // A flag of another command: clap names it.
            ("bowline --v=2 manifests", "bowline manifests --v=2"),
        ];
        for (given, expected) in cases {
            assert_eq!(reordered(given), expected, "{given}");
        }
    }

    #[test]
    fn a_word_that_may_be_a_value_is_no_command() {
        for line in [
            "bowline",
            "bowline plan --v=2",
            "bowline --kubeconfig plan",
            "bowline --kubeconfig plan --v=2",
            // upstream: the value of a boolean flag is behind a =.
            "bowline --leader-elect false plan",
            "bowline --knots 8 plan",
            "bowline -- plan",
            "bowline - plan",
            "bowline sail plan",
            "bowline --v=2 sail",
            "bowline plan check",
            "bowline explain node/plan --v=2",
        ] {
            assert_eq!(reordered(line), line);
        }
        assert_eq!(reordered("bowline --kubeconfig plan check"), "bowline check --kubeconfig plan");
    }

    #[cfg(feature = "playground")]
    #[test]
    fn flags_before_a_nested_command_move_behind_it() {
        let expected = "bowline cloud list --endpoint=http://127.0.0.1:1";
        for line in [
            expected,
            "bowline cloud --endpoint=http://127.0.0.1:1 list",
            "bowline --endpoint=http://127.0.0.1:1 cloud list",
        ] {
            assert_eq!(reordered(line), expected);
        }
        assert_eq!(reordered("bowline cloud --snapshot list"), "bowline cloud --snapshot list");
        assert_eq!(reordered("bowline --nodes 2 playground"), "bowline playground --nodes 2");
    }

    #[test]
    fn the_flags_of_manifests_are_before_those_of_the_manager() {
        let expected = "bowline manifests --kind=Deployment --namespace x --v 2 --leader-elect=false";
        for line in [
            expected,
            "bowline manifests --v 2 --kind=Deployment --leader-elect=false --namespace x",
            "bowline --v 2 manifests --kind=Deployment --leader-elect=false --namespace x",
        ] {
            assert_eq!(reordered(line), expected, "{line}");
        }
        let line = "bowline manifests --v=2 -- --kind=Deployment";
        assert_eq!(reordered(line), line);
    }
}
