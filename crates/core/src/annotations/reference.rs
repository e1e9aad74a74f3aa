//! The reference page of the annotations.

use super::{Annotation, declarations};

const HEAD: &str = "\
# Annotations of Services

<!-- Made by `cargo xtask generate` from crates/core/src/annotations/declarations.rs; change that instead. -->

These mean the same with every provider. A provider's own annotation goes before ours where both say something.

- Spaces around a value do not count. An empty value is a mistake: leave the annotation out for the default.
- Words may be written in any case. `true` and `false` have the spellings that Go knows: `1`, `t`, `T`, `TRUE`, `true`, \
`True` and their opposites. Durations are those of Go: `300ms`, `1m30s`, `2h`.
- A value that makes no sense stops the balancer from being made or changed, and an Event names all such values at once. \
It does not stop the balancer from being removed, unless it is the one of `bowline.dev/policy`.
- What the cloud cannot do is refused in the same way, before it is asked for anything.
- A key with our prefix that is not in this list gets a warning Event with the nearest one that is.
";

/// The page with all annotations.
pub fn reference() -> String {
    let rows = declarations().iter().map(row);
    let table = format!("\n| annotation | value | default |\n|---|---|---|\n{}", rows.collect::<String>());
    HEAD.to_owned() + &table + &declarations().iter().map(section).collect::<String>()
}

fn row(annotation: &Annotation) -> String {
    let Annotation { key, form, default, .. } = annotation;
    format!("| [`{key}`](#{}) | {form} | {default} |\n", anchor(key))
}

fn section(annotation: &Annotation) -> String {
    let Annotation { key, example, meaning, .. } = annotation;
    format!("\n## `{key}`\n\n{meaning}\n\n```yaml\nmetadata:\n  annotations:\n    {key}: \"{example}\"\n```\n")
}

/// How a heading is linked to: in small letters, without marks.
fn anchor(key: &str) -> String {
    key.chars().filter(|letter| letter.is_ascii_alphanumeric() || *letter == '-').collect()
}
