//! `cargo xtask figures`: the size of each provider, the files outside its folder that name it, and the HTTP clients of the
//! workspace, beside the limits that the project has set itself.
//!
//! Everything is counted in the text of the files. Tests are left out: folders `tests` and `benches`, files `tests.rs` and
//! `testing*`, items behind `#[cfg(test)]`, and what a manifest declares only for them.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use crate::tree::{self, Tree};

/// Limits by name of the figure.
const LIMITS: [(&str, usize); 7] = [
    ("digitalocean: lines of source", 3_500),
    ("digitalocean: lines of simulator", 1_200),
    ("digitalocean: files outside its folder", 2),
    ("openstack: lines of source", 10_500),
    ("openstack: lines of simulator", 4_200),
    ("openstack: files outside its folder", 2),
    ("HTTP clients", 1),
];

/// Ways to make a client with hyper, or with a crate that brings its own.
const CLIENTS: [&str; 5] = ["legacy::Client", "legacy::{Client", "client::conn::", "reqwest::", "ureq::"];

/// A number, and the names that it counts.
#[derive(Debug, PartialEq, Eq)]
struct Figure {
    name: String,
    count: usize,
    names: Vec<String>,
}

/// Prints all figures of the workspace at `root`.
pub(crate) fn print(root: &Path) -> anyhow::Result<()> {
    println!("{:<40} {:>7} {:>7}", "figure", "count", "limit");
    for figure in figures(&tree::read(root, is_read)?) {
        print!("{figure}");
    }
    Ok(())
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = LIMITS.iter().find(|(name, _)| *name == self.name).map(|(_, limit)| *limit);
        let shown = limit.map(|limit| limit.to_string()).unwrap_or_default();
        let verdict = limit.map(|limit| if self.count > limit { "exceeded" } else { "ok" }).unwrap_or_default();
        writeln!(f, "{}", format!("{:<40} {:>7} {shown:>7}  {verdict}", self.name, self.count).trim_end())?;
        self.names.iter().try_for_each(|name| writeln!(f, "    {name}"))
    }
}

fn figures(tree: &Tree) -> Vec<Figure> {
    let mut figures = Vec::new();
    for provider in providers(tree) {
        let simulator = format!("providers/{provider}-simulator/src/");
        figures.push(lines(format!("{provider}: lines of source"), tree, &format!("providers/{provider}/src/")));
        if tree.keys().any(|path| path.starts_with(&simulator)) {
            figures.push(lines(format!("{provider}: lines of simulator"), tree, &simulator));
        }
        figures.push(named(format!("{provider}: files outside its folder"), naming(tree, provider)));
    }
    figures.push(named("HTTP clients".into(), crates_with(tree, constructs_client)));
    figures.push(named("HTTP written by hand".into(), crates_with(tree, writes_http)));
    figures
}

fn named(name: String, names: BTreeSet<String>) -> Figure {
    Figure { name, count: names.len(), names: names.into_iter().collect() }
}

/// Names of the folders of providers.
fn providers(tree: &Tree) -> BTreeSet<&str> {
    let folders = tree.keys().filter_map(|path| path.strip_prefix("providers/")?.strip_suffix("/Cargo.toml"));
    folders.filter(|name| !name.contains('/') && !name.ends_with("-simulator")).collect()
}

fn lines(name: String, tree: &Tree, folder: &str) -> Figure {
    let files = tree.iter().filter(|(path, _)| path.starts_with(folder) && path.ends_with(".rs") && !is_test(path));
    Figure { name, count: files.map(|(_, text)| without_tests(text).count()).sum(), names: Vec::new() }
}

/// Files outside the provider's folders that have to be touched for it.
fn naming(tree: &Tree, provider: &str) -> BTreeSet<String> {
    let own = [format!("providers/{provider}/"), format!("providers/{provider}-simulator/")];
    let names = ["bowline-", "bowline_", "provider-", "providers/"].map(|prefix| format!("{prefix}{provider}"));
    let outside = tree.iter().filter(|(path, _)| !is_test(path) && !own.iter().any(|own| path.starts_with(own)));
    let naming = outside.filter(|(path, text)| relevant(path, text).iter().any(|line| has_word(line, &names)));
    naming.map(|(path, _)| path.clone()).collect()
}

