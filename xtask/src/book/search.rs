//! The index that `book.js` searches: one entry for each section.

use serde_json::json;

use super::{Pages, html_path};

/// Returns a script that sets the index. A script, unlike a request for JSON, works from a file system.
pub(super) fn index(pages: &Pages) -> anyhow::Result<String> {
    let mut entries = Vec::new();
    for (path, page) in pages {
        for section in &page.sections {
            let link = format!("{}#{}", html_path(path), section.anchor);
            let text = section.text.split_whitespace().collect::<Vec<_>>().join(" ");
            entries.push(json!([link, page.title, section.heading, text]));
        }
    }
    Ok(format!("const INDEX = {};\n", serde_json::to_string(&entries)?))
}
