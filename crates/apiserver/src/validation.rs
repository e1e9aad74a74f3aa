//! The forms of names, labels and the like, with the API's words for what is wrong.

use std::borrow::Cow;

/// A generateName may end in `-`; checked as if something followed.
pub(crate) fn masked(name: &str, prefix: bool) -> Cow<'_, str> {
    match name.strip_suffix('-') {
        Some(head) if prefix && !head.is_empty() => Cow::Owned(format!("{head}a")),
        _ => Cow::Borrowed(name),
    }
}

/// RFC 1123 subdomain.
pub(crate) fn dns_subdomain(_name: &str) -> Vec<String> {
    Vec::new()
}
