//! Reference page of an annotation table.

use super::table::{Annotation, Declared, Table};

/// Returns the Markdown page with all annotations.
pub(super) fn page(table: &Table) -> String {
    let rows: String = table.all.iter().map(|declared| row(*declared)).collect();
    let sections: String = table.rows().map(section).collect();
    format!("{}\n| annotation | value | default |\n|---|---|---|\n{rows}{sections}", table.head)
}

fn row(declared: &dyn Declared) -> String {
    let Annotation { key, default, .. } = declared.row();
    format!("| [`{key}`](#{}) | {} | {default} |\n", anchor(key), declared.form())
}

fn section(annotation: Annotation<()>) -> String {
    let Annotation { key, aliases, example, doc, .. } = annotation;
    let aliases: String = aliases.iter().map(|alias| format!(" `{alias}` is an alias.")).collect();
    format!("\n## `{key}`\n\n{doc}{aliases}\n\n```yaml\nmetadata:\n  annotations:\n    {key}: \"{example}\"\n```\n")
}

/// Returns the anchor of a heading: lower case, without punctuation.
fn anchor(key: &str) -> String {
    let kept = |letter: &char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
    key.chars().filter(kept).map(|letter| letter.to_ascii_lowercase()).collect()
}