/// Lines that count: of code those that are not comments or tests, of a manifest those that are not for tests, and of the
/// map of the crates the edges, which a test compares.
fn relevant<'a>(path: &str, text: &'a str) -> Vec<&'a str> {
    match path.rsplit_once('.').map(|(_, extension)| extension) {
        Some("rs") => without_tests(text).filter(|line| !is_comment(line, "//")).collect(),
        Some("toml") => without_test_sections(text).collect(),
        Some("md") => text.split("there are no other edges:").nth(1).map(edges).unwrap_or_default(),
        _ => text.lines().filter(|line| !is_comment(line, "#")).collect(),
    }
}

fn is_comment(line: &str, mark: &str) -> bool {
    line.trim_start().starts_with(mark)
}

fn edges(text: &str) -> Vec<&str> {
    text.split("```").nth(1).unwrap_or_default().lines().collect()
}

/// Whether one of the names stands in the line and does not go on as a longer one.
fn has_word(line: &str, names: &[String]) -> bool {
    let ends = |rest: &str| !rest.starts_with(|next: char| next.is_alphanumeric() || matches!(next, '-' | '_'));
    names.iter().any(|name| line.match_indices(name.as_str()).any(|(at, _)| ends(&line[at + name.len()..])))
}

/// Crates that have code of this kind outside their tests.
fn crates_with(tree: &Tree, is_of_kind: fn(&str) -> bool) -> BTreeSet<String> {
    let code = tree.iter().filter_map(|(path, text)| Some((path.split_once("/src/")?.0, path, text)));
    let code = code.filter(|(_, path, _)| path.ends_with(".rs") && !is_test(path) && !path.starts_with("xtask/"));
    let code = code.map(|(folder, _, text)| (folder, without_tests(text).collect::<Vec<_>>().join("\n")));
    code.filter(|(_, text)| is_of_kind(text)).map(|(folder, _)| folder.to_owned()).collect()
}

fn constructs_client(text: &str) -> bool {
    CLIENTS.iter().any(|client| text.contains(client))
}

fn writes_http(text: &str) -> bool {
    text.contains("TcpStream::connect") && text.contains(" HTTP/1.1\\r\\n")
}

fn is_test(path: &str) -> bool {
    path.split('/').any(|part| matches!(part, "tests" | "benches" | "tests.rs") || part.starts_with("testing"))
}

/// Lines of a manifest without sections that matter to tests only.
fn without_test_sections(text: &str) -> impl Iterator<Item = &str> {
    let mut is_for_tests = false;
    text.lines().filter(move |line| {
        if line.starts_with('[') {
            is_for_tests = ["dev-dependencies", "[[test", "[[bench"].iter().any(|section| line.contains(section));
        }
        !is_for_tests && !is_comment(line, "#")
    })
}

/// Lines of formatted code without items behind `#[cfg(test)]`.
fn without_tests(text: &str) -> impl Iterator<Item = &str> {
    let mut lines = text.lines();
    std::iter::from_fn(move || {
        loop {
            let line = lines.next()?;
            if line.trim() != "#[cfg(test)]" {
                return Some(line);
            }
            skip_item(&mut lines);
        }
    })
}

/// Reads on to the end of the item: its only line, or a line as far left as its first that closes it.
fn skip_item<'a>(lines: &mut impl Iterator<Item = &'a str>) {
    let Some(first) = lines.find(|line| !line.trim_start().starts_with("#[")) else { return };
    let indent = first.len() - first.trim_start().len();
    let closes = |line: &&str| {
        let is_as_far_left = line.len() - line.trim_start().len() == indent;
        is_as_far_left && (line.trim_start().starts_with('}') || line.ends_with(';'))
    };
    if !first.ends_with([';', ',', '}']) {
        lines.find(closes);
    }
}

