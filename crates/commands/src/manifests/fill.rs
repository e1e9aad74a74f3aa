//! Templates with placeholders: `@name@`.
//!
//! A placeholder within a line is replaced by text. A placeholder on its own line is replaced by any number of lines with the same
//! indentation; with none, the line is removed. A value may itself be a template expression, as in a Helm chart.

use std::collections::BTreeMap;

/// Values of placeholders.
#[derive(Debug, Clone, Default)]
pub(super) struct Fillings(BTreeMap<&'static str, Vec<String>>);

impl Fillings {
    /// Sets the value of a placeholder, which may have several lines.
    pub(super) fn with(mut self, placeholder: &'static str, text: impl AsRef<str>) -> Fillings {
        self.0.insert(placeholder, text.as_ref().lines().map(str::to_owned).collect());
        self
    }

    /// Replaces all placeholders of a template. A placeholder without a value is removed.
    pub(super) fn fill(&self, template: &str) -> String {
        let mut filled = String::new();
        for line in template.lines() {
            for line in self.lines(line) {
                filled.push_str(&line);
                filled.push('\n');
            }
        }
        filled
    }

    fn lines(&self, line: &str) -> Vec<String> {
        let bare = line.trim_start();
        let indent = line.strip_suffix(bare).unwrap_or_default();
        match bare.strip_prefix('@').and_then(|rest| rest.strip_suffix('@')).filter(|name| !name.contains('@')) {
            Some(name) => self.texts(name).iter().map(|text| indented(text, indent)).collect(),
            None => vec![self.inline(line)],
        }
    }

    fn inline(&self, line: &str) -> String {
        let mut pieces = line.split('@');
        let mut filled = pieces.next().unwrap_or_default().to_owned();
        while let Some(name) = pieces.next() {
            filled.push_str(&self.texts(name).join(" "));
            filled.push_str(pieces.next().unwrap_or_default());
        }
        filled
    }

    fn texts(&self, placeholder: &str) -> &[String] {
        self.0.get(placeholder).map_or(&[], Vec::as_slice)
    }
}

/// Indents a line; an empty line stays empty.
fn indented(line: &str, indent: &str) -> String {
    if line.is_empty() { String::new() } else { format!("{indent}{line}") }
}

/// Formats a text as a YAML scalar.
pub(super) fn scalar(text: &str) -> String {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "/._:-=".contains(character);
    let has_plain_start = text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '/')
        || text.strip_prefix("--").is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_alphabetic()));
    let is_string =
        !["true", "false", "null", "yes", "no", "on", "off", "y", "n"].contains(&text.to_ascii_lowercase().as_str());
    let is_safe = has_plain_start && is_string && text.chars().all(is_plain) && !text.ends_with(':');
    if is_safe { text.to_owned() } else { quoted(text) }
}

/// Quotes as JSON, which YAML can read, and escapes the characters that YAML treats as line breaks or rejects.
fn quoted(text: &str) -> String {
    let json = serde_json::Value::from(text).to_string();
    let written = json.chars().map(|character| match is_printable(character) {
        true => character.to_string(),
        false => format!("\\u{:04x}", u32::from(character)),
    });
    written.collect()
}

/// Whether YAML allows the character unescaped.
fn is_printable(character: char) -> bool {
    !character.is_control() && !matches!(character, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// Formats a multi-line text as the value of a key.
pub(super) fn block(key: &str, text: &str) -> String {
    let is_plain = |character: char| character == '\n' || is_printable(character);
    let is_block_safe = text.ends_with('\n') && !text.ends_with("\n\n") && text.chars().all(is_plain);
    if !is_block_safe || text.starts_with([' ', '\n']) {
        return format!("{}: {}", scalar(key), quoted(text));
    }
    let lines: Vec<String> = text.lines().map(|line| indented(line, "  ")).collect();
    format!("{}: |\n{}", scalar(key), lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_on_its_own_line_is_replaced_by_lines_or_removed() {
        let fillings = Fillings::default().with("name", "x").with("args", "- a\n- b");
        let filled = fillings.fill("kind: @name@s\nargs:\n  @args@\n  @none@\nend: 1\n");
        assert_eq!(filled, "kind: xs\nargs:\n  - a\n  - b\nend: 1\n");
    }

    #[test]
    fn scalars_are_parsed_back_to_the_same_text() {
        let cases = [
            ("kube-system", "kube-system"),
            ("--v=5", "--v=5"),
            ("true", "\"true\""),
            ("1", "\"1\""),
            ("", "\"\""),
            ("a: b", "\"a: b\""),
            ("--controllers=*,-route", "\"--controllers=*,-route\""),
            ("--", "\"--\""),
            ("yes", "\"yes\""),
            ("No", "\"No\""),
            ("1e3", "\"1e3\""),
            ("0755", "\"0755\""),
            ("12:30:45", "\"12:30:45\""),
            ("~", "\"~\""),
            (".inf", "\".inf\""),
            ("a #b", "\"a #b\""),
            ("a:", "\"a:\""),
            ("- a", "\"- a\""),
            ("*a", "\"*a\""),
            ("{{ .Values }}", "\"{{ .Values }}\""),
            ("Zürich \u{1f6a2}", "\"Zürich \u{1f6a2}\""),
            ("a\u{2028}b\u{85}c\u{7f}", "\"a\\u2028b\\u0085c\\u007f\""),
            ("a\tb\nc\"d\\", "\"a\\tb\\nc\\\"d\\\\\""),
        ];
        for (text, written) in cases {
            assert_eq!(scalar(text), written);
            assert_eq!(serde_saphyr::from_str::<serde_json::Value>(&scalar(text)).unwrap(), text);
        }
    }

    #[test]
    fn a_file_is_a_block_scalar_if_it_can_be_parsed_back() {
        assert_eq!(block("a.yaml", "x: 1\n\ny: 2\n"), "a.yaml: |\n  x: 1\n\n  y: 2");
        assert_eq!(block("a.yaml", " x"), "a.yaml: \" x\"");
        assert_eq!(block("a.yaml", "x\u{2028}\n"), "a.yaml: \"x\\u2028\\n\"");
        assert_eq!(block("a.yaml", "x\n\n"), "a.yaml: \"x\\n\\n\"");
    }
}
