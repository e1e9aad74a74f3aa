//! `--config` and `/configz`: the settings of the manager as one document.

use std::path::Path;

use bowline_config::Problems;

/// The flags that a file sets, with their values.
pub(crate) fn read(_path: &Path) -> Result<Vec<(&'static str, String)>, Problems> {
    Ok(Vec::new())
}
