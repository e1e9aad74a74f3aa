//! Keys, from the bytes that a terminal sends for them.

use std::time::Duration;

use super::{Input, Terminal};

/// Time in which the bytes of one key arrive. Escape alone is a key, too.
const SEQUENCE_TIME: Duration = Duration::from_millis(50);

/// Maximum number of bytes of a sequence; the rest of a longer one would be read as keys.
const MAX_SEQUENCE: usize = 16;

const ESCAPE: u8 = 0x1b;

/// A key, or an event of the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    /// A character.
    Char(char),
    /// Return.
    Enter,
    /// Tab.
    Tab,
    /// Tab with shift.
    BackTab,
    /// Backspace.
    Backspace,
    /// Escape.
    Escape,
    /// Arrow up.
    Up,
    /// Arrow down.
    Down,
    /// Arrow left.
    Left,
    /// Arrow right.
    Right,
    /// Page up.
    PageUp,
    /// Page down.
    PageDown,
    /// Home.
    Home,
    /// End.
    End,
    /// The terminal is gone.
    Closed,
    /// The contents of the screen may have to be printed again.
    Redraw,
}

/// Reads keys from a terminal. No byte is lost if a future is dropped.
pub(crate) struct Keys {
    terminal: Terminal,
    /// Bytes of a key that is not complete.
    pending: Vec<u8>,
}

impl Keys {
    pub(crate) fn new(terminal: Terminal) -> Keys {
        Keys { terminal, pending: Vec::new() }
    }

    /// Waits for the next key.
    pub(crate) async fn next(&mut self) -> Key {
        loop {
            let input = match self.pending.as_slice() {
                [] => Some(self.terminal.next().await),
                _ => tokio::time::timeout(SEQUENCE_TIME, self.terminal.next()).await.ok(),
            };
            match input {
                Some(Input::Byte(byte)) => self.pending.push(byte),
                Some(Input::Closed) => return Key::Closed,
                Some(Input::Redraw) => return Key::Redraw,
                // No more bytes: the sequence is as complete as it gets.
                None => {
                    let pending = std::mem::take(&mut self.pending);
                    if pending == [ESCAPE] {
                        return Key::Escape;
                    }
                    continue;
                }
            }
            match decode(&self.pending) {
                Decoded::Incomplete if self.pending.len() < MAX_SEQUENCE => {}
                Decoded::Incomplete | Decoded::Unknown => self.pending.clear(),
                Decoded::Key(key) => {
                    self.pending.clear();
                    return key;
                }
            }
        }
    }
}

/// Result of decoding.
#[derive(Debug, PartialEq, Eq)]
enum Decoded {
    Key(Key),
    Incomplete,
    Unknown,
}

fn decode(bytes: &[u8]) -> Decoded {
    match bytes {
        [b'\r' | b'\n'] => Decoded::Key(Key::Enter),
        [b'\t'] => Decoded::Key(Key::Tab),
        [0x7f | 0x08] => Decoded::Key(Key::Backspace),
        // Ctrl-D; Ctrl-L is the usual key to draw the screen again.
        [4] => Decoded::Key(Key::Closed),
        [0x0c] => Decoded::Key(Key::Redraw),
        [ESCAPE] | [ESCAPE, b'[' | b'O'] => Decoded::Incomplete,
        [ESCAPE, b'[' | b'O', parameters @ .., last] => sequence(parameters, *last),
        [ESCAPE, _] => Decoded::Unknown,
        [first, ..] if *first < 0x20 => Decoded::Unknown,
        bytes => character(bytes),
    }
}

/// The sequences of common terminals; parameters of modifiers are ignored.
fn sequence(parameters: &[u8], last: u8) -> Decoded {
    let key = match (last, parameters) {
        (b'A', _) => Key::Up,
        (b'B', _) => Key::Down,
        (b'C', _) => Key::Right,
        (b'D', _) => Key::Left,
        (b'H', _) | (b'~', b"1" | b"7") => Key::Home,
        (b'F', _) | (b'~', b"4" | b"8") => Key::End,
        (b'~', b"5") => Key::PageUp,
        (b'~', b"6") => Key::PageDown,
        (b'Z', _) => Key::BackTab,
        (b'0'..=b'9' | b';' | b'?', _) => return Decoded::Incomplete,
        _ => return Decoded::Unknown,
    };
    Decoded::Key(key)
}

fn character(bytes: &[u8]) -> Decoded {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.chars().next().map_or(Decoded::Unknown, |c| Decoded::Key(Key::Char(c))),
        Err(error) if error.error_len().is_none() => Decoded::Incomplete,
        Err(_) => Decoded::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes byte by byte, as [`Keys::next`] does.
    fn keys(bytes: &[u8]) -> Vec<Key> {
        let (mut keys, mut pending) = (Vec::new(), Vec::new());
        for byte in bytes {
            pending.push(*byte);
            match decode(&pending) {
                Decoded::Incomplete => {}
                Decoded::Unknown => pending.clear(),
                Decoded::Key(key) => {
                    keys.push(key);
                    pending.clear();
                }
            }
        }
        keys
    }

    #[test]
    fn keys_are_decoded_from_the_sequences_of_common_terminals() {
        assert_eq!(keys(b"\x1b[A\x1b[B\x1bOC\x1bOD"), [Key::Up, Key::Down, Key::Right, Key::Left]);
        assert_eq!(keys(b"\x1b[1~\x1b[H\x1b[4~\x1bOF"), [Key::Home, Key::Home, Key::End, Key::End]);
        assert_eq!(
            keys(b"\x1b[5~\x1b[6~\x1b[Z\t\r\x7f"),
            [Key::PageUp, Key::PageDown, Key::BackTab, Key::Tab, Key::Enter, Key::Backspace]
        );
        assert_eq!(keys(b"\x1b[1;5A"), [Key::Up], "with a modifier");
        assert_eq!(keys("aß日".as_bytes()), [Key::Char('a'), Key::Char('ß'), Key::Char('日')]);
    }

    #[test]
    fn unknown_bytes_are_skipped_and_the_next_key_is_read() {
        assert_eq!(keys(b"\x1bx\x01\xff\x1b[200xq"), [Key::Char('q')]);
        assert_eq!(decode(b"\x1b"), Decoded::Incomplete, "Escape alone, or the start of a sequence");
    }
}
