//! Booleans in Go's syntax.

/// Parses exactly the spellings that Go's `strconv.ParseBool` accepts.
///
/// ```
/// assert_eq!(bowline_core::parse_bool("T"), Some(true));
/// assert_eq!(bowline_core::parse_bool("yes"), None);
/// ```
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_spellings_of_go_are_accepted() {
        for text in ["1", "t", "T", "true", "TRUE", "True"] {
            assert_eq!(parse_bool(text), Some(true), "{text}");
        }
        for text in ["0", "f", "F", "false", "FALSE", "False"] {
            assert_eq!(parse_bool(text), Some(false), "{text}");
        }
        for text in ["", " true", "tRUE", "yes", "no", "on", "off", "2", "enabled"] {
            assert_eq!(parse_bool(text), None, "{text:?}");
        }
    }
}
