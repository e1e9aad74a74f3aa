//! Values of Kubernetes labels.

/// Longest value of a label.
const LONGEST: usize = 63;

/// Returns whether Kubernetes takes this as the value of a label.
pub fn is_label_value(text: &str) -> bool {
    let ends_well = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    text.len() <= LONGEST
        && text.chars().all(is_label_char)
        && ends_well(text.chars().next())
        && ends_well(text.chars().next_back())
}

/// Returns the nearest value that Kubernetes takes: each run of characters that it does not take becomes one `-`.
pub fn label_value(text: &str) -> String {
    let mut value = String::with_capacity(text.len());
    let mut is_in_run = false;
    for c in text.chars() {
        let fits = is_label_char(c);
        if fits || !is_in_run {
            value.push(if fits { c } else { '-' });
        }
        is_in_run = !fits;
    }
    let value = trimmed(&value);
    // A long name may be cut behind a dot, which is refused at the end.
    trimmed(value.get(..LONGEST).unwrap_or(value)).to_owned()
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
    fn case_042_case_043_what_a_label_does_not_take_becomes_a_dash() {
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
        for (text, wanted) in table {
            assert_eq!(label_value(text), wanted, "{text:?}");
            assert!(is_label_value(&label_value(text)), "{text:?}");
        }
    }

    #[test]
    fn what_is_too_long_is_cut_and_ends_well() {
        let long = format!("{}.{}", "a".repeat(62), "b".repeat(62));
        assert_eq!(label_value(&long), "a".repeat(62));
        assert_eq!(label_value(&"a".repeat(200)), "a".repeat(63));
    }

    #[test]
    fn a_label_takes_letters_digits_and_a_few_marks_inside() {
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
        for (text, fits) in table {
            assert_eq!(is_label_value(text), fits, "{text:?}");
        }
        assert!(is_label_value(&"a".repeat(63)) && !is_label_value(&"a".repeat(64)));
    }
}
