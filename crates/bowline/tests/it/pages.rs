//! What readers copy from the pages: commands that the program and kubectl accept, and YAML that the API server accepts.
//!
//! Commands are not executed here, because most name clouds and machines that do not exist: `--help` is added to each, so that it is
//! parsed and nothing happens. Those of the tour, of the chart, of the provider guide and of the emulated clouds have tests that execute
//! them, and those of the quick start that need no cloud are executed here.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use bowline_apiserver::{ApiServer, Options};
use serde_json::Value;

use crate::manifests::{PATHS, create, documents, post};
use crate::support::{BOWLINE, Scratch, Server, bowline, skip, workspace};

/// Text on a page: a fenced block with its language, or code within a line.
struct Code {
    page: String,
    language: String,
    text: String,
}

/// All code on the pages of the repository.
fn all_code() -> Vec<Code> {
    let mut pages = Vec::new();
    collect(&workspace(), &mut pages);
    assert!(pages.len() > 50, "where are the pages? {pages:?}");
    pages.iter().flat_map(|page| code(page)).collect()
}

fn collect(folder: &Path, pages: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            collect(&path, pages);
        } else if name.ends_with(".md") {
            pages.push(path);
        }
    }
}

fn code(path: &Path) -> Vec<Code> {
    let page = path.strip_prefix(workspace()).unwrap().display().to_string();
    let (text, mut found, mut block) = (std::fs::read_to_string(path).unwrap(), Vec::new(), None::<Code>);
    for line in text.lines() {
        let code =
            |language: &str, text: &str| Code { page: page.clone(), language: language.into(), text: text.into() };
        match (line.trim_start().strip_prefix("```"), &mut block) {
            (Some(_), open @ Some(_)) => found.extend(open.take()),
            (Some(language), open) => *open = Some(code(language.split(',').next().unwrap(), "")),
            (None, Some(open)) => open.text.extend([line, "\n"]),
            (None, None) => found.extend(line.split('`').skip(1).step_by(2).map(|text| code("inline", text))),
        }
    }
    found
}

/// The commands in a piece of code that start with `program`, each as words. In text and transcripts, commands follow a prompt.
fn commands(code: &Code, program: &str) -> Vec<Vec<String>> {
    let lines = code.text.replace("\\\n", " ");
    let command = |line: &str| {
        let line = match code.language.as_str() {
            "sh" | "inline" => Some(line.trim()),
            "console" | "text" | "" => line.trim().strip_prefix("$ "),
            _ => None,
        };
        words(line?.strip_prefix(program).filter(|rest| rest.starts_with(' '))?)
    };
    lines.lines().filter_map(command).collect()
}

/// Splits a command into words, up to a pipe, redirection, separator or comment, without `…` and optional parts. `None` if a quote is
/// not closed.
fn words(command: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for letter in command.chars() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, ' ') => words.extend(word.take()),
            (None, '|' | '>' | ';' | '&') => break,
            (None, '#') if word.is_none() => break,
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words.retain(|word| word != "…" && word != "..." && !word.starts_with('['));
    quote.is_none().then_some(words)
}

#[test]
fn commands_are_split_as_a_shell_does() {
    let split = |command: &str| words(command).map(|words| words.join("/"));
    assert_eq!(split(" plan --a='b c' -v 2 … [--x]  # why"), Some("plan/--a=b c/-v/2".to_owned()));
    assert_eq!(split(" playground example hello | kubectl apply -f -"), Some("playground/example/hello".to_owned()));
    assert_eq!(split(" get node \"web"), None);
}

/// A list of alternatives, or a flag named without its value, such as `bowline cloud --listen`.
fn is_command(code: &Code, words: &[String]) -> bool {
    code.language != "inline"
        || !code.text.contains(['|', '\\'])
            && words.last().is_some_and(|word| !word.starts_with("--") || word.contains('='))
}

#[test]
fn every_command_of_bowline_on_a_page_is_accepted() {
    let (definition, mut rejected, mut distinct) = (bowline::cli(), Vec::new(), BTreeSet::new());
    for code in all_code() {
        for words in commands(&code, "bowline").into_iter().filter(|words| is_command(&code, words)) {
            let unknown = unknown_flags(&definition, &words);
            rejected.extend(unknown.into_iter().map(|flag| format!("{}: {words:?}: no flag {flag}", code.page)));
            if let Some(error) = distinct.insert(words.clone()).then(|| parse_error(&definition, &words)).flatten() {
                rejected.push(format!("{}: {words:?}: {error}", code.page));
            }
        }
    }
    assert!(rejected.is_empty(), "{}", rejected.join("\n"));
    assert!(distinct.len() > 100, "where are the commands? {distinct:?}");
}

