//! Help: what `--help` and `--help-all` print, from the same doc comments.
//!
//! ```text
//!  doc comment of a flag ──┬─ first sentence [default: X] ──► --help, only the flags of SHORT for the manager's
//!                          └─ all of it [default: X]      ──► --help-all, and the reference page
//! ```
//!
//! A doc comment that ends with "Default: X." declares a default that is computed, which has no value in clap.

use std::fmt::Write as _;

use clap::builder::{StyledStr, ValueHint};
use clap::{Arg, ArgAction, Command};

use super::WITH_MANAGER_FLAGS;

/// Flags of the manager in `--help`. Provider, cluster and controllers are what differs between installations.
const SHORT: [&str; 12] = [
    "cloud-provider",
    "cloud-config",
    "cluster-name",
    "kubeconfig",
    "config",
    "controllers",
    "cluster-cidr",
    "allocate-node-cidrs",
    "configure-cloud-routes",
    "dry-run",
    "leader-elect",
    "v",
];

/// Flags of the manager in `--help` of the commands that accept all of them.
const SHORT_OF_COMMANDS: [&str; 6] =
    ["cloud-provider", "cloud-config", "cluster-name", "kubeconfig", "config", "cluster-cidr"];

/// Groups of commands in the help of the program. A command that is in none of them is in the last one.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Try Bowline without a cloud", &["playground", "cloud", "apiserver"]),
    ("Inspect a cluster and its clouds", &["console", "top", "check", "plan", "explain", "orphans"]),
    ("Install and run", &["manifests", "admission-server", "lb-agent"]),
    ("Other commands", &[]),
];

/// Usage of the program.
const USAGE: &str = "bowline [FLAGS]              runs the manager\n       bowline <COMMAND> [FLAGS]";

/// Heading of the flags in the summary.
const MOST_IMPORTANT: &str = "Most important flags of the manager";

/// Where the documentation is.
const DOCUMENTATION: &str = "Documentation: docs/README.md in the source tree; docs/reference/cli.md lists all commands, flags and \
                             exit codes.";

/// Width of the help if the terminal's is not known.
const WIDTH: usize = 80;

/// Maximum width: longer lines are hard to read.
const MAX_WIDTH: usize = 120;

/// Completes the definition of the program: help, version and value hints of all commands.
pub(super) fn complete(program: Command) -> Command {
    let program = command(program, &SHORT).term_width(width());
    let more = |name: &str| format!("All flags: {name} --help-all");
    let mut after = program.get_after_help().cloned().unwrap_or_default();
    let _ = write!(after, "\n\n{DOCUMENTATION}");
    let short = format!("{}\n{DOCUMENTATION}", more(program.get_name()));
    let program = program.after_help(short).after_long_help(after);
    WITH_MANAGER_FLAGS.iter().fold(program, |program, name| {
        program.mut_subcommand(*name, |command| {
            let name = format!("bowline {name}");
            command.after_help(format!("It accepts every flag of the manager.\n{}", more(&name))).after_long_help("")
        })
    })
}

/// Completes the definition of the manager under a name of the Go managers.
// upstream: --help prints all flags.
pub(crate) fn complete_manager(manager: Command) -> Command {
    let manager = command(manager, &[]).term_width(width());
    manager.mut_arg("help", |help| help.action(ArgAction::HelpLong)).mut_arg("help-all", |all| all.hide(true))
}

