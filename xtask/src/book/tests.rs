//! Tests of the book: the pages of the repository, and small pages for each rule.

use std::io::Write as _;
use std::process::Command;

use super::*;
use crate::generated;

/// Terms that operators search for, and the page that has to be among the first results.
const TERMS: &str = include_str!("terms.txt");

/// Number of results that a reader sees first.
const FIRST: usize = 5;

fn book(texts: &[(&str, &str)]) -> Pages {
    texts.iter().map(|(path, text)| ((*path).to_owned(), Page::render(text))).collect()
}

#[test]
fn no_link_of_a_page_is_broken_and_the_book_is_complete() {
    let folder = std::env::temp_dir().join(format!("bowline-book-{}", std::process::id()));
    write(&generated::root(), &folder).unwrap();
    let mut missing = Vec::new();
    for (path, page) in read(&generated::root()).unwrap() {
        let file = folder.join(html_path(&path));
        let html = fs::read_to_string(&file).unwrap();
        assert!(html.contains(&page::escaped(&page.title)), "{path}");
        let targets = ["href=\"", "src=\""].map(|attribute| html.split(attribute).skip(1));
        for target in targets.into_iter().flatten().filter_map(|rest| rest.split('"').next()) {
            let target = target.split('#').next().unwrap_or_default();
            if !page::is_external(target) && !file.parent().unwrap().join(target).is_file() && !target.is_empty() {
                missing.push(format!("{path}: {target}"));
            }
        }
    }
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn only_an_earlier_book_is_removed() {
    let folder = std::env::temp_dir().join(format!("bowline-no-book-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("letter.txt"), "").unwrap();
    let error = empty(&folder).unwrap_err().to_string();
    assert!(error.contains("is not a book") && folder.join("letter.txt").exists(), "{error}");
    fs::write(folder.join(SEARCH), "").unwrap();
    empty(&folder).unwrap();
    assert!(!folder.exists());
}

#[test]
fn every_picture_is_on_a_page() {
    let pages = read(&generated::root()).unwrap();
    let (linked, _) = links::check(&pages, |_| Some(false));
    let pictures = crate::pictures::all(&generated::root()).unwrap();
    let unused: Vec<_> = pictures.iter().map(|(path, _)| path).filter(|path| !linked.contains(*path)).collect();
    assert!(pictures.len() >= 6 && unused.is_empty(), "{unused:?} of {}", pictures.len());
}

#[test]
fn links_to_missing_pages_headings_and_files_are_reported() {
    let pages = book(&[
        ("a.md", "# A\n[1](docs/b.md#two-words) [2](docs/b.md#three) [3](c.md) [4](x.txt) [5](../up) [6](#a) [7](d)"),
        ("docs/b.md", "## Two words\n[1](../a.md) [2](../a.md#b) [3](https://example.com)\n## Two words"),
    ]);
    let is_folder =
        |path: &str| [("x.txt", false), ("d", true)].into_iter().find(|(known, _)| *known == path).map(|(_, is)| is);
    let (linked, broken) = links::check(&pages, is_folder);
    assert_eq!(linked.into_iter().collect::<Vec<_>>(), ["x.txt"]);
    let expected = [
        "a.md: docs/b.md#three: docs/b.md has no heading with this anchor",
        "a.md: c.md: there is no c.md",
        "a.md: ../up leads out of the repository",
        "a.md: d: a link to a folder, and only such a link, ends with /",
        "docs/b.md: ../a.md#b: a.md has no heading with this anchor",
    ];
    assert_eq!(broken, expected);
}

#[test]
fn headings_have_the_anchors_of_github() {
    let page = Page::render("# `bowline plan`: what, and why?\n## A\n## A\n## Nodes_and-Pods\n");
    let anchors: Vec<_> = page.sections.iter().map(|section| section.anchor.as_str()).collect();
    assert_eq!(anchors, ["bowline-plan-what-and-why", "a", "a-1", "nodes_and-pods"]);
    assert!(page.html.contains("<h2 id=\"a-1\">A</h2>"), "{}", page.html);
}

#[test]
fn links_lead_to_rendered_pages_and_lists_of_folders() {
    let page = Page::render("[a](b.md#c) [d](e/) [f](https://example.com/g.md) [h](i.yaml)");
    for target in ["b.html#c", "e/index.html", "https://example.com/g.md", "i.yaml"] {
        assert!(page.html.contains(&format!("href=\"{target}\"")), "{target}: {}", page.html);
    }
}

#[test]
fn the_navigation_marks_the_page_and_its_links_start_there() {
    let index = "# Docs\n- [Guide](guides/g.md)\n- [Map](../ARCHITECTURE.md)\n";
    let pages = book(&[("docs/README.md", index), ("docs/guides/g.md", "# G"), ("ARCHITECTURE.md", "# Map")]);
    let html = navigation("docs/guides/g.md", "../../", &pages);
    assert!(html.contains("href=\"../../docs/guides/g.html\" aria-current=\"page\""), "{html}");
    assert!(html.contains("href=\"../../ARCHITECTURE.html\">Map"), "{html}");
}

/// Runs the search of the book itself, in Node.js.
#[test]
fn every_standard_term_is_found_by_search() {
    let terms: Vec<_> = TERMS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let terms: Vec<_> = terms.iter().map(|line| line.split_once(": ").unwrap()).collect();
    assert!(terms.len() > 50, "where are the terms?");
    let queries = serde_json::to_string(&terms.iter().map(|(term, _)| term).collect::<Vec<_>>()).unwrap();
    let index = search::index(&read(&generated::root()).unwrap()).unwrap();
    let print =
        format!("console.log(JSON.stringify({queries}.map((text) => search(text, INDEX).map((entry) => entry[0]))));");
    let script = std::env::temp_dir().join(format!("bowline-search-{}.js", std::process::id()));
    fs::write(&script, format!("{SCRIPT}\n{index}\n{print}\n")).unwrap();
    let output = Command::new("node").arg(&script).output();
    fs::remove_file(&script).unwrap();
    let Ok(output) = output else {
        let _ = writeln!(std::io::stderr(), "\nSKIPPED: Node.js is not installed, search is not tested");
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let results: Vec<Vec<String>> = serde_json::from_slice(&output.stdout).unwrap();
    let mut missing = Vec::new();
    for ((term, page), links) in terms.iter().zip(&results) {
        let first: Vec<_> = links.iter().take(FIRST).collect();
        if !first.iter().any(|link| link.starts_with(&html_path(page))) {
            missing.push(format!("{term}: {page} is not among {first:#?}"));
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}
