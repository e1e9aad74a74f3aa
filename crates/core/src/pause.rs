//! The annotation `bowline.dev/paused`. No controller changes a paused Node or Service, or anything in a cloud on its behalf.

use std::collections::BTreeMap;

use crate::annotations::PAUSED;
use crate::parse_bool;

/// Returns whether these annotations pause their object. A value that is neither true nor false also pauses it: a needless pause
/// does less harm than a change that the operator wanted to prevent.
pub fn is_paused(annotations: &BTreeMap<String, String>) -> bool {
    value(annotations).is_some_and(|value| parse_bool(value) != Some(false))
}

/// Returns the value of the annotation if it is neither true nor false.
pub fn invalid_pause(annotations: &BTreeMap<String, String>) -> Option<&str> {
    value(annotations).filter(|value| parse_bool(value).is_none())
}

fn value(annotations: &BTreeMap<String, String>) -> Option<&str> {
    annotations.get(PAUSED.key).map(|value| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_paused_unless_the_annotation_is_missing_or_false() {
        let cases = [
            (None, false, None),
            (Some("true"), true, None),
            (Some(" 1 "), true, None),
            (Some("false"), false, None),
            (Some("yes"), true, Some("yes")),
            (Some(""), true, Some("")),
        ];
        for (text, paused, invalid) in cases {
            let annotations = text.map(|text| (PAUSED.key.to_owned(), text.to_owned())).into_iter().collect();
            assert_eq!((is_paused(&annotations), invalid_pause(&annotations)), (paused, invalid), "{text:?}");
        }
    }
}
