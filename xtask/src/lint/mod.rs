//! `cargo xtask lint`: repository checks that read text only.
//!
//! * [`citations`]: every rule ID that is cited stands in `docs/reference/rules.md`, and the page has no other.
//! * [`words`]: comments, messages, names and pages use the field's terms, by the list in `xtask/words.txt`.

mod citations;
mod scan;
mod words;

use std::path::Path;

use anyhow::bail;

use crate::tree::{self, Tree};

/// Prints what is wrong with the workspace at `root`, and fails if anything is.
pub(crate) fn check(root: &Path) -> anyhow::Result<()> {
    let tree = tree::read(root, is_read)?;
    let mut findings = citations::check(&tree);
    findings.extend(words::check(&tree)?);
    for finding in &findings {
        eprintln!("{finding}");
    }
    if !findings.is_empty() {
        bail!("{} findings", findings.len());
    }
    Ok(())
}

fn is_read(path: &str) -> bool {
    path == ".ci/run" || [".rs", ".md", ".yaml", ".txt"].iter().any(|end| path.ends_with(end))
}

fn text<'a>(tree: &'a Tree, path: &str) -> &'a str {
    tree.get(path).map(String::as_str).unwrap_or_default()
}
