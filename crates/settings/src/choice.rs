//! Lists that choose among names: `NAME` takes one, `-NAME` leaves it out, `*` stands for all that the list does not name.
//! `--controllers` and `--webhooks` are such lists.

/// Whether the list takes this name (CTRL-1): what names it first counts, then `*`.
pub(crate) fn takes(list: &[String], name: &str) -> bool {
    match list.iter().find(|item| bare(item) == name) {
        Some(item) => !item.starts_with('-'),
        None => list.iter().any(|item| item == "*"),
    }
}

/// The names in it, taken or left out.
pub(crate) fn names(list: &[String]) -> impl Iterator<Item = &str> {
    list.iter().map(|item| bare(item)).filter(|name| *name != "*")
}

/// The item without the dash that leaves out.
pub(crate) fn bare(item: &str) -> &str {
    item.strip_prefix('-').unwrap_or(item)
}
