//! Man pages, from the same definition as `--help` and the reference page. They are not in the repository: packages have them.

use std::fmt::Write as _;
use std::path::Path;
use std::{fs, io};

use anyhow::Context as _;
use bowline::exit_code;
use clap::Command;
use clap_mangen::Man;

/// Writes one page for the program and one for each of its commands.
pub(crate) fn write(folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    for (name, page) in pages(bowline::cli())? {
        let path = folder.join(format!("{name}.1"));
        fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Returns the pages by name, such as `bowline-plan`.
fn pages(mut program: Command) -> io::Result<Vec<(String, Vec<u8>)>> {
    program.build();
    let mut pages = Vec::new();
    collect(&program, &program, &mut pages)?;
    Ok(pages)
}

fn collect(command: &Command, program: &Command, pages: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
    let name = command.get_bin_name().unwrap_or(command.get_name()).replace(' ', "-");
    pages.push((name.clone(), page(&name, command, program)?));
    let below = command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help");
    below.into_iter().try_for_each(|below| collect(below, program, pages))
}

fn page(name: &str, command: &Command, program: &Command) -> io::Result<Vec<u8>> {
    let is_program = command.get_name() == program.get_name();
    let of_program = |id: &clap::Id| program.get_arguments().any(|flag| flag.get_id() == id && !is_help(id));
    let repeats = !is_program
        && program.get_arguments().all(|flag| command.get_arguments().any(|own| own.get_id() == flag.get_id()));
    // Every flag of the manager is on the page of the program.
    let shown = match repeats {
        true => command.clone().mut_args(|flag| if of_program(flag.get_id()) { flag.hide(true) } else { flag }),
        false => command.clone(),
    };
    let usage = command.clone().render_usage().to_string();
    let man = Man::new(shown.clone().display_name(name)).title(name).section("1").manual("Bowline Manual");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    let usage = usage.trim_start_matches("Usage: ").lines().map(str::trim).map(escaped);
    section(&mut page, "SYNOPSIS", &usage.collect::<Vec<_>>().join("\n.br\n"));
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if repeats {
        section(&mut page, "FLAGS OF THE MANAGER", &escaped("The command accepts every flag of bowline(1)."));
    }
    if shown.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    section(&mut page, "EXIT STATUS", &exit_status(is_program));
    if let Some(after) = command.get_after_long_help().filter(|_| is_program) {
        section(&mut page, "NOTES", &escaped(&after.to_string()).replace("\n\n", "\n.PP\n"));
    }
    // Not every terminal has this character.
    Ok(String::from_utf8_lossy(&page).replace('…', "...").into_bytes())
}

fn is_help(id: &clap::Id) -> bool {
    ["help", "help-all", "version"].contains(&id.as_str())
}

/// Exit codes as a list.
fn exit_status(is_program: bool) -> String {
    let mut list = String::new();
    if is_program {
        list.push_str(&escaped(exit_code::OF_MANAGER));
        list.push_str("\n.PP\nCommands exit with these codes:\n");
    }
    for (code, meaning) in exit_code::TABLE {
        let _ = write!(list, ".TP\n{code}\n{}\n", escaped(&meaning.replace('`', "")));
    }
    list
}

fn section(page: &mut Vec<u8>, title: &str, text: &str) {
    page.extend(format!(".SH \"{title}\"\n{}\n", text.trim_end()).into_bytes());
}

/// Escapes a text for roff: backslashes, hyphens, and lines that look like requests.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('-', "\\-");
    let line = |line: &str| if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line.to_owned() };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::io::Write as _;
    use std::process::{Command as Program, Stdio};

    use super::*;

    /// Returns the page as text, and groff's warnings. `None` if groff is not installed.
    fn rendered(page: &[u8]) -> Option<(String, String)> {
        let mut groff = Program::new("groff");
        groff.args(["-k", "-man", "-Tascii", "-wall", "-P-cbou"]);
        let groff = groff.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let Ok(mut groff) = groff else {
            let _ = writeln!(std::io::stderr(), "SKIPPED: groff is not installed");
            return None;
        };
        // In a thread: a page is longer than a pipe.
        let (mut input, page) = (groff.stdin.take().unwrap(), page.to_owned());
        let writer = std::thread::spawn(move || input.write_all(&page).unwrap());
        let output = groff.wait_with_output().unwrap();
        writer.join().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Some((text(&output.stdout), text(&output.stderr)))
    }

    #[test]
    fn every_command_has_a_page_that_groff_accepts() {
        let pages = pages(bowline::cli()).unwrap();
        for name in ["bowline", "bowline-plan", "bowline-cloud-add", "bowline-completion"] {
            assert!(pages.iter().any(|(known, _)| known == name), "{name}");
        }
        for (name, page) in pages {
            let Some((text, warnings)) = rendered(&page) else { return };
            assert_eq!(warnings, "", "{name}");
            for part in ["NAME", "SYNOPSIS", "DESCRIPTION", "EXIT STATUS"] {
                assert!(text.contains(part), "{name}: {part}: {text}");
            }
            let manager_flag = text.contains("--leader-elect-lease-duration");
            assert_eq!(manager_flag, name == "bowline", "{name}: {text}");
        }
    }
}
