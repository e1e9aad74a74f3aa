//! Commands of cargo on the pages name crates, targets and chores that exist, and the guide's copy of the example is a crate.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::documentation::{pages, root};

/// The crate that readers of the guide for providers create.
const COPY: &str = "bowline-acme";

/// Packages of the workspace in this folder, with their targets.
fn packages(folder: &Path) -> Vec<Value> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]).current_dir(folder);
    let output = cargo.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

fn name(value: &Value) -> String {
    value["name"].as_str().unwrap().to_owned()
}

#[test]
fn commands_of_cargo_name_crates_and_targets_that_exist() {
    let packages = packages(&root());
    let crates: BTreeSet<_> = packages.iter().map(name).chain([COPY.to_owned()]).collect();
    let targets = packages.iter().flat_map(|package| package["targets"].as_array().unwrap());
    let targets: BTreeSet<_> = targets.map(name).collect();
    let (mut unknown, mut count) = (Vec::new(), 0);
    for (page, text) in pages() {
        for command in text.lines().filter_map(|line| line.split_once("cargo ")).map(|(_, rest)| rest) {
            let words: Vec<_> = command.split(['`', ';', '|']).next().unwrap_or_default().split_whitespace().collect();
            for pair in words.windows(2).take_while(|pair| pair[0] != "--") {
                let known = match pair[0] {
                    "-p" | "--package" => &crates,
                    "--bench" | "--test" | "--bin" | "--example" => &targets,
                    _ => continue,
                };
                count += 1;
                if !known.contains(pair[1]) && pair[1] != "CRATE" {
                    unknown.push(format!("{}: cargo {command}", page.display()));
                }
            }
        }
    }
    assert!(unknown.is_empty(), "{unknown:#?}");
    assert!(count > 20, "where are the commands? {count}");
}

#[test]
fn chores_that_pages_name_exist() {
    let help = Command::new(env!("CARGO_BIN_EXE_xtask")).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let known: BTreeSet<_> = help.lines().filter_map(|line| line.split_whitespace().next()).collect();
    for (page, text) in pages() {
        for rest in text.split("`cargo xtask ").skip(1) {
            let chore = rest.split([' ', '`']).next().unwrap_or_default();
            assert!(known.contains(chore), "{}: {chore}", page.display());
        }
    }
}

/// Executes the first commands of the guide in a workspace of links to this one; `cargo test`, which compiles the copy for minutes, is
/// left out.
#[test]
fn the_guide_copies_the_example_to_a_member_of_the_workspace() {
    let folder = scratch();
    for file in ["Cargo.toml", "Cargo.lock"] {
        fs::copy(root().join(file), folder.join(file)).unwrap();
    }
    for name in ["crates", "examples", "xtask"] {
        symlink(root().join(name), folder.join(name)).unwrap();
    }
    fs::create_dir(folder.join("providers")).unwrap();
    for entry in fs::read_dir(root().join("providers")).unwrap().map(Result::unwrap) {
        symlink(entry.path(), folder.join("providers").join(entry.file_name())).unwrap();
    }
    let guide = fs::read_to_string(root().join("docs/guides/writing-a-provider.md")).unwrap();
    let block = guide.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    let (commands, last) = block.trim_end().rsplit_once('\n').unwrap();
    assert_eq!(last, format!("cargo test -p {COPY}"));
    let output = Command::new("sh").args(["-euc", commands]).current_dir(&folder).output().unwrap();
    assert!(output.status.success(), "{commands}: {}", String::from_utf8_lossy(&output.stderr));
    let names: Vec<_> = packages(&folder).iter().map(name).collect();
    assert!(names.iter().any(|name| name == COPY), "{names:?}");
    let test = fs::read_to_string(folder.join("providers/acme/tests/conformance.rs")).unwrap();
    assert!(test.contains("bowline_acme") && !test.contains("bowline_example"), "the copy uses itself");
    fs::remove_dir_all(&folder).unwrap();
}

fn scratch() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("copy-of-the-example");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}
