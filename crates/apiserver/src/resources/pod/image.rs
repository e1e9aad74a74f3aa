//! The one thing the server reads from an image name: whether it means "latest".

/// The pull policy of an image that comes without one.
pub(super) fn pull_policy(image: &str) -> &'static str {
    match tag(image) {
        Some("latest") => "Always",
        _ => "IfNotPresent",
    }
}

/// The tag of an image reference: `latest` if it has neither tag nor digest, `None` if it has only a digest or
/// is no reference at all.
fn tag(image: &str) -> Option<&str> {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    let last = name.rfind('/').map_or(0, |slash| slash + 1);
    let (repository, tag) = match name.get(last..)?.rfind(':') {
        Some(colon) => (name.get(..last + colon)?, name.get(last + colon + 1..)),
        None => (name, None),
    };
    match (is_repository(repository), tag, digest) {
        (false, ..) => None,
        (true, Some(tag), _) => Some(tag),
        (true, None, Some(_)) => None,
        (true, None, None) => Some("latest"),
    }
}

/// `registry.example.com:5000/team/app`, `team/app` or `app`: all but the host is lower case.
fn is_repository(name: &str) -> bool {
    let path = match name.split_once('/') {
        Some((first, rest)) if is_host(first) => rest,
        _ => name,
    };
    path.split('/').all(is_path_component)
}

fn is_host(first: &str) -> bool {
    first.contains(['.', ':']) || first == "localhost" || first.bytes().any(|b| b.is_ascii_uppercase())
}

fn is_path_component(component: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = component.as_bytes();
    bytes.first().copied().is_some_and(is_word)
        && bytes.last().copied().is_some_and(is_word)
        && bytes.iter().all(|&b| is_word(b) || matches!(b, b'.' | b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_latest_is_always_pulled() {
        let table = [
            ("nginx", "Always"),
            ("nginx:latest", "Always"),
            ("nginx:1.25", "IfNotPresent"),
            ("registry.example.com:5000/team/app", "Always"),
            ("registry.example.com:5000/team/app:2", "IfNotPresent"),
            ("app@sha256:0123", "IfNotPresent"),
            ("app:latest@sha256:0123", "Always"),
            ("team/Case", "IfNotPresent"),
            ("UpperCase", "IfNotPresent"),
            ("", "IfNotPresent"),
            (" ", "IfNotPresent"),
        ];
        for (image, expected) in table {
            assert_eq!(pull_policy(image), expected, "{image:?}");
        }
    }
}
