//! The scripts, in real shells.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command as Program, Stdio};

use bowline_config::ConfigErrors;

use super::*;

fn registry() -> Registry {
    let none = |_: &bowline_cloud::BuildContext<'_>| Err(ConfigErrors::new());
    let kinds = ["local", "openstack"].map(|name| bowline_cloud::Factory::new(name, "for tests", String::new, none));
    kinds.into_iter().fold(Registry::default(), Registry::with)
}

/// Writes the script of a shell and then a test of it to the standard input of that shell; returns the lines that it prints.
/// `None` if the shell is not installed.
fn run(shell: Shell, name: &str, flags: &[&str], test: &str) -> Option<Vec<String>> {
    let is_there = |folder: PathBuf| folder.join(name).is_file();
    if !std::env::split_paths(&std::env::var_os("PATH")?).any(is_there) {
        // Not `eprintln!`, which the test harness captures.
        let _ = writeln!(std::io::stderr(), "SKIPPED: {name} is not installed");
        return None;
    }
    let mut program = Program::new(name);
    program.current_dir(env!("CARGO_MANIFEST_DIR"));
    let mut shell_process =
        program.args(flags).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let text = format!("{}\n{test}\n", script(shell, &registry()));
    shell_process.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = shell_process.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success() && output.stderr.is_empty(), "{name}: {}", text(&output.stderr));
    Some(text(&output.stdout).lines().map(str::to_owned).collect())
}

/// A command line without the program, as bash splits it; the last word is completed. Words that are offered, and words that are not.
type Case<'a> = (&'a [&'a str], &'a [&'a str], &'a [&'a str]);

const CASES: [Case<'_>; 12] = [
    (&[""], &["plan", "check", "completion", "help"], &["--v", "-h"]),
    (&["pl"], &["plan"], &["check"]),
    (&["--cloud-con"], &["--cloud-config"], &["--cloud-provider", "plan"]),
    (&["--logto"], &[], &["--logtostderr"]),
    (&["plan", "--out"], &["--output"], &["--v"]),
    (&["plan", "--leader-elect-lease"], &["--leader-elect-lease-duration"], &[]),
    (&["plan", "-o", ""], &["text", "json"], &["plan"]),
    (&["--cloud-provider", "op"], &["openstack"], &["local"]),
    (&["--v", "plan", "ch"], &["check"], &["text"]),
    (&["--cloud-provider", "local", "plan", "--yes"], &[], &["--yes"]),
    (&["orphans", "--ye"], &["--yes"], &[]),
    (&["completion", "f"], &["fish"], &["bash"]),
];

fn check(shell: &str, offered: &[String], (words, expected, unexpected): Case<'_>) {
    let has = |word: &&&str| offered.iter().any(|line| line.as_str() == **word);
    let missing: Vec<_> = expected.iter().filter(|word| !has(word)).collect();
    let wrong: Vec<_> = unexpected.iter().filter(has).collect();
    assert!(
        missing.is_empty() && wrong.is_empty(),
        "{shell}: {words:?}: missing {missing:?}, wrong {wrong:?}: {offered:?}"
    );
}

/// Quotes a word for all of the shells.
fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ")
}

#[test]
fn bash_completes_commands_flags_and_values() {
    let flags = ["--norc", "--noprofile", "-u", "-s"];
    for case in CASES {
        let (words, count) = (quoted(case.0), case.0.len());
        let test = format!(
            "COMP_WORDS=(bowline {words}); COMP_CWORD={count}; _bowline; printf '%s\\n' ${{COMPREPLY[@]+\"${{COMPREPLY[@]}}\"}}"
        );
        let Some(offered) = run(Shell::Bash, "bash", &flags, &test) else { return };
        check("bash", &offered, case);
    }
    // The character = is a word.
    let test = "COMP_WORDS=(bowline plan --output = j); COMP_CWORD=4; _bowline; echo ${COMPREPLY[@]}\n\
                COMP_WORDS=(bowline --leader-elect =); COMP_CWORD=2; _bowline; echo ${COMPREPLY[@]}\n\
                COMP_WORDS=(bowline --kubeconfig Cargo.tom); COMP_CWORD=2; _bowline; echo ${COMPREPLY[@]}; complete -p bowline";
    let offered = run(Shell::Bash, "bash", &flags, test).unwrap();
    assert_eq!(offered, ["json", "true false", "Cargo.toml", "complete -F _bowline bowline"]);
}

#[test]
fn zsh_completes_commands_flags_and_values() {
    // Functions of the completion system, which runs only on a terminal.
    let system = "_describe() { print -l -- ${(@P)argv[-1]%%:*} }; _files() { print files }; compset() { PREFIX=${PREFIX#*=} }\n\
                  compadd() { shift; print -l -- $@ }";
    for case in CASES {
        let (words, count) = (quoted(case.0), case.0.len() + 1);
        let last = case.0.last().unwrap();
        let test = format!("{system}\nwords=(bowline {words}); CURRENT={count}; PREFIX='{last}'; _bowline");
        let Some(offered) = run(Shell::Zsh, "zsh", &["-f", "-s"], &test) else { return };
        // The completion system selects those that match.
        let offered: Vec<_> = offered.into_iter().filter(|word| word.starts_with(last)).collect();
        check("zsh", &offered, case);
    }
    let test = format!("{system}\nwords=(bowline --kubeconfig=/et); CURRENT=2; PREFIX=$words[2]; _bowline");
    assert_eq!(run(Shell::Zsh, "zsh", &["-f", "-s"], &test).unwrap(), ["files"]);
}

#[test]
fn fish_completes_commands_flags_and_values() {
    for case in CASES {
        let test = format!("complete -C 'bowline {}'", case.0.join(" "));
        let Some(offered) = run(Shell::Fish, "fish", &["--no-config"], &test) else { return };
        let offered: Vec<_> = offered.iter().filter_map(|line| Some(line.split('\t').next()?.to_owned())).collect();
        check("fish", &offered, case);
    }
}

#[test]
fn the_scripts_are_small() {
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let size = script(shell, &registry()).len();
        assert!(size < 64_000, "{shell:?}: {size} bytes");
    }
}
