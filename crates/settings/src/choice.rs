//! Selection lists, as in `--controllers` and `--webhooks`: `NAME` enables one, `-NAME` disables it, `*` enables all that the list
//! does not name.

/// Whether the list enables this name (CTRL-1): the first entry that names it wins, then `*`.
pub(crate) fn takes(list: &[String], name: &str) -> bool {
    match list.iter().find(|item| bare(item) == name) {
        Some(item) => !item.starts_with('-'),
        None => list.iter().any(|item| item == "*"),
    }
}

/// Returns the enabled and disabled names in the list.
pub(crate) fn names(list: &[String]) -> impl Iterator<Item = &str> {
    list.iter().map(|item| bare(item)).filter(|name| *name != "*")
}

/// Strips the leading dash of a disabled name.
pub(crate) fn bare(item: &str) -> &str {
    item.strip_prefix('-').unwrap_or(item)
}
