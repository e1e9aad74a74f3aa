//! The live screen: keys and changes of the document, until the user quits.

use anyhow::Context as _;
use bowline_runtime::Shutdown;

use super::follow::Follower;
use super::screen::{Flow, Screen};
use crate::output::say;
use crate::terminal::Terminal;
use crate::terminal::key::Keys;
use crate::terminal::style::Style;

/// Enters the alternate screen, hides the cursor, and lets the terminal cut lines instead of wrapping them: the width of some characters
/// is known only to the terminal. The second text undoes all three.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

pub(super) async fn run(mut follower: Follower, shutdown: &Shutdown) -> anyhow::Result<()> {
    // Dropping the terminal restores it, on every way out of this function.
    let terminal = Terminal::open().context("cannot set the modes of the terminal; use --once")?;
    let mut keys = Keys::new(terminal.with_modes(ENTER, LEAVE));
    let (mut screen, mut changes) = (Screen::new(), follower.changes());
    loop {
        draw(&mut screen, &follower);
        tokio::select! {
            key = keys.next() => {
                if screen.key(key, &follower.view, Style::of_terminal().rows) == Flow::Quit {
                    return Ok(());
                }
            }
            Some(read) = changes.recv() => follower.apply(read),
            () = shutdown.requested() => return Ok(()),
        }
    }
}

fn draw(screen: &mut Screen, follower: &Follower) {
    let lines = screen.frame(&follower.view, follower.title(), follower.error.as_deref(), Style::of_terminal());
    // Each line erases the rest of the line before, so that the screen does not flicker.
    let frame: Vec<String> = lines.iter().map(|line| format!("{line}\x1b[K")).collect();
    say(format_args!("\x1b[H{}\x1b[J", frame.join("\r\n")));
}
