//! The annotation with which an operator pauses a Node or a Service: no controller changes it, or anything in a cloud for it.

use std::collections::BTreeMap;

use crate::annotations::PAUSED;
use crate::parse_bool;

/// Whether these annotations pause their object. A value that is neither true nor false pauses it, too: an object that waits in vain is
/// better than one that is changed although its operator asked for a pause.
pub fn is_paused(annotations: &BTreeMap<String, String>) -> bool {
    value(annotations).is_some_and(|value| parse_bool(value) != Some(false))
}

/// The value of the annotation, if it is neither true nor false.
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
