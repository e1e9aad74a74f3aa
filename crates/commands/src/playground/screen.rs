//! The live lines at the bottom of the terminal, below text that stays.
//!
//! Pure: it returns the bytes to write.

/// Erases the screen.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Remembers the live lines, to replace them.
#[derive(Debug, Default)]
pub(super) struct Screen {
    live: Vec<String>,
    in_place: bool,
}

impl Screen {
    /// Creates a screen without live lines. Without `in_place` nothing is replaced, and new live lines are appended.
    pub(super) fn new(in_place: bool) -> Screen {
        Screen { live: Vec::new(), in_place }
    }

    /// Returns the bytes that print `text` above the live lines, and replace these. Empty if nothing changes.
    pub(super) fn update(&mut self, text: &str, live: Vec<String>) -> String {
        if text.is_empty() && live == self.live {
            return String::new();
        }
        let bytes = match self.in_place {
            true => format!("{}{text}{}", self.erase(), live.join("\n")),
            false => {
                let new = live.iter().filter(|line| !self.live.contains(line));
                new.fold(text.to_owned(), |text, line| text + line + "\n")
            }
        };
        self.live = live;
        bytes
    }

    /// Returns the bytes that erase everything, for a terminal whose size changed: it may have wrapped the lines again.
    pub(super) fn restart(&mut self) -> &'static str {
        self.live.clear();
        if self.in_place { CLEAR } else { "" }
    }

    /// Returns the bytes that erase the live lines. The cursor is at the end of the last one.
    fn erase(&self) -> String {
        match self.live.len() {
            0 => String::new(),
            1 => "\r\x1b[J".to_owned(),
            lines => format!("\r\x1b[{}A\x1b[J", lines - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|line| (*line).to_owned()).collect()
    }

    #[test]
    fn live_lines_are_replaced_below_text_that_stays() {
        let mut screen = Screen::new(true);
        assert_eq!(screen.update("title\n", lines(&["a", "b", "c"])), "title\na\nb\nc");
        assert_eq!(screen.update("", lines(&["a", "b", "c"])), "");
        assert_eq!(screen.update("", lines(&["a", "d"])), "\r\x1b[2A\x1b[Ja\nd");
        assert_eq!(screen.update("stays\n", lines(&["e"])), "\r\x1b[1A\x1b[Jstays\ne");
        assert_eq!(screen.update("end\n", lines(&[])), "\r\x1b[Jend\n");
        assert_eq!(screen.update("", lines(&["f"])), "f");
        assert_eq!(screen.restart(), "\x1b[H\x1b[2J");
        assert_eq!(screen.update("title\n", lines(&["f"])), "title\nf");
    }

    #[test]
    fn without_cursor_movement_new_lines_are_appended() {
        let mut screen = Screen::new(false);
        assert_eq!(screen.update("title\n", lines(&["a", "b"])), "title\na\nb\n");
        assert_eq!(screen.update("", lines(&["a", "b"])), "");
        assert_eq!(screen.update("", lines(&["b", "c"])), "c\n");
        assert_eq!(screen.restart(), "");
    }
}