/// Replaces clap's list of commands by groups of commands, for the help of the program itself. In the summary, the flags are one
/// group.
pub(crate) fn with_groups(program: Command, is_summary: bool) -> Command {
    let mut groups = String::new();
    let header = program.get_styles().get_header();
    let listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
    let is_visible = |command: &&Command| !command.is_hide_set();
    for (title, names) in GROUPS {
        let commands: Vec<&Command> = match names {
            [] => program.get_subcommands().filter(|command| !listed.contains(&command.get_name())).collect(),
            names => names.iter().filter_map(|name| program.find_subcommand(name)).collect(),
        };
        let commands: Vec<&Command> = commands.into_iter().filter(is_visible).collect();
        if !commands.is_empty() {
            let _ = write!(groups, "{header}{title}:{header:#}\n{}\n", lines(&program, &commands));
        }
    }
    let template = format!("{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}{{all-args}}{{after-help}}");
    let program = program.help_template(StyledStr::from(template)).override_usage(USAGE);
    let program = program.mut_subcommands(|command| command.hide(true));
    let in_one_group = |flag: Arg| match flag.get_help_heading() {
        // The heading of a provider's flags identifies them; they are not in the summary.
        Some(_) if !flag.is_hide_short_help_set() => flag.help_heading(MOST_IMPORTANT),
        _ => flag,
    };
    if is_summary { program.mut_args(in_one_group) } else { program }
}

/// One command on each line, with its first sentence, wrapped.
fn lines(program: &Command, commands: &[&Command]) -> String {
    let longest = program.get_subcommands().map(|command| command.get_name().len()).max().unwrap_or_default();
    let literal = program.get_styles().get_literal();
    let line = |command: &&Command| {
        let (name, about) = (command.get_name(), command.get_about().map(ToString::to_string).unwrap_or_default());
        let about = wrapped(&about, width().saturating_sub(longest + 4), longest + 4);
        format!("  {literal}{name}{literal:#}{}  {about}\n", " ".repeat(longest.saturating_sub(name.len())))
    };
    commands.iter().map(line).collect()
}

/// Breaks a text into lines of at most this width; all but the first are indented.
fn wrapped(text: &str, width: usize, indentation: usize) -> String {
    let (mut lines, mut length) = (String::new(), 0);
    for word in text.split_whitespace() {
        let letters = word.chars().count();
        if length > 0 && length + 1 + letters > width {
            let _ = write!(lines, "\n{}", " ".repeat(indentation));
            length = 0;
        } else if length > 0 {
            lines.push(' ');
            length += 1;
        }
        lines.push_str(word);
        length += letters;
    }
    lines
}

/// Width of the help: that of the terminal, or COLUMNS.
fn width() -> usize {
    let terminal = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    let columns = || std::env::var("COLUMNS").ok()?.parse().ok();
    terminal.or_else(columns).filter(|width| *width > 0).unwrap_or(WIDTH).min(MAX_WIDTH)
}

/// Completes a command and those below it. `short` are the flags of the manager in its short help.
fn command(command: Command, short: &[&str]) -> Command {
    let has_manager_flags = command.get_arguments().any(|flag| flag.get_long() == Some("leader-elect"));
    let is_own = |flag: &Arg| !has_manager_flags || flag.get_help_heading().is_none();
    let command = command.mut_args(|flag| {
        let is_short = is_own(&flag) || flag.get_long().is_some_and(|name| short.contains(&name));
        let is_hidden = flag.is_hide_short_help_set() || !is_short;
        argument(flag).hide_short_help(is_hidden)
    });
    let option = |name: &'static str, action| Arg::new(name).long(name).action(action).help_heading(None::<&str>);
    let command = command.disable_help_flag(true).args([
        option("help", ArgAction::HelpShort).short('h').help("Print a summary of the help"),
        option("help-all", ArgAction::HelpLong).help("Print the help with all flags and details"),
    ]);
    let has_version = command.get_arguments().any(|flag| flag.get_long() == Some("version"));
    let command = match has_version {
        true => command.mut_arg("version", |version| version.hide_short_help(false).help_heading(None::<&str>)),
        false => {
            let version = option("version", ArgAction::Version).short('V').help("Print the version");
            command.version(env!("CARGO_PKG_VERSION")).arg(version)
        }
    };
    command.mut_subcommands(|below| self::command(below, &SHORT_OF_COMMANDS))
}

