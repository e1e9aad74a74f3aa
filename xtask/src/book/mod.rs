//! The rendered book, `cargo xtask book`: every page of the repository as HTML, with navigation and search, without a server.
//!
//! ```text
//! pages (*.md) ──► page::render ──► HTML, headings, links ──► links::check ──► files in target/book
//!                                       └──► search index
//! ```
//!
//! The navigation is the list in `docs/README.md`. Files and folders that a page links to are copied, so that the book has no links
//! to outside of itself. A link to a missing page, file or heading is an error.

mod links;
mod page;
mod search;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};

use crate::tree;

use page::Page;

const STYLE: &str = include_str!("book.css");
const SCRIPT: &str = include_str!("book.js");

/// The search index, by which a folder is recognised as a book.
const SEARCH: &str = "search.js";

/// Page whose list is the navigation.
const INDEX: &str = "docs/README.md";

/// Pages at the top of the navigation, with their titles there.
const TOP: [(&str, &str); 6] = [
    ("README.md", "Bowline"),
    (INDEX, "Documentation"),
    ("ARCHITECTURE.md", "Architecture"),
    ("CONTRIBUTING.md", "Contributing"),
    ("CHANGELOG.md", "Changelog"),
    ("SECURITY.md", "Security"),
];

/// Pages by path, such as `docs/README.md`.
type Pages = BTreeMap<String, Page>;

/// Writes the book to `folder`, in place of an earlier one.
pub(crate) fn write(root: &Path, folder: &Path) -> anyhow::Result<()> {
    let pages = read(root)?;
    let linked = check(root, &pages)?;
    empty(folder)?;
    for (path, page) in &pages {
        save(folder, &html_path(path), layout(path, page, &pages))?;
    }
    save(folder, "index.html", redirect("README.html"))?;
    save(folder, "book.css", STYLE)?;
    save(folder, "book.js", SCRIPT)?;
    save(folder, SEARCH, search::index(&pages)?)?;
    for path in linked {
        copy(root, folder, &path)?;
    }
    println!("{} pages in {}", pages.len(), folder.display());
    Ok(())
}

/// Removes the book of an earlier run, and nothing else.
fn empty(folder: &Path) -> anyhow::Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    if !folder.join(SEARCH).is_file() {
        bail!("{} exists and is not a book; name another folder", folder.display());
    }
    fs::remove_dir_all(folder).with_context(|| format!("cannot empty {}", folder.display()))
}

/// Reads all pages, except for parts of generated pages.
fn read(root: &Path) -> anyhow::Result<Pages> {
    let texts = tree::read(root, |path| path.ends_with(".md") && !path.contains("/src/"))?;
    Ok(texts.into_iter().map(|(path, text)| (path, Page::render(&text))).collect())
}

/// Returns the files and folders that pages link to; fails if a link is broken.
fn check(root: &Path, pages: &Pages) -> anyhow::Result<BTreeSet<String>> {
    let (linked, broken) = links::check(pages, |path| fs::metadata(root.join(path)).ok().map(|found| found.is_dir()));
    if !broken.is_empty() {
        bail!("broken links:\n{}", broken.join("\n"));
    }
    Ok(linked)
}

fn save(folder: &Path, path: &str, content: impl AsRef<[u8]>) -> anyhow::Result<()> {
    let path = folder.join(path);
    let parent = path.parent().unwrap_or(folder);
    fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))
}

/// Copies a file that a page links to. Of a folder, the book has a list of its files.
fn copy(root: &Path, folder: &Path, path: &str) -> anyhow::Result<()> {
    let source = root.join(path);
    if source.is_file() {
        return save(folder, path, fs::read(&source)?);
    }
    let mut names = Vec::new();
    for entry in fs::read_dir(&source)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        names.push(if entry.file_type()?.is_dir() { format!("{name}/") } else { name });
    }
    names.sort_unstable();
    save(folder, &format!("{path}/index.html"), listing(path, &names))?;
    for name in names {
        match name.strip_suffix('/') {
            Some(below) => copy(root, folder, &format!("{path}/{below}"))?,
            None if name.ends_with(".md") => {}
            None => save(folder, &format!("{path}/{name}"), fs::read(source.join(&name))?)?,
        }
    }
    Ok(())
}

