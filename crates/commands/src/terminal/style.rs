//! Style of text on a terminal: its size, colours and characters.

use super::Terminal;

/// Maximum width of text, which is hard to read in longer lines.
const MAX_COLUMNS: usize = 100;

/// Width of a terminal that is too narrow for the pages, or does not report its size.
const MIN_COLUMNS: usize = 20;

/// Properties of the terminal that affect how a page is rendered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Style {
    /// Width.
    pub(crate) columns: usize,
    /// Height.
    pub(crate) rows: usize,
    /// Colours and bold text are supported.
    pub(crate) colours: bool,
    /// Lines can be replaced: the cursor can be moved.
    pub(crate) in_place: bool,
    /// Characters that are not in ASCII are supported.
    pub(crate) unicode: bool,
}

/// Role of a text, which determines its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Title of a step.
    Title,
    /// A check that holds.
    Passed,
    /// A failure.
    Failed,
    /// A warning.
    #[cfg(feature = "console")]
    Warning,
    /// The selected row.
    #[cfg(feature = "console")]
    Selected,
    /// Secondary information.
    Secondary,
    /// A command to paste.
    Command,
}

impl Style {
    /// Returns the style of the terminal of this process.
    pub(crate) fn of_terminal() -> Style {
        Style::new(Terminal::size(), |name| std::env::var(name).ok())
    }

    /// Returns the style of a terminal of this size, given the environment variables.
    pub(crate) fn new((columns, rows): (usize, usize), variable: impl Fn(&str) -> Option<String>) -> Style {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let is_dumb = variable("TERM").is_none_or(|terminal| terminal == "dumb");
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(|name| variable(name)).unwrap_or_default();
        let locale = locale.to_ascii_lowercase();
        Style {
            columns: columns.max(MIN_COLUMNS),
            rows,
            colours: !is_dumb && variable("NO_COLOR").is_none(),
            in_place: !is_dumb,
            unicode: locale.contains("utf-8") || locale.contains("utf8"),
        }
    }

    /// Returns the text in the colour of its role.
    pub(crate) fn paint(self, role: Role, text: &str) -> String {
        let code = match role {
            Role::Title => "1",
            Role::Passed => "32",
            Role::Failed => "31",
            #[cfg(feature = "console")]
            Role::Warning => "33",
            #[cfg(feature = "console")]
            Role::Selected => "7",
            Role::Secondary => "2",
            Role::Command => "36",
        };
        if self.colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Returns the text in lines that are at most as wide as the terminal, each with this indentation. Words are not broken.
    pub(crate) fn wrap(self, text: &str, indent: usize) -> Vec<String> {
        let width = self.columns.min(MAX_COLUMNS).saturating_sub(indent);
        let mut lines: Vec<String> = Vec::new();
        for word in text.split_whitespace() {
            match lines.last_mut() {
                Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                    line.push(' ');
                    line.push_str(word);
                }
                _ => lines.push(word.to_owned()),
            }
        }
        lines.iter().map(|line| format!("{:indent$}{line}", "")).collect()
    }

    /// Returns the text on one line, cut so that `used` more columns fit, without control characters.
    pub(crate) fn cut(self, text: &str, used: usize) -> String {
        // The last column stays free: some terminals wrap as soon as it is used.
        let width = self.columns.saturating_sub(used + 1);
        let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        if text.chars().count() <= width {
            return text;
        }
        text.chars().take(width.saturating_sub(3)).chain("...".chars()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn style(variables: &[(&str, &str)]) -> Style {
        Style::new((80, 24), |name| {
            variables.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_environment_determines_colours_and_characters() {
        let xterm = ("TERM", "xterm-256color");
        let cases = [
            (&[xterm, ("LANG", "C.UTF-8")][..], [true, true, true]),
            (&[xterm, ("LANG", "de_DE.utf8"), ("LC_ALL", "C")], [true, true, false]),
            (&[xterm, ("NO_COLOR", "1")], [false, true, false]),
            (&[xterm, ("NO_COLOR", "")], [true, true, false]),
            (&[("TERM", "dumb")], [false, false, false]),
            (&[], [false, false, false]),
        ];
        for (variables, expected) in cases {
            let style = style(variables);
            assert_eq!([style.colours, style.in_place, style.unicode], expected, "{variables:?}");
        }
    }

    #[test]
    fn text_has_colours_only_if_they_are_supported() {
        let (colours, plain) = (style(&[("TERM", "xterm")]), style(&[]));
        assert_eq!(colours.paint(Role::Command, "ls"), "\x1b[36mls\x1b[0m");
        assert_eq!(plain.paint(Role::Command, "ls"), "ls");
    }

    #[test]
    fn text_is_wrapped_between_words() {
        let narrow = Style { columns: 20, ..style(&[]) };
        assert_eq!(
            narrow.wrap("The machine m-3 is\nstopped: 0123456789012345678901", 2),
            ["  The machine m-3 is", "  stopped:", "  0123456789012345678901"]
        );
    }

    #[test]
    fn a_line_is_cut_before_the_last_column() {
        let narrow = Style { columns: 20, ..style(&[]) };
        assert_eq!(narrow.cut("0123456789012345", 3), "0123456789012345");
        assert_eq!(narrow.cut("01234567890123456", 3), "0123456789012...");
        assert_eq!(narrow.cut("a\tb\x1b[2J", 0), "a b [2J");
    }
}
