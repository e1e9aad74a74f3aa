//! The reference page of the command line, from its clap definition.

use std::fmt::Write as _;

use bowline::exit_code;
use clap::{Arg, ArgAction, Command};

const HEAD: &str = "\
# Command line

<!-- Made by `cargo xtask generate` from the declared flags (`crates/commands/src/cli.rs`, `crates/settings/src/cli/`); change those instead. -->

A boolean flag takes `--flag`, `--flag=true` and `--flag=false`; other values may follow a space or `=`. Flags may be before or after \
the command: `bowline --v=2 plan` is `bowline plan --v=2`. Every command has `--help`, a summary, `--help-all`, with all of its flags, and \
`--version`. `bowline` without arguments prints what to try first if standard output is a terminal. If it is not, the usage is an \
invalid command line; in a Pod it runs the manager.

`bowline completion bash|zsh|fish` prints a completion script, and `cargo xtask man` writes man pages to `target/man`.

## Exit codes

";

/// The page for `program` and all its commands.
pub(crate) fn page(mut program: Command) -> String {
    // Fills in what clap derives late: usage lines, version flags.
    program.build();
    let mut page = HEAD.to_owned();
    push(&mut page, format_args!("| code | meaning for all commands |\n|---|---|\n"));
    exit_code::TABLE.iter().for_each(|(code, meaning)| push(&mut page, format_args!("| {code} | {meaning} |\n")));
    push(&mut page, format_args!("\n{}\n", exit_code::OF_MANAGER));
    section(&mut page, &program, &program);
    page
}

/// A command, then those below it.
fn section(page: &mut String, command: &Command, program: &Command) {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let usage = command.clone().render_usage().to_string();
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    push(page, format_args!("\n## `{name}`\n\n{about}\n\n```text\n{usage}\n```\n"));
    flags(page, command, program);
    let is_program = command.get_name() == program.get_name();
    if let Some(after) = command.get_after_long_help().or(command.get_after_help()).filter(|_| is_program) {
        push(page, format_args!("\n{after}\n"));
    }
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        section(page, below, program);
    }
}

/// The tables of a command's own flags, one for each group in the order of the help; `--help` explains itself. A command that has
/// all flags of the program refers to them.
fn flags(page: &mut String, command: &Command, program: &Command) {
    let has = |command: &Command, flag: &Arg| command.get_arguments().any(|known| known.get_id() == flag.get_id());
    let repeats = command.get_name() != program.get_name()
        && program.get_arguments().count() > 1
        && program.get_arguments().all(|flag| has(command, flag));
    let prints_only =
        |flag: &Arg| matches!(flag.get_action(), ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version);
    let left_out = |flag: &Arg| flag.is_hide_set() || prints_only(flag) || (repeats && has(program, flag));
    let own = |flag: &&Arg| !left_out(flag);
    let mut groups: Vec<(Option<&str>, Vec<&Arg>)> = Vec::new();
    for flag in command.get_arguments().filter(own) {
        let heading = flag.get_help_heading();
        match groups.iter_mut().find(|(known, _)| *known == heading) {
            Some((_, flags)) => flags.push(flag),
            None => groups.push((heading, vec![flag])),
        }
    }
    for (heading, flags) in groups {
        heading.into_iter().for_each(|heading| push(page, format_args!("\n### {heading}\n")));
        push(page, format_args!("\n| flag | default | meaning |\n|---|---|---|\n"));
        flags.into_iter().for_each(|flag| row(page, flag));
    }
    if repeats {
        let name = program.get_name();
        push(page, format_args!("\nBeside these it takes [every flag of `{name}`](#{name}), with the same meaning.\n"));
    }
}

