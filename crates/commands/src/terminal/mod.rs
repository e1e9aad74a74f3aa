//! The terminal: its modes, its size, keys and signals.
//!
//! Bytes of keys arrive one by one and are not echoed. Ctrl-C and Ctrl-Z still send signals.

#[cfg(feature = "console")]
pub(crate) mod key;
pub(crate) mod style;

use std::io::{self, IsTerminal as _, Read as _};

use nix::sys::signal::{Signal as Number, raise};
use nix::sys::termios::{LocalFlags, SetArg, SpecialCharacterIndices, Termios, tcgetattr, tcsetattr};
use nix::unistd::{getpgrp, tcgetpgrp};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use crate::output::say;

/// Size of a terminal that does not report its size.
const DEFAULT_SIZE: (usize, usize) = (80, 24);

/// A byte of a key, or an event of the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Input {
    /// A key, or a part of one: keys such as the arrows send several bytes.
    Byte(u8),
    /// The terminal is gone.
    Closed,
    /// The contents of the screen may have to be printed again: the size has changed, or the process was stopped and continued.
    Redraw,
}

/// The terminal without line editing and echo; dropping it restores the former modes.
pub(crate) struct Terminal {
    former: Termios,
    /// Bytes that enter and leave the mode of the program, such as the alternate screen.
    modes: Option<(&'static str, &'static str)>,
    keys: mpsc::UnboundedReceiver<u8>,
    resized: Signal,
    stopped: Signal,
    hung_up: Signal,
}

impl Terminal {
    /// Returns whether a person can use keys: standard input and output are terminals, and the process is in the foreground.
    pub(crate) fn is_interactive() -> bool {
        io::stdin().is_terminal() && io::stdout().is_terminal() && is_in_foreground()
    }

    /// Sets the modes. Must be called in a Tokio runtime.
    pub(crate) fn open() -> io::Result<Terminal> {
        let former = tcgetattr(io::stdin())?;
        let terminal = Terminal {
            former,
            modes: None,
            keys: read_keys()?,
            resized: signal(SignalKind::window_change())?,
            stopped: signal(SignalKind::from_raw(Number::SIGTSTP as i32))?,
            hung_up: signal(SignalKind::hangup())?,
        };
        terminal.set_modes()?;
        Ok(terminal)
    }

    /// Sends bytes that change the mode of the terminal, and sends the second ones when it is restored.
    #[cfg(feature = "console")]
    pub(crate) fn with_modes(mut self, enter: &'static str, leave: &'static str) -> Terminal {
        self.modes = Some((enter, leave));
        say(format_args!("{enter}"));
        self
    }

    /// Returns the number of columns and rows.
    pub(crate) fn size() -> (usize, usize) {
        let size = terminal_size::terminal_size_of(io::stdout());
        let size = size.map(|(width, height)| (usize::from(width.0), usize::from(height.0)));
        size.filter(|(columns, rows)| *columns > 0 && *rows > 0).unwrap_or(DEFAULT_SIZE)
    }

    /// Waits for the next input. No input is lost if the future is dropped.
    pub(crate) async fn next(&mut self) -> Input {
        tokio::select! {
            key = self.keys.recv() => key.map_or(Input::Closed, Input::Byte),
            Some(()) = self.resized.recv() => Input::Redraw,
            Some(()) = self.hung_up.recv() => Input::Closed,
            Some(()) = self.stopped.recv() => {
                self.suspend();
                Input::Redraw
            }
        }
    }

    fn set_modes(&self) -> io::Result<()> {
        let mut modes = self.former.clone();
        modes.local_flags.remove(LocalFlags::ECHO | LocalFlags::ICANON);
        let values = [(SpecialCharacterIndices::VMIN, 1), (SpecialCharacterIndices::VTIME, 0)];
        for (index, value) in values {
            if let Some(character) = modes.control_chars.get_mut(index as usize) {
                *character = value;
            }
        }
        Ok(tcsetattr(io::stdin(), SetArg::TCSADRAIN, &modes)?)
    }

    /// Restores the former modes, and discards unread keys.
    fn restore(&self) {
        // In the background this would stop the process; the shell has restored its modes already.
        if is_in_foreground() {
            if let Some((_, leave)) = self.modes {
                say(format_args!("{leave}"));
            }
            // A terminal that is gone has no modes.
            let _ = tcsetattr(io::stdin(), SetArg::TCSAFLUSH, &self.former);
        }
    }

    /// Stops the process until the shell continues it.
    fn suspend(&self) {
        self.restore();
        let _ = raise(Number::SIGSTOP);
        let _ = self.set_modes();
        if let Some((enter, _)) = self.modes {
            say(format_args!("{enter}"));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.restore();
    }
}

fn is_in_foreground() -> bool {
    tcgetpgrp(io::stdin()).is_ok_and(|group| group == getpgrp())
}

/// Reads keys in a thread, which ends with the process: reading a terminal cannot be cancelled.
fn read_keys() -> io::Result<mpsc::UnboundedReceiver<u8>> {
    let (sender, keys) = mpsc::unbounded_channel();
    let read = move || {
        let mut input = io::stdin();
        let mut key = [0];
        while matches!(input.read(&mut key), Ok(1)) && key.iter().all(|key| sender.send(*key).is_ok()) {}
    };
    std::thread::Builder::new().name("keys".to_owned()).spawn(read)?;
    Ok(keys)
}
