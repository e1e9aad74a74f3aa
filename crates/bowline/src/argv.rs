//! The manager's command line as Go programs take it, made into what clap takes (FLAG-1, FLAG-3).
//!
//! ```text
//!  --cloud_provider local -v=4 --node-monitor-period 5s --knots=8
//!     └─► --cloud-provider=local --v=4 --node-monitor-period=5s      and the problem: no flag --knots
//! ```
//!
//! What clap would refuse is taken out and kept as a problem, so that it is told together with all others.

use std::ffi::OsString;

use bowline_config::{Problem, Problems, nearest};
use clap::{Arg, Command};

/// Flags of the Go managers that nothing is done about yet. They stand in every manifest, so they are taken, and each is
/// told in the log: some of them switch on what this version does not have.
const GO_FLAGS: [&str; 55] = [
    "allow-untagged-cloud",
    "authentication-kubeconfig",
    "authentication-skip-lookup",
    "authentication-token-webhook-cache-ttl",
    "authentication-tolerate-lookup-failure",
    "authorization-always-allow-paths",
    "authorization-kubeconfig",
    "authorization-webhook-cache-authorized-ttl",
    "authorization-webhook-cache-unauthorized-ttl",
    "bind-address",
    "cert-dir",
    "client-ca-file",
    "contention-profiling",
    "controller-start-interval",
    "disable-http2-serving",
    "external-cloud-volume-plugin",
    "http2-max-streams-per-connection",
    "kube-api-content-type",
    "log-flush-frequency",
    "log-json-info-buffer-size",
    "log-json-split-stream",
    "log-text-info-buffer-size",
    "log-text-split-stream",
    "logging-format",
    "min-resync-period",
    "node-sync-period",
    "permit-address-sharing",
    "permit-port-sharing",
    "profiling",
    "requestheader-allowed-names",
    "requestheader-client-ca-file",
    "requestheader-extra-headers-prefix",
    "requestheader-group-headers",
    "requestheader-uid-headers",
    "requestheader-username-headers",
    "secure-port",
    "tls-cert-file",
    "tls-cipher-suites",
    "tls-curve-preferences",
    "tls-min-version",
    "tls-private-key-file",
    "tls-sni-cert-key",
    "use-service-account-credentials",
    "vmodule",
    "webhook-bind-address",
    "webhook-cert-dir",
    "webhook-disable-http2-serving",
    "webhook-secure-port",
    "webhook-tls-cert-file",
    "webhook-tls-cipher-suites",
    "webhook-tls-curve-preferences",
    "webhook-tls-min-version",
    "webhook-tls-private-key-file",
    "webhook-tls-sni-cert-key",
    "webhooks",
];

/// A command line that clap can take, and what was wrong with it before.
#[derive(Default)]
pub(crate) struct Argv {
    pub(crate) arguments: Vec<OsString>,
    /// What was right and has no effect.
    pub(crate) remarks: Vec<String>,
    pub(crate) problems: Problems,
}

/// The command line starts with a flag, so it is the manager's.
pub(crate) fn is_manager(arguments: &[OsString]) -> bool {
    arguments.get(1).and_then(|first| first.to_str()).is_some_and(|first| first.starts_with('-'))
}

/// Tidies the manager's command line. The first argument is the program's name.
pub(crate) fn tidy(arguments: Vec<OsString>, command: &mut Command) -> Argv {
    // Adds --help and --version, which are to be known here.
    command.build();
    let mut rest = arguments.into_iter();
    let argv = Argv { arguments: rest.next().into_iter().collect(), ..Argv::default() };
    let mut tidied = Tidied { command, argv };
    while let Some(argument) = rest.next() {
        match argument.to_str() {
            Some("--") => rest.by_ref().for_each(|word| tidied.word(&word.to_string_lossy())),
            Some(text) => tidied.argument(text, &mut rest),
            None => tidied.problem(Problem::new("is not UTF-8 text").field(argument.to_string_lossy())),
        }
    }
    tidied.argv
}

/// The result, as far as it is.
struct Tidied<'a> {
    command: &'a Command,
    argv: Argv,
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
                self.problem(Problem::new("there is no such flag").field(format!("-{letter}")).hint(hint));
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
            None => self.problem(Problem::flag(name, "the value is missing")),
        }
    }

    fn unknown(&mut self, name: &str) {
        if GO_FLAGS.contains(&name) {
            let remark =
                format!("--{name} has no effect: the Go managers have this flag, this version does not act on it");
            return self.argv.remarks.push(remark);
        }
        let known = self.command.get_arguments().filter_map(Arg::get_long);
        let hint = match nearest(name, known) {
            Some(near) => format!("did you mean --{near}?"),
            None => "--help lists those there are".to_owned(),
        };
        self.problem(Problem::flag(name, "there is no such flag").hint(hint));
    }

    // upstream: an empty argument is none.
    fn word(&mut self, word: &str) {
        if !word.is_empty() {
            let hint = "a command such as apiserver stands in front of its flags, a value behind its flag";
            let message = format!("does not take any arguments, got {word:?}");
            self.problem(Problem::new(message).field("bowline").hint(hint));
        }
    }

    fn problem(&mut self, problem: Problem) {
        self.argv.problems.push(problem);
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

    /// What becomes of it, and what is wrong with it.
    fn tidied(arguments: &[&str]) -> (Vec<String>, Vec<String>) {
        let arguments = ["bowline"].iter().chain(arguments).map(OsString::from).collect();
        let argv = tidy(arguments, &mut crate::cli());
        let arguments = argv.arguments.iter().skip(1).map(|argument| argument.to_string_lossy().into_owned());
        (arguments.collect(), argv.problems.iter().map(ToString::to_string).collect())
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
            let (arguments, problems) = tidied(given);
            assert_eq!(
                (arguments.iter().map(String::as_str).collect::<Vec<_>>(), problems),
                (expected.to_vec(), vec![])
            );
        }
    }

    #[test]
    fn a_flag_of_the_go_managers_is_taken_with_its_value_and_told() {
        let given = ["bowline", "--min-resync-period", "12h", "--allow_untagged_cloud", "--leader-elect-lease=15s"];
        let argv = tidy(given.map(OsString::from).to_vec(), &mut crate::cli());
        let without_effect = |name: &str| {
            format!("--{name} has no effect: the Go managers have this flag, this version does not act on it")
        };
        assert_eq!(argv.remarks, [without_effect("min-resync-period"), without_effect("allow-untagged-cloud")]);
        let slip = "--leader-elect-lease: there is no such flag; did you mean --leader-elect-lease-duration?";
        assert_eq!(argv.problems.to_string(), slip);
        assert_eq!(argv.arguments, ["bowline"]);
    }

    #[test]
    fn a_flag_that_is_here_is_not_said_to_be_missing() {
        let command = crate::cli();
        let both = command.get_arguments().filter_map(Arg::get_long).filter(|flag| GO_FLAGS.contains(flag));
        assert_eq!(both.collect::<Vec<_>>(), [""; 0]);
    }

    #[test]
    fn all_that_is_wrong_is_kept_and_the_rest_goes_on() {
        let (arguments, problems) = tidied(&[
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
            // upstream: the word behind a boolean flag is not its value.
            "bowline: does not take any arguments, got \"false\"; ",
            "bowline: does not take any arguments, got \"sail\"; ",
            "--cloud-config: the value is missing",
        ];
        assert_eq!(problems.len(), expected.len(), "{problems:#?}");
        for (problem, expected) in problems.iter().zip(expected) {
            assert!(problem.starts_with(expected), "{problem}");
        }
    }
}