fn listing(path: &str, names: &[String]) -> String {
    let item = |name: &String| {
        let target = if name.ends_with('/') { format!("{name}index.html") } else { html_path(name) };
        format!("<li><a href=\"{target}\">{name}</a></li>\n")
    };
    let items: String = names.iter().map(item).collect();
    let up = "../".repeat(path.split('/').count());
    format!(
        "<!doctype html>\n<meta charset=\"utf-8\">\n<title>{path}</title>\n<link rel=\"stylesheet\" href=\"{up}book.css\">\n\
         <main><h1>{path}</h1>\n<ul>\n{items}</ul></main>\n"
    )
}

fn redirect(target: &str) -> String {
    format!(
        "<!doctype html>\n<meta http-equiv=\"refresh\" content=\"0; url={target}\">\n<a href=\"{target}\">Bowline</a>\n"
    )
}

/// Path of a page in the book.
fn html_path(path: &str) -> String {
    path.strip_suffix(".md").map_or_else(|| path.to_owned(), |stem| format!("{stem}.html"))
}

/// A complete HTML page. All paths are relative, so that the book works from a file system.
fn layout(path: &str, page: &Page, pages: &Pages) -> String {
    let up = "../".repeat(path.matches('/').count());
    let title = page::escaped(&page.title);
    let navigation = navigation(path, &up, pages);
    let contents = contents(page);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title} · Bowline</title>\n\
         <link rel=\"stylesheet\" href=\"{up}book.css\">\n</head>\n<body data-root=\"{up}\">\n\
         <a class=\"skip\" href=\"#content\">Skip to the content</a>\n\
         <nav aria-label=\"Pages\">\n<input id=\"query\" type=\"search\" placeholder=\"Search (press /)\" aria-label=\"Search\">\n\
         <ol id=\"results\" aria-live=\"polite\"></ol>\n{navigation}</nav>\n\
         <main id=\"content\">\n{}</main>\n{contents}\
         <script src=\"{up}search.js\" defer></script>\n<script src=\"{up}book.js\" defer></script>\n</body>\n</html>\n",
        page.html
    )
}

/// The pages at the top, and the list of the index with links from the page at `path`.
fn navigation(path: &str, up: &str, pages: &Pages) -> String {
    let current = |target: &str| if target == path { " aria-current=\"page\"" } else { "" };
    let mut html = String::from("<ul>\n");
    for (target, title) in TOP.iter().filter(|(target, _)| pages.contains_key(*target)) {
        let (target, current) = (html_path(target), current(target));
        html.push_str(&format!("<li><a href=\"{up}{target}\"{current}>{title}</a></li>\n"));
    }
    html.push_str("</ul>\n");
    let index = pages.get(INDEX).map_or("", |index| index.html.as_str());
    // The heading of the index is among the pages above.
    let list = index.split_once("</h1>").map_or(index, |(_, list)| list);
    let here = format!("href=\"{up}{}\"", html_path(path));
    let list = list.replace("href=\"../", "href=\"\0").replace("href=\"", &format!("href=\"{up}docs/"));
    let list = list.replace(&format!("href=\"{up}docs/\0"), &format!("href=\"{up}"));
    html.push_str(&list.replace(&here, &format!("{here} aria-current=\"page\"")));
    html
}

/// Headings of the second level, beside the page.
fn contents(page: &Page) -> String {
    let items =
        page.sections.iter().filter(|section| section.level == 2).map(|section| {
            format!("<li><a href=\"#{}\">{}</a></li>\n", section.anchor, page::escaped(&section.heading))
        });
    let items: String = items.collect();
    if items.is_empty() {
        return String::new();
    }
    format!("<aside aria-label=\"On this page\"><ul>\n{items}</ul></aside>\n")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
