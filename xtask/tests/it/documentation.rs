//! What the pages say is there: files, flags, and the edges between crates.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use clap::Command;

/// Flags of other programs that the pages speak of.
const OF_OTHERS: [(&str, &[&str]); 14] = [
    ("aws", &["aws-service-name", "format", "policy-document", "policy-name"]),
    (
        "cargo",
        &["bench", "bin", "example", "nocapture", "no-default-features", "profile", "release", "test", "workspace"],
    ),
    ("cargo xtask", &["verify"]),
    ("curl", &["cacert", "retry", "retry-all-errors"]),
    ("docker and podman", &["file", "input"]),
    ("helm", &["reuse-values", "set", "set-file", "set-string", "skip-schema-validation"]),
    (
        "kubectl",
        &[
            "all",
            "as",
            "clusterrole",
            "for",
            "from-file",
            "from-literal",
            "raw",
            "server-side",
            "timeout",
            "validate",
            "watch",
        ],
    ),
    ("kube-apiserver", &["kubelet-preferred-address-types"]),
    ("kubelet", &["hostname-override", "node-ip", "node-labels", "provider-id"]),
    ("openstack", &["names", "role", "user"]),
    ("sha256sum and systemctl", &["check", "now"]),
    ("tests/openstack/down", &["purge"]),
    ("useradd", &["no-create-home", "shell", "system"]),
    // Given to all of ours without being declared.
    ("clap", &["help"]),
];

/// A script with flags of its own, each at the beginning of a line, with `)` behind it.
const SCRIPT: &str = "deploy/image/build";

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// All pages, with their texts.
pub(crate) fn pages() -> Vec<(PathBuf, String)> {
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
fn every_page_is_in_the_index_and_every_decision_has_a_number_of_its_own() {
    let docs = root().join("docs");
    let index = fs::read_to_string(docs.join("README.md")).unwrap();
    let providers = fs::read_to_string(docs.join("reference/providers.md")).unwrap();
    let of_providers = enclosed(&providers, "](", ')').map(|link| format!("reference/{link}"));
    let linked: BTreeSet<String> = enclosed(&index, "](", ')').map(str::to_owned).chain(of_providers).collect();
    let mut names = Vec::new();
    for (page, _) in pages() {
        if let Ok(path) = page.strip_prefix(&docs) {
            names.push(path.to_str().unwrap().to_owned());
        }
    }
    let missing: Vec<_> = names.iter().filter(|name| *name != "README.md" && !linked.contains(*name)).collect();
    assert!(missing.is_empty(), "{missing:#?}");
    let numbers: Vec<_> = names.iter().filter_map(|name| name.strip_prefix("adr/")?.split_once('-')).collect();
    let distinct: BTreeSet<_> = numbers.iter().map(|(number, _)| number).collect();
    assert_eq!(numbers.len(), distinct.len(), "{numbers:?}");
}

#[test]
fn every_path_of_this_repository_that_a_page_names_is_there() {
    let folders = ["crates/", "providers/", "deploy/", "docs/", "examples/", "xtask/", ".ci/"];
    let mut broken = Vec::new();
    for (page, text) in pages() {
        let code = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
        for path in code.filter(|code| folders.iter().any(|folder| code.starts_with(folder))) {
            let is_one = !path.contains([' ', '*', '…']);
            if is_one && !root().join(path).exists() {
                broken.push(format!("{}: {path}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn every_flag_that_a_page_names_is_there() {
    let mut known: BTreeSet<String> = OF_OTHERS.iter().flat_map(|(_, flags)| *flags).map(ToString::to_string).collect();
    let script = fs::read_to_string(root().join(SCRIPT)).unwrap();
    let cases = script.lines().filter_map(|line| line.trim_start().strip_prefix("--")?.split_once(')'));
    known.extend(cases.map(|(flag, _)| flag.to_owned()));
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
        // Examples of how flags are written, not flags.
        .filter(|name| !matches!(*name, "flag" | "list"))
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

/// The program of the image has none of what is there for development or for agents.
#[test]
fn the_program_of_the_image_has_no_playground_and_no_agent() {
    let script = fs::read_to_string(root().join(SCRIPT)).unwrap();
    let features = script.split("features=").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
    assert!(script.contains("--no-default-features --features \"$features\""), "{script}");
    let in_image = dependencies(&["--no-default-features", "--features", features]);
    let absent = ["bowline-playground", "bowline-apiserver", "bowline-local", "bowline-agent", "bowline-l4"];
    let found: Vec<_> = absent.iter().filter(|name| in_image.contains(**name)).collect();
    assert!(found.is_empty(), "{found:?} are in the image");
    let in_default = dependencies(&[]);
    assert!(absent.iter().all(|name| in_default.contains(*name)), "{in_default:?}");
    assert!(in_image.contains("bowline-daemon") && in_image.len() > 100, "{in_image:?}");
}

/// Names of the crates that the program is built from, with these options of cargo.
fn dependencies(options: &[&str]) -> BTreeSet<String> {
    let tree = ["tree", "--locked", "--package", "bowline", "--edges", "normal,build", "--prefix", "none"];
    let mut cargo = std::process::Command::new(env!("CARGO"));
    let listed = cargo.args(tree).args(options).current_dir(root()).output().unwrap();
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let lines = String::from_utf8(listed.stdout).unwrap();
    lines.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

/// A provider is its folder, its dependency and feature, and its line in the registry.
#[test]
fn two_files_outside_its_folder_name_a_provider() {
    let allowed = ["crates/bowline/Cargo.toml", "crates/bowline/src/providers.rs"].map(|path| root().join(path));
    let mut files = vec![root().join("Cargo.toml")];
    let mut folders = ["crates", "xtask", "examples"].map(|folder| root().join(folder)).to_vec();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
            if path.is_dir() && !["tests", "benches", "target"].contains(&name.as_str()) {
                folders.push(path);
            } else if name.ends_with(".rs") || name == "Cargo.toml" {
                files.push(path);
            }
        }
    }
    let providers = fs::read_dir(root().join("providers")).unwrap().map(|entry| entry.unwrap().file_name());
    let providers = providers.map(|name| name.into_string().unwrap()).filter(|name| name != "local");
    let names: Vec<_> = providers.flat_map(|name| [format!("bowline-{name}"), format!("bowline_{name}")]).collect();
    assert!(!names.is_empty() && files.len() > 100, "where are the sources?");
    let named = files.iter().filter(|path| {
        let text = fs::read_to_string(path).unwrap();
        !allowed.contains(path) && names.iter().any(|name| text.contains(name))
    });
    assert_eq!(named.collect::<Vec<_>>(), Vec::<&PathBuf>::new());
}

/// All providers are one entry of the map, and so are their simulators, so that a new one needs no edit there; the local one
/// is the cloud of the playground and of tests, and stands for itself.
fn on_the_map(name: String) -> String {
    match name.strip_prefix("providers/") {
        None | Some("local") => name,
        Some(provider) if provider.ends_with("-simulator") => "providers/*-simulator".to_owned(),
        Some(_) => "providers/*".to_owned(),
    }
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
            names.insert(cargo, (entry.path(), on_the_map(format!("{prefix}{name}"))));
        }
    }
    names
}
