//! Values of Kubernetes labels.

/// Maximum length of a label value.
const MAX_LENGTH: usize = 63;

/// Returns whether Kubernetes accepts this as the value of a label.
pub fn is_label_value(text: &str) -> bool {
    let is_edge = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    text.len() <= MAX_LENGTH
        && text.chars().all(is_label_char)
        && is_edge(text.chars().next())
        && is_edge(text.chars().next_back())
}

/// Converts text to a valid label value: each run of invalid characters becomes one `-`, and the result is trimmed and truncated.
pub fn label_value(text: &str) -> String {
    let mut value = String::with_capacity(text.len());
    let mut is_in_run = false;
    for c in text.chars() {
        let is_valid = is_label_char(c);
        if is_valid || !is_in_run {
            value.push(if is_valid { c } else { '-' });
        }
        is_in_run = !is_valid;
    }
    let value = trimmed(&value);
    // Truncation may leave a dot at the end, which is invalid there.
    trimmed(value.get(..MAX_LENGTH).unwrap_or(value)).to_owned()
}

fn is_label_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

fn trimmed(text: &str) -> &str {
    text.trim_matches(['-', '_', '.'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_042_case_043_invalid_characters_become_a_dash() {
        let table = [
            ("Default Group", "Default-Group"),
            ("--eu west/1--", "eu-west-1"),
            ("nova", "nova"),
            ("a  /  b", "a-b"),
            ("a - b", "a---b"),
            ("Zürich", "Z-rich"),
            ("...", ""),
            ("", ""),
            ("///", ""),
        ];
        for (text, expected) in table {
            assert_eq!(label_value(text), expected, "{text:?}");
            assert!(is_label_value(&label_value(text)), "{text:?}");
        }
    }

    #[test]
    fn a_long_value_is_truncated_and_trimmed() {
        let long = format!("{}.{}", "a".repeat(62), "b".repeat(62));
        assert_eq!(label_value(&long), "a".repeat(62));
        assert_eq!(label_value(&"a".repeat(200)), "a".repeat(63));
    }

    #[test]
    fn a_label_value_has_alphanumerics_and_inner_dashes_underscores_and_dots() {
        let table = [
            ("", true),
            ("m1.tiny", true),
            ("ug2.2xlarge", true),
            ("a", true),
            ("-a", false),
            ("a.", false),
            ("4 vCPU / 8 GB", false),
            ("ä", false),
        ];
        for (text, expected) in table {
            assert_eq!(is_label_value(text), expected, "{text:?}");
        }
        assert!(is_label_value(&"a".repeat(63)) && !is_label_value(&"a".repeat(64)));
    }
}