/// Parses the command with `--help` behind it, so that arguments may be missing: in this process, which is fast, or by the program, which
/// sorts flags first.
fn parse_error(definition: &clap::Command, words: &[String]) -> Option<String> {
    let arguments: Vec<_> = words.iter().map(String::as_str).chain(["--help"]).collect();
    let parsed = definition.clone().try_get_matches_from(["bowline"].iter().chain(&arguments));
    if parsed.is_err_and(|error| error.kind() == clap::error::ErrorKind::DisplayHelp) {
        return None;
    }
    let output = bowline(&arguments);
    (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Returns the flags that the command does not have, also among those behind `manifests`, which the parser does not know.
fn unknown_flags<'a>(definition: &clap::Command, words: &'a [String]) -> Vec<&'a str> {
    let mut command = definition;
    for word in words.iter().filter(|word| !word.starts_with('-')) {
        match command.find_subcommand(word) {
            Some(below) => command = below,
            None => break,
        }
    }
    let is_known = |name: &str| {
        // Flags of the manager can follow those of `manifests`.
        let all = command.get_arguments().chain(definition.get_arguments());
        let mut names =
            all.flat_map(|flag| flag.get_long().into_iter().chain(flag.get_all_aliases().unwrap_or_default()));
        names.any(|known| known == name)
    };
    let flags = words.iter().filter_map(|word| word.strip_prefix("--"));
    let names = flags.map(|flag| flag.split(['=', '[']).next().unwrap_or_default());
    names.filter(|name| !name.is_empty() && *name != "FLAGS" && !is_known(name)).collect()
}

#[test]
fn an_unknown_flag_of_a_command_is_reported() {
    let words = |command: &str| words(command).unwrap();
    let plan = words(" plan --kubeconfig=a --knots=8");
    assert_eq!(unknown_flags(&bowline::cli(), &plan), ["knots"]);
}

/// kubectl reports unknown flags and commands before it prints its help.
#[test]
fn every_command_of_kubectl_on_a_page_is_accepted() {
    if Command::new("kubectl").arg("--help").output().is_err() {
        return skip("kubectl is not installed");
    }
    let mut rejected = Vec::new();
    for code in all_code() {
        for words in commands(&code, "kubectl").iter().filter(|_| code.language != "inline") {
            let output = Command::new("kubectl").args(words).arg("--help").output().unwrap();
            if !output.status.success() {
                rejected.push(format!("{}: {words:?}: {}", code.page, String::from_utf8_lossy(&output.stderr)));
            }
        }
    }
    assert!(rejected.is_empty(), "{}", rejected.join("\n"));
}

/// Parts of objects and configuration files are parsed; complete objects are created.
#[tokio::test]
async fn yaml_on_the_pages_is_valid() {
    let mut created = 0;
    for Code { page, text, .. } in all_code().into_iter().filter(|code| code.language == "yaml") {
        let server = ApiServer::start(Options::default()).await.unwrap();
        for document in documents(&text) {
            let object: Value =
                serde_saphyr::from_str(&document).unwrap_or_else(|error| panic!("{page}: {error}\n{text}"));
            let is_object = object["metadata"]["name"].is_string() && object["apiVersion"].is_string();
            if is_object && PATHS.iter().any(|(kind, _)| object["kind"] == *kind) {
                post(&server, &object, document).await;
                created += 1;
            }
        }
    }
    assert!(created > 5, "where are the objects? {created}");
}

/// The commands in the blocks of a section of the quick start.
fn quick_start(section: &str) -> Vec<String> {
    let text = std::fs::read_to_string(workspace().join("docs/tutorials/quick-start.md")).unwrap();
    let heading = format!("\n## {section}\n");
    let (_, rest) = text.split_once(&heading).unwrap_or_else(|| panic!("no section {section}"));
    let section = rest.split("\n## ").next().unwrap();
    let blocks = section.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    // The blocks belong to the items of a list.
    blocks
        .map(|block| block.lines().map(|line| line.strip_prefix("   ").unwrap_or(line)).collect::<Vec<_>>().join("\n"))
        .collect()
}

/// A shell in which the program is in the search path.
fn shell(block: &str, folder: &Path) -> String {
    let programs = Path::new(BOWLINE).parent().unwrap().display();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-euc", block]).current_dir(folder).env("PATH", path).env_remove("BOWLINE_LOG");
    let output = shell.output().unwrap();
    let printed = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{block}: {printed:?}");
    printed.concat()
}

/// The printed manifests are created on an API server, with the configurations that the page writes.
#[tokio::test]
async fn the_quick_start_of_each_cloud_prints_valid_manifests() {
    for cloud in ["aws", "digitalocean", "openstack", "vsphere"] {
        let scratch = Scratch::new("quick-start");
        for block in
            quick_start(cloud).iter().filter(|block| block.starts_with("cat ") || block.contains("bowline manifests"))
        {
            shell(block, &scratch.path(""));
        }
        let server = ApiServer::start(Options::default()).await.unwrap();
        let created = create(&server, &std::fs::read_to_string(scratch.path("bowline.yaml")).unwrap()).await;
        assert!(created.iter().any(|object| object["kind"] == "DaemonSet"), "{cloud}: {created:?}");
    }
}

/// Only Linux answers at all loopback addresses without configuration.
#[cfg(target_os = "linux")]
#[test]
fn the_local_quick_start_leads_to_a_service_that_answers() {
    if ["kubectl", "curl"].iter().any(|program| Command::new(program).arg("--help").output().is_err()) {
        return skip("kubectl or curl is not installed");
    }
    let mut blocks = quick_start("local");
    // The first block builds the program, and the second one starts what the test has started.
    assert_eq!(blocks.remove(1), "bowline playground --no-tour\n");
    let playground = Server::start_command("quick-start-local", "playground", &["--no-tour"]);
    std::os::unix::fs::symlink(playground.kubeconfig(), playground.scratch.path("bowline.kubeconfig")).unwrap();
    let printed = shell(&blocks[1..].join("\n"), &playground.scratch.path(""));
    assert!(printed.contains("hello from hello-"), "{printed}");
}
