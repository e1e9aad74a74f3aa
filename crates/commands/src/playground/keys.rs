//! Keys of the tour.

use crate::terminal::{Input, Terminal};

/// What the user wants, or an event of the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    /// Go on.
    Enter,
    /// Show the log, or hide it.
    Log,
    /// Skip a failed step.
    Skip,
    /// End the playground.
    Quit,
    /// The contents of the screen may have to be printed again.
    Redraw,
}

/// Waits for the next key that has a meaning. None is lost if the future is dropped.
pub(super) async fn next(terminal: &mut Terminal) -> Key {
    loop {
        match terminal.next().await {
            Input::Byte(b'\n' | b'\r' | b' ') => return Key::Enter,
            Input::Byte(b'l' | b'L') => return Key::Log,
            Input::Byte(b's' | b'S') => return Key::Skip,
            // 4 is Ctrl-D. Without a terminal there are no more keys.
            Input::Byte(b'q' | b'Q' | 4) | Input::Closed => return Key::Quit,
            Input::Redraw => return Key::Redraw,
            Input::Byte(_) => {}
        }
    }
}