/// Pages are for readers: of them, only the map of the crates has to name a provider.
fn is_read(name: &str) -> bool {
    !name.starts_with("docs/")
        && (name == "ARCHITECTURE.md" || ![".md", ".lock", ".json"].iter().any(|end| name.ends_with(end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A workspace with a cloud `rain`, its simulator, and a manager.
    fn workspace() -> Tree {
        let files = [
            ("providers/rain/Cargo.toml", "name = \"bowline-rain\""),
            ("providers/rain/src/lib.rs", "//! Rain.\n\n#[cfg(test)]\nmod tests;\nfn a() {}\n"),
            (
                "providers/rain/src/drop.rs",
                "fn b() {\n}\n\n#[cfg(test)]\n#[allow(x)]\nmod tests {\n    fn c() {\n    }\n}\n",
            ),
            ("providers/rain/src/tests.rs", "fn d() {}\n"),
            ("providers/rain/src/testing/hands.rs", "fn e() {}\n"),
            ("providers/rain/tests/rain.rs", "use bowline_rain::factory;\nreqwest::get();"),
            ("providers/rain-simulator/Cargo.toml", "name = \"bowline-rain-simulator\""),
            ("providers/rain-simulator/src/lib.rs", "fn f() {\n    1;\n}\n"),
            ("crates/manager/Cargo.toml", "[features]\nprovider-rain = [\"dep:bowline-rain\"]"),
            ("crates/manager/src/registry.rs", "fn g() {\n    bowline_rain::factory();\n}"),
            (
                "crates/manager/src/cli.rs",
                "// As bowline-rain does.\n#[cfg(test)]\nconst A: &[&str] = &[\n    \"provider-rain\",\n];",
            ),
            ("crates/manager/src/client.rs", "type Sender = legacy::Client<()>;"),
            ("crates/probe/Cargo.toml", "[dependencies]\n[target.x.dev-dependencies]\nbowline-rain.workspace = true"),
            ("crates/probe/src/lib.rs", "TcpStream::connect(at);\nwrite(\"GET / HTTP/1.1\\r\\n\");"),
            ("crates/other/src/lib.rs", "use bowline_rain_simulator::x;\nuse bowline_rainbow::y;"),
            ("ARCHITECTURE.md", "See providers/rain. there are no other edges:\n```\ncloud ──► core\n```\n"),
        ];
        files.into_iter().map(|(path, text)| (path.to_owned(), text.to_owned())).collect()
    }

    fn figure(name: &str, count: usize, names: &[&str]) -> Figure {
        Figure { name: name.into(), count, names: names.iter().map(ToString::to_string).collect() }
    }

    #[test]
    fn a_workspace_is_counted_without_its_tests() {
        let expected = [
            figure("rain: lines of source", 6, &[]),
            figure("rain: lines of simulator", 3, &[]),
            figure(
                "rain: files outside its folder",
                2,
                &["crates/manager/Cargo.toml", "crates/manager/src/registry.rs"],
            ),
            figure("HTTP clients", 1, &["crates/manager"]),
            figure("HTTP written by hand", 1, &["crates/probe"]),
        ];
        assert_eq!(figures(&workspace()), expected);
    }

    #[test]
    fn a_drawn_edge_counts_as_a_file_to_touch() {
        let mut tree = workspace();
        let map = tree.get_mut("ARCHITECTURE.md").unwrap();
        *map = map.replace("cloud ──► core", "providers/rain ──► core");
        assert!(naming(&tree, "rain").contains("ARCHITECTURE.md"));
    }

    #[test]
    fn items_for_tests_end_where_they_are_closed() {
        for (text, left) in [
            ("a\n#[cfg(test)]\nmod t;\nb", "a b"),
            ("a\n#[cfg(test)]\nfn t(\n    x: u8,\n) {\n    y;\n}\nb", "a b"),
            ("a {\n    #[cfg(test)]\n    x: u8,\n    b\n}", "a { b }"),
            ("a\n#[cfg(test)]\nuse t::{\n    x,\n};\nb", "a b"),
            ("a\n#[cfg(test)]", "a"),
        ] {
            let kept: Vec<&str> = without_tests(text).map(str::trim).collect();
            assert_eq!(kept.join(" "), left);
        }
    }

    #[test]
    fn a_figure_is_shown_beside_its_limit() {
        let shown = figure("HTTP clients", 2, &["crates/a", "crates/b"]).to_string();
        assert_eq!(
            shown.split_whitespace().collect::<Vec<_>>().join(" "),
            "HTTP clients 2 1 exceeded crates/a crates/b"
        );
        assert!(figure("HTTP clients", 1, &[]).to_string().ends_with("1       1  ok\n"));
        assert!(figure("rain: lines of source", 7, &[]).to_string().ends_with("      7\n"));
    }
}
