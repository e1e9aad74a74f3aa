//! The list of generated files. A new one is one more line in [`all`].

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::{cli_reference, pictures};

/// A file that is made from the code.
struct Generated {
    /// Its place below the root of the workspace.
    path: String,
    text: String,
}

fn all() -> anyhow::Result<Vec<Generated>> {
    let pages = [
        ("docs/reference/cli.md", cli_reference::page(bowline::cli())),
        ("docs/reference/apiserver-resources.md", bowline_apiserver::resource_reference()),
        ("docs/reference/metrics.md", bowline::metric_reference()),
        ("docs/reference/console-document.md", bowline_console::reference()),
        ("docs/reference/annotations.md", bowline_core::annotations::COMMON.reference()),
    ];
    let pages = pages.into_iter().map(|(path, text)| (path.to_owned(), text));
    let files = pages.chain(bowline::generated_files()).chain(pictures::all(&root())?);
    Ok(files.map(|(path, text)| Generated { path, text }).collect())
}

/// Writes every file.
pub(crate) fn write() -> anyhow::Result<()> {
    for file in all()? {
        let path = root().join(file.path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        fs::write(&path, file.text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Fails, naming every file that differs from what [`write()`] would write.
pub(crate) fn check() -> anyhow::Result<()> {
    let stale: Vec<_> = all()?.into_iter().filter(is_stale).map(|file| file.path).collect();
    if !stale.is_empty() {
        bail!("out of date: {}; run `cargo xtask generate` and commit what it writes", stale.join(", "));
    }
    Ok(())
}

fn is_stale(file: &Generated) -> bool {
    fs::read_to_string(root().join(&file.path)).map_or(true, |text| text != file.text)
}

/// The workspace, wherever the command was started from.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}
