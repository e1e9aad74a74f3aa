//! What the pages say is there: files, flags, and the edges between crates.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use clap::Command;

/// Flags of other programs that the pages speak of.
const OF_OTHERS: [&str; 12] = [
    // kubectl
    "all",
    "as",
    "dry-run",
    "raw",
    "validate",
    "watch",
    // cargo
    "bench",
    "release",
    "workspace",
    // kubelet, and a Go manager
    "allow-untagged-cloud",
    "node-ip",
    "provider-id",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// All pages, with their texts.
fn pages() -> Vec<(PathBuf, String)> {
    let mut pages = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                folders.push(path);
            } else if name.ends_with(".md") {
                pages.push((path.clone(), fs::read_to_string(path).unwrap()));
            }
        }
    }
    assert!(pages.len() > 10, "where are the pages? {pages:?}");
    pages
}

/// What stands between `open` and `close`, on one line.
fn enclosed<'a>(text: &'a str, open: &'a str, close: char) -> impl Iterator<Item = &'a str> {
    text.lines().flat_map(move |line| line.split(open).skip(1).filter_map(move |rest| Some(rest.split_once(close)?.0)))
}

#[test]
fn every_relative_link_leads_somewhere() {
    let mut broken = Vec::new();
    for (page, text) in pages() {
        for link in enclosed(&text, "](", ')').filter(|link| !link.contains("://") && !link.starts_with('#')) {
            let file = link.split('#').next().unwrap();
            if !page.parent().unwrap().join(file).exists() {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn every_path_of_this_repository_that_a_page_names_is_there() {
    let folders = ["crates/", "providers/", "docs/", "examples/", "xtask/", ".ci/"];
    // Planned, and said to be.
    let planned = ["crates/l4"];
    let mut broken = Vec::new();
    for (page, text) in pages() {
        let code = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
        for path in code.filter(|code| folders.iter().any(|folder| code.starts_with(folder))) {
            let is_one = !path.contains([' ', '*', '…']) && !planned.contains(&path);
            if is_one && !root().join(path).exists() {
                broken.push(format!("{}: {path}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn every_flag_that_a_page_names_is_there() {
    let mut known: BTreeSet<String> = OF_OTHERS.iter().map(ToString::to_string).collect();
    add_flags(&mut known, &bowline::cli());
    let mut unknown = Vec::new();
    for (page, text) in pages() {
        for flag in flags(&text) {
            let is_known = match flag.strip_suffix("-*") {
                Some(group) => known.iter().any(|known| known.starts_with(group)),
                None => known.contains(flag),
            };
            if !is_known {
                unknown.push(format!("{}: --{flag}", page.display()));
            }
        }
    }
    assert!(unknown.is_empty(), "{unknown:#?}");
}

fn add_flags(known: &mut BTreeSet<String>, command: &Command) {
    known.extend(command.get_arguments().filter_map(|flag| flag.get_long()).map(str::to_owned));
    command.get_subcommands().for_each(|below| add_flags(known, below));
}

/// The names behind two dashes, without those that only draw a line.
fn flags(text: &str) -> impl Iterator<Item = &str> {
    let is_name = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || matches!(letter, '-' | '*');
    let words = text.split(|letter: char| letter.is_whitespace() || matches!(letter, '`' | '(' | '[' | '"' | '|'));
    let behind = words.filter_map(|word| word.strip_prefix("--"));
    behind
        .map(move |word| word.split(|letter| !is_name(letter)).next().unwrap_or_default())
        .filter(|name| name.starts_with(|letter: char| letter.is_ascii_lowercase()))
        // An example of how flags are written, not a flag.
        .filter(|name| *name != "flag")
}

#[test]
fn the_crates_depend_on_each_other_as_the_map_says() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let (_, below) = map.split_once("there are no other edges:").unwrap();
    let block = below.split("```").nth(1).unwrap();
    let drawn = block.lines().filter_map(|line| {
        let (from, to) = line.split_once("──►")?;
        Some((from.trim().to_owned(), to.split(',').map(|to| to.trim().to_owned()).collect()))
    });
    assert_eq!(drawn.collect::<BTreeMap<String, BTreeSet<String>>>(), edges());
}

/// The edges in the manifests. Those of a crate's tests start at `NAME (tests)`.
fn edges() -> BTreeMap<String, BTreeSet<String>> {
    let names = names();
    let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (folder, name) in names.values() {
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let mut section = "";
        for line in manifest.lines() {
            section = line.strip_prefix('[').unwrap_or(section);
            let dependency = line.split(['.', ' ', '=']).next().unwrap_or_default();
            let from = match section {
                "dependencies]" => name.clone(),
                "dev-dependencies]" => format!("{name} (tests)"),
                _ => continue,
            };
            if let Some((_, to)) = names.get(dependency) {
                edges.entry(from).or_default().insert(to.clone());
            }
        }
    }
    // What a crate depends on anyway, its tests may use, too.
    let own = edges.clone();
    for (from, to) in &mut edges {
        if let Some(own) = from.strip_suffix(" (tests)").and_then(|name| own.get(name)) {
            to.retain(|to| !own.contains(to));
        }
    }
    edges.retain(|_, to| !to.is_empty());
    edges
}

/// The folder of each crate and its name on the map, by its name for cargo.
fn names() -> BTreeMap<String, (PathBuf, String)> {
    let alone = [("xtask", "xtask"), ("bowline-example", "examples/provider")];
    let alone = alone.map(|(cargo, name)| (cargo.to_owned(), (root().join(name), name.to_owned())));
    let mut names = BTreeMap::from(alone);
    for (group, prefix) in [("crates", ""), ("providers", "providers/")] {
        for entry in fs::read_dir(root().join(group)).unwrap().map(Result::unwrap) {
            let name = entry.file_name().into_string().unwrap();
            let cargo = if name == "bowline" { name.clone() } else { format!("bowline-{name}") };
            names.insert(cargo, (entry.path(), format!("{prefix}{name}")));
        }
    }
    names
}
