//! The page of reference, from the declaration.

use super::declared::{Key, Kind, Section};

/// A table for each section that has keys, in Markdown.
pub fn reference(sections: &[Section]) -> String {
    sections.iter().filter(|section| !section.keys.is_empty()).map(table).collect()
}

fn table(section: &Section) -> String {
    let head = if section.named { format!("[{} \"name\"]", section.name) } else { format!("[{}]", section.name) };
    let rows: String = section.keys.iter().map(row).collect();
    let meaning = section.meaning;
    format!("\n## `{head}`\n\n{meaning}\n\n| key | type | default | meaning |\n|---|---|---|---|\n{rows}")
}

fn row(key: &Key) -> String {
    let default = if key.default.is_empty() { String::new() } else { format!("`{}`", key.default) };
    let cells = [format!("`{}`", key.name), kind(key.kind).to_owned(), default, key.meaning.to_owned()];
    format!("| {} |\n", cells.map(|cell| cell.replace('|', "\\|")).join(" | "))
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Text => "text",
        Kind::Secret => "text, never printed",
        Kind::Bool => "bool",
        Kind::Integer => "integer",
        Kind::Unsigned => "integer, not negative",
        Kind::Duration => "duration",
        Kind::List => "text, may be repeated",
    }
}