fn row(page: &mut String, flag: &Arg) {
    // An empty default means that nothing is set, and a switch is off by default: neither is printed.
    let defaults =
        flag.get_default_values().iter().filter(|value| !value.is_empty() && flag.get_action().takes_values());
    let default = defaults.map(|value| format!("`{}`", value.to_string_lossy()));
    let default = default.reduce(|all, one| format!("{all}, {one}"));
    let missing = if flag.is_required_set() { "required" } else { "" };
    let help = flag.get_long_help().or(flag.get_help()).map(ToString::to_string).unwrap_or_default().replace('\n', " ");
    // A computed default is in the help only.
    let (help, declared) = match help.rsplit_once(" [default: ") {
        Some((meaning, default)) => (meaning.to_owned(), Some(default.trim_end_matches(']').to_owned())),
        None => (help, None),
    };
    let default = default.or(declared);
    let cells = [format!("`{}`", spelling(flag)), default.unwrap_or(missing.to_owned()), help];
    push(page, format_args!("| {} |\n", cells.map(|cell| cell.replace('|', "\\|")).join(" | ")));
}

/// How a flag is written: `--size N`, or `--fast[=true|false]` where the value may be left out. What has no flag is
/// written as its value alone.
fn spelling(flag: &Arg) -> String {
    let value = flag.get_value_names().and_then(|names| names.first());
    let Some(name) = flag.get_long() else {
        return value.map_or(flag.get_id().as_str(), |value| value.as_str()).to_owned();
    };
    match value.filter(|_| flag.get_action().takes_values()) {
        Some(value) if flag.is_require_equals_set() => format!("--{name}[={value}]"),
        Some(value) => format!("--{name} {value}"),
        None => format!("--{name}"),
    }
}

/// Writing to a `String` cannot fail.
fn push(page: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = page.write_fmt(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_is_a_row_with_its_default_and_meaning() {
        let flag = Arg::new("size").long("size").value_name("A|B").default_value("A").help("How large.");
        let page = page(Command::new("demo").arg(flag));
        assert!(page.contains("| `--size A\\|B` | `A` | How large. |"), "{page}");
    }

    #[test]
    fn each_group_of_flags_has_a_table_of_its_own() {
        let flag = |name: &'static str, group: &'static str| Arg::new(name).long(name).help_heading(group);
        let command = Command::new("demo").args([flag("a", "One"), flag("b", "Two"), flag("c", "One")]);
        let page = page(command);
        let places = ["### One", "`--a", "`--c", "### Two", "`--b"].map(|part| page.find(part));
        assert!(places.is_sorted() && places.iter().all(Option::is_some), "{page}");
    }

    #[test]
    fn a_command_with_all_flags_of_the_program_refers_to_them() {
        let flag = |name: &'static str| Arg::new(name).long(name).help("Its meaning.");
        let all = Command::new("all").args([flag("own"), flag("a"), flag("b")]);
        let some = Command::new("some").args([flag("a")]);
        let page = page(Command::new("demo").args([flag("a"), flag("b")]).subcommands([all, some]));
        let (_, behind) = page.split_once("## `demo all`").unwrap();
        let (all, some) = behind.split_once("## `demo some`").unwrap();
        assert!(
            all.contains("`--own") && !all.contains("`--a") && all.contains("[every flag of `demo`](#demo)"),
            "{all}"
        );
        assert!(some.contains("`--a") && !some.contains("every flag"), "{some}");
    }

    #[test]
    fn a_switch_has_neither_value_nor_default() {
        let switch = Arg::new("fast").long("fast").action(clap::ArgAction::SetTrue).help("Hurry.");
        let empty = Arg::new("name").long("name").value_name("NAME").default_value("").help("Its name.");
        let page = page(Command::new("demo").arg(switch).arg(empty));
        assert!(page.contains("| `--fast` |  | Hurry. |"), "{page}");
        assert!(page.contains("| `--name NAME` |  | Its name. |"), "{page}");
    }

    #[test]
    fn commands_below_have_sections_of_their_own() {
        let page = page(Command::new("demo").subcommand(Command::new("run").about("Runs it.")));
        assert!(page.contains("## `demo run`\n\nRuns it.\n"), "{page}");
        assert!(!page.contains("demo help"), "{page}");
    }
}
