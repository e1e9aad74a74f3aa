//! README of the chart: a table of the values, from the comments of `values.yaml`.
//!
//! A value's meaning is the comment above it. A map is a row of its own if it has a comment or is empty.

use std::fmt::Write as _;

/// A value: its path, default, and meaning.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) path: String,
    pub(super) default: String,
    pub(super) meaning: String,
}

/// Renders the rows as lines of a Markdown table.
pub(super) fn table(values: &str) -> String {
    let mut table = String::new();
    for Row { path, default, meaning } in rows(values) {
        let default = if default.is_empty() { default } else { format!("`{default}`") };
        // Writing to a `String` cannot fail.
        let _ = writeln!(table, "| `{path}` | {default} | {} |", meaning.replace('|', "\\|"));
    }
    table
}

/// Parses `values.yaml`, which has maps of two blanks per level, scalars, and lists of maps.
pub(super) fn rows(values: &str) -> Vec<Row> {
    let (mut rows, mut path, mut comment) = (Vec::new(), Vec::<&str>::new(), Vec::<&str>::new());
    // Depth of the list that is being skipped: it is in values.yaml, and belongs to the row of its map.
    let mut list = usize::MAX;
    for line in values.lines() {
        let text = line.trim_start();
        let depth = (line.len() - text.len()) / 2;
        list = if text.starts_with("- ") {
            depth
        } else if depth > list {
            list
        } else {
            usize::MAX
        };
        if list != usize::MAX {
            continue;
        }
        if let Some(more) = text.strip_prefix('#') {
            comment.push(more.trim());
        } else if let Some((key, value)) = text.split_once(':') {
            path.truncate(depth);
            path.push(key);
            let (meaning, default) = (comment.join(" "), value.trim());
            comment.clear();
            if !(meaning.is_empty() && default.is_empty()) {
                rows.push(Row { path: joined(&path), default: default.to_owned(), meaning });
            }
        }
    }
    rows
}

/// Joins keys as `--set` expects them: dots within a key are escaped.
fn joined(path: &[&str]) -> String {
    path.iter().map(|key| key.replace('.', "\\.")).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_is_a_row_with_its_comment() {
        let values = "# Text,\n# in two lines.\na: x\n\n# A map.\nb:\n  # Inner.\n  c.d/e: 1\n  f: []\ng:\n  - name: n\n    key: k\n";
        let row = |path: &str, default: &str, meaning: &str| Row {
            path: path.into(),
            default: default.into(),
            meaning: meaning.into(),
        };
        let expected = [
            row("a", "x", "Text, in two lines."),
            row("b", "", "A map."),
            row("b.c\\.d/e", "1", "Inner."),
            row("b.f", "[]", ""),
        ];
        assert_eq!(rows(values), expected);
    }
}
