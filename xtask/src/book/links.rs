//! Links between pages, to files of the repository and to headings.

use std::collections::BTreeSet;

use super::{Pages, page};

/// Returns the files and folders that pages link to, and a message for each broken link. `is_folder` is `None` for a path that does
/// not exist.
pub(super) fn check(pages: &Pages, is_folder: impl Fn(&str) -> Option<bool>) -> (BTreeSet<String>, Vec<String>) {
    let (mut linked, mut broken) = (BTreeSet::new(), Vec::new());
    for (path, source) in pages {
        for link in source.links.iter().filter(|link| !page::is_external(link)) {
            let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if target.is_empty() { Some(path.clone()) } else { resolved(path, target) };
            let Some(target) = target else {
                broken.push(format!("{path}: {link} leads out of the repository"));
                continue;
            };
            match pages.get(&target) {
                Some(found) if anchor.is_empty() || found.has_anchor(anchor) => {}
                Some(_) => broken.push(format!("{path}: {link}: {target} has no heading with this anchor")),
                None if is_folder(&target) == Some(link.ends_with('/')) => drop(linked.insert(target)),
                None if is_folder(&target).is_some() => {
                    broken.push(format!("{path}: {link}: a link to a folder, and only such a link, ends with /"));
                }
                None => broken.push(format!("{path}: {link}: there is no {target}")),
            }
        }
    }
    (linked, broken)
}

/// Path from the root of a link on the page `path`; `None` if it is outside.
fn resolved(path: &str, link: &str) -> Option<String> {
    let mut parts: Vec<_> = path.split('/').collect();
    parts.pop();
    for part in link.split('/').filter(|part| !matches!(*part, "" | ".")) {
        match part {
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}
