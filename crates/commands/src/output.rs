//! Standard output of the commands.

use std::io::{self, Write as _};

/// Writes what a command is for to standard output. If that cannot be, the command has failed; a reader that has seen enough
/// is no failure.
pub(crate) fn print(text: std::fmt::Arguments<'_>) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_fmt(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(anyhow::Error::new(error).context("cannot write to standard output"))
        }
        _ => Ok(()),
    }
}

/// Writes to standard output. A reader that went away is no reason to stop serving the others.
pub(crate) fn say(text: std::fmt::Arguments<'_>) {
    let mut out = io::stdout().lock();
    let _ = out.write_fmt(text).and_then(|()| out.flush());
}
