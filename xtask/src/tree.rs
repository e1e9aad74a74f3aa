//! The text files of the workspace.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;

/// Texts of the workspace by path from its root, with slashes.
pub(crate) type Tree = BTreeMap<String, String>;

/// Reads the files below `root` whose paths are `wanted`, without build results and Git's own files.
pub(crate) fn read(root: &Path, wanted: fn(&str) -> bool) -> anyhow::Result<Tree> {
    let mut tree = Tree::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            let name = path.strip_prefix(root)?.to_string_lossy().replace('\\', "/");
            if path.is_dir() && !matches!(name.as_str(), "target" | ".git") {
                folders.push(path);
            } else if path.is_file() && wanted(&name) {
                // A file that is not UTF-8 is no text.
                tree.extend(std::fs::read_to_string(&path).ok().map(|text| (name, text)));
            }
        }
    }
    Ok(tree)
}