/// Completes a flag: short and long help with the default at the end, and a hint for the completion of its value.
fn argument(flag: Arg) -> Arg {
    let help = flag.get_long_help().or(flag.get_help()).map(ToString::to_string).unwrap_or_default();
    let (meaning, declared) = split_default(&help);
    let default = match declared {
        Some(default) => Some(default.to_owned()),
        None => shown_default(&flag),
    };
    let suffix = default.map(|default| format!(" [default: {default}]")).unwrap_or_default();
    let summary = meaning.split_once(". ").map_or(meaning, |(first, _)| first);
    let (short, long) = (format!("{summary}{suffix}"), format!("{meaning}{suffix}"));
    let flag = flag.help(short).long_help(long);
    let hint = match flag.get_value_names().and_then(<[_]>::first).map(|name| name.as_str()) {
        Some("FILE") => ValueHint::FilePath,
        Some("DIRECTORY") => ValueHint::DirPath,
        _ => flag.get_value_hint(),
    };
    if flag.get_action().takes_values() { flag.hide_default_value(true).value_hint(hint) } else { flag }
}

/// Meaning of a flag, without its default.
pub(crate) fn meaning(flag: &Arg) -> String {
    let help = flag.get_long_help().or(flag.get_help()).map(ToString::to_string).unwrap_or_default();
    help.rsplit_once(" [default: ").map_or(help.as_str(), |(meaning, _)| meaning).to_owned()
}

/// Separates the default that a help text declares at its end.
fn split_default(help: &str) -> (&str, Option<&str>) {
    match help.rsplit_once("Default: ") {
        Some((meaning, default)) => (meaning.trim_end().trim_end_matches('.'), Some(default.trim_end_matches('.'))),
        None => (help.trim_end_matches('.'), None),
    }
}

/// Default of clap's declaration. As with Go's flags, empty values and `false` are not printed.
fn shown_default(flag: &Arg) -> Option<String> {
    let values = flag.get_default_values().iter().map(|value| value.to_string_lossy());
    let values: Vec<_> = values.filter(|value| !value.is_empty() && value != "false").collect();
    (flag.get_action().takes_values() && !values.is_empty()).then(|| values.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_declared_default_is_split_from_the_meaning() {
        assert_eq!(split_default("Number of Nodes. Default: 16"), ("Number of Nodes", Some("16")));
        assert_eq!(split_default("Default: none."), ("", Some("none")));
        assert_eq!(split_default("Number of Nodes."), ("Number of Nodes", None));
    }

    #[test]
    fn the_summary_is_the_first_sentence_and_keeps_the_default() {
        let flag = argument(Arg::new("size").long("size").help("How large. In bytes.").default_value("4"));
        assert_eq!(flag.get_help().unwrap().to_string(), "How large [default: 4]");
        assert_eq!(flag.get_long_help().unwrap().to_string(), "How large. In bytes [default: 4]");
        let switch = argument(Arg::new("fast").long("fast").help("Hurry.").default_value("false"));
        assert_eq!(switch.get_help().unwrap().to_string(), "Hurry");
    }

    #[test]
    fn long_lines_are_wrapped_between_words() {
        assert_eq!(wrapped("one two three", 7, 2), "one two\n  three");
        assert_eq!(wrapped("a-word-that-is-too-long b", 7, 1), "a-word-that-is-too-long\n b");
        assert_eq!(wrapped("", 7, 1), "");
    }

    #[test]
    fn every_flag_of_the_summary_exists() {
        let definition = crate::cli::definition(&bowline_cloud::Registry::default());
        for name in SHORT.iter().chain(&SHORT_OF_COMMANDS) {
            assert!(definition.get_arguments().any(|flag| flag.get_long() == Some(*name)), "{name}");
        }
        for name in GROUPS.iter().flat_map(|(_, names)| *names) {
            assert!(definition.find_subcommand(name).is_some(), "{name}");
        }
    }
}
