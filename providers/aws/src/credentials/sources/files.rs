//! Small files, read without blocking the thread.

use std::io;
use std::path::PathBuf;

use bowline_cloud::{Error, ErrorKind, Result, Retry};

use super::super::{OPERATION, invalid};

/// Maximum size of a file: tokens and profiles are much smaller.
const MAX_SIZE: usize = 1 << 20;

/// Reads a file; `None` if it does not exist.
pub(crate) async fn read_if_exists(path: PathBuf) -> Result<Option<String>> {
    let shown = path.display().to_string();
    let read = tokio::task::spawn_blocking(move || std::fs::read_to_string(path)).await;
    match read {
        Ok(Ok(text)) if text.len() > MAX_SIZE => Err(invalid(format!("{shown} is larger than 1 MiB"))),
        Ok(Ok(text)) => Ok(Some(text)),
        Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Ok(Err(error)) => Err(invalid(format!("cannot read {shown}: {error}"))),
        Err(error) => {
            let message = format!("reading {shown} was interrupted: {error}");
            Err(Error::new(ErrorKind::Unavailable, OPERATION, message).retry(Retry::Backoff))
        }
    }
}

/// Reads a token, which must exist and have one line; `variable` is the setting that names the file.
pub(crate) async fn read_token(path: &str, variable: &str) -> Result<String> {
    let missing = || invalid(format!("the file {path} of {variable} does not exist; check the volumes of the Pod"));
    let text = read_if_exists(path.into()).await?.ok_or_else(missing)?;
    let token = text.trim();
    match token.is_empty() || token.contains(['\r', '\n']) {
        true => Err(invalid(format!("the file {path} of {variable} does not contain one line with a token"))),
        false => Ok(token.to_owned()),
    }
}
