//! Standard output of the commands.

use std::io::{self, Write as _};

use crate::progress;

/// Writes the result of a command to standard output. A failed write is an error of the command, except a closed pipe.
pub(crate) fn print(text: std::fmt::Arguments<'_>) -> anyhow::Result<()> {
    match write(text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(anyhow::Error::new(error).context("cannot write to standard output"))
        }
        _ => Ok(()),
    }
}

/// Writes a status line to standard output and ignores errors: a closed pipe must not stop the server.
pub(crate) fn say(text: std::fmt::Arguments<'_>) {
    let _ = write(text);
}

fn write(text: std::fmt::Arguments<'_>) -> io::Result<()> {
    progress::above(|| {
        let mut out = io::stdout().lock();
        out.write_fmt(text).and_then(|()| out.flush())
    })
}
