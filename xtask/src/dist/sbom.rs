//! Software bill of materials in CycloneDX: the crates in the program, and what its build machine adds.
//!
//! `cargo tree` decides which crates are in the program: `cargo metadata` merges the features of all packages of the workspace. The
//! licences are from `cargo metadata`, the checksums from `Cargo.lock`.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use super::source::Source;

/// Name and version of a crate.
type Id = (String, String);

/// A crate in the program, or a library that is linked statically.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Component {
    licence: Option<String>,
    description: Option<String>,
    checksum: Option<String>,
    /// Crates of other projects have an address in the registry.
    is_own: bool,
    /// Not a crate, but part of the toolchain.
    is_of_toolchain: bool,
    needs: BTreeSet<Id>,
}

/// Returns the components of the program with these features.
pub(super) fn components(source: &Source, features: &str) -> anyhow::Result<BTreeMap<Id, Component>> {
    let rust = rustc(source)?;
    let what = ["tree", "--locked", "--package", "bowline", "--no-default-features", "--features", features];
    let how = ["--edges", "normal,no-proc-macro", "--prefix", "depth", "--target", line_of(&rust, "host: ")];
    let mut components = parse_tree(&cargo(source, &[&what[..], &how].concat())?);
    add_licences(&mut components, &cargo(source, &["metadata", "--locked", "--format-version", "1"])?)?;
    add_checksums(&mut components, &source.text("Cargo.lock")?);
    for (name, version, licence) in of_toolchain(&rust) {
        let component = Component { licence: Some(licence), is_of_toolchain: true, ..Component::default() };
        components.insert((name, version), component);
    }
    Ok(components)
}

fn cargo(source: &Source, arguments: &[&str]) -> anyhow::Result<String> {
    let mut cargo = Command::new("cargo");
    let output = cargo.args(arguments).current_dir(&source.root).output().context("cannot run cargo")?;
    if !output.status.success() {
        bail!("cargo {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Parses the output of `cargo tree --prefix depth`: `2serde v1.0.0`, with `(*)` for a crate that is shown above.
fn parse_tree(text: &str) -> BTreeMap<Id, Component> {
    let mut components: BTreeMap<Id, Component> = BTreeMap::new();
    let mut above: Vec<Id> = Vec::new();
    for line in text.lines() {
        let name_at = line.find(|letter: char| !letter.is_ascii_digit()).unwrap_or_default();
        let (depth, rest) = line.split_at(name_at);
        let mut words = rest.split(' ');
        let (Ok(depth), Some(name), Some(version)) = (depth.parse::<usize>(), words.next(), words.next()) else {
            continue;
        };
        let id = (name.to_owned(), version.trim_start_matches('v').to_owned());
        above.truncate(depth);
        if let Some(parent) = above.last().and_then(|parent| components.get_mut(parent)) {
            parent.needs.insert(id.clone());
        }
        let component = components.entry(id.clone()).or_default();
        component.is_own |= rest.contains(" (/");
        above.push(id);
    }
    components
}

fn add_licences(components: &mut BTreeMap<Id, Component>, metadata: &str) -> anyhow::Result<()> {
    let metadata: Value = serde_json::from_str(metadata)?;
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let text =
            |name: &str| package[name].as_str().map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
        let id = (text("name").unwrap_or_default(), text("version").unwrap_or_default());
        if let Some(component) = components.get_mut(&id) {
            // An old way to write OR.
            component.licence = text("license").map(|licence| licence.replace('/', " OR "));
            component.description = text("description");
        }
    }
    Ok(())
}

fn add_checksums(components: &mut BTreeMap<Id, Component>, lock: &str) {
    for package in lock.split("[[package]]").skip(1) {
        let field = |name: &str| {
            let line = package.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = \""))?;
            line.strip_suffix('"').map(str::to_owned)
        };
        let id = (field("name").unwrap_or_default(), field("version").unwrap_or_default());
        if let Some(component) = components.get_mut(&id) {
            component.checksum = field("checksum");
        }
    }
}

/// Libraries that the toolchain links into the program: the standard library and the C library.
fn of_toolchain(rust: &str) -> Vec<(String, String, String)> {
    let rust = line_of(rust, "release: ").to_owned();
    let mut all = vec![("rust-std".to_owned(), rust, "MIT OR Apache-2.0".to_owned())];
    let libc = Command::new("getconf").arg("GNU_LIBC_VERSION").output();
    let libc = libc.ok().and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default();
    if let Some(version) = libc.trim().strip_prefix("glibc ") {
        all.push(("glibc".to_owned(), version.to_owned(), "LGPL-2.1-or-later".to_owned()));
    }
    all
}

fn rustc(source: &Source) -> anyhow::Result<String> {
    let output = Command::new("rustc").arg("-vV").current_dir(&source.root).output().context("cannot run rustc")?;
    Ok(String::from_utf8(output.stdout)?)
}

fn line_of<'a>(text: &'a str, name: &str) -> &'a str {
    text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default()
}

/// Formats the components of the program with this digest as a CycloneDX document. It has no serial number, which would be random.
pub(super) fn document(source: &Source, components: &BTreeMap<Id, Component>, digest: &str) -> anyhow::Result<Vec<u8>> {
    let program = ("bowline".to_owned(), source.version.clone());
    let others = components.iter().filter(|(id, _)| **id != program).map(|(id, one)| component(id, one));
    let needs = components.iter().map(|(id, one)| {
        let needs: Vec<_> = one.needs.iter().map(reference).collect();
        json!({"ref": reference(id), "dependsOn": needs})
    });
    let mut main = component(&program, &Component { is_own: true, ..Component::default() });
    main["type"] = json!("application");
    main["licenses"] = json!([{"expression": "Apache-2.0"}]);
    main["hashes"] = json!([{"alg": "SHA-256", "content": digest}]);
    let document = json!({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {
            "timestamp": source.timestamp()?,
            "component": main,
            "properties": [{"name": "git:commit", "value": source.commit}],
        },
        "components": others.collect::<Vec<_>>(),
        "dependencies": needs.collect::<Vec<_>>(),
    });
    let mut text = serde_json::to_vec_pretty(&document)?;
    text.push(b'\n');
    Ok(text)
}

fn reference((name, version): &Id) -> String {
    format!("{name}@{version}")
}

fn component(id: &Id, component: &Component) -> Value {
    let mut entry = json!({"type": "library", "bom-ref": reference(id), "name": id.0, "version": id.1});
    if let Some(licence) = &component.licence {
        entry["licenses"] = json!([{"expression": licence}]);
    }
    if let Some(description) = &component.description {
        entry["description"] = json!(description);
    }
    if let Some(checksum) = &component.checksum {
        entry["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
    }
    if !component.is_own && !component.is_of_toolchain {
        entry["purl"] = json!(format!("pkg:cargo/{}@{}", id.0, id.1));
    }
    entry
}
