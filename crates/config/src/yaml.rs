//! YAML into values, and the reader's errors into words that name the key and what would be right.

use serde::de::DeserializeOwned;
use serde_saphyr::{DefaultMessageFormatter, Error, MessageFormatter as _, Options};

use crate::nearest;

/// What is wrong with a text.
#[derive(Debug)]
pub(crate) struct Wrong {
    /// From 1; `None` if it is wrong as a whole.
    pub(crate) line: Option<usize>,
    /// The key.
    pub(crate) field: Option<String>,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

/// Reads one document.
pub(crate) fn read<T: DeserializeOwned>(text: &str) -> Result<T, Wrong> {
    let text = if has_content(text) { text } else { "{}" };
    serde_saphyr::from_str_with_options(text, options()).map_err(|error| explain(error.without_snippet(), text))
}

/// The reader's defaults bound depth, aliases and events. A picture of the text would only be in the way of one line
/// per problem; a value may be a secret, too, and does not belong in a log.
fn options() -> Options {
    serde_saphyr::options! { with_snippet: false }
}

/// There is something besides comments and the marks around a document.
fn has_content(text: &str) -> bool {
    let text = text.trim_start_matches('\u{feff}');
    text.lines().map(str::trim).any(|line| !line.is_empty() && !line.starts_with('#') && !matches!(line, "---" | "..."))
}

fn explain(error: &Error, text: &str) -> Wrong {
    let line = error.location().and_then(|location| usize::try_from(location.line()).ok()).filter(|line| *line > 0);
    let mut wrong = describe(error);
    wrong.line = line;
    wrong.field = wrong.field.or_else(|| key_of(text.lines().nth(line?.checked_sub(1)?)?));
    wrong
}

/// All but the line.
fn describe(error: &Error) -> Wrong {
    match error {
        Error::SerdeUnknownField { field, expected, .. } => {
            Wrong::new("there is no such key").field(field).hint(suggestion(field, expected))
        }
        Error::SerdeMissingField { field, .. } => Wrong::new("the key is missing").field(field),
        Error::DuplicateMappingKey { key: Some(key), .. } => {
            Wrong::new("the key is there twice").field(key).hint("keep one of them")
        }
        Error::SerdeUnknownVariant { variant, expected, .. } => {
            Wrong::new(format!("{variant:?} is no choice here")).hint(suggestion(variant, expected))
        }
        Error::MultipleDocuments { .. } => Wrong::new("a second document begins").hint("one file holds one document"),
        Error::InvalidScalar { ty, .. } => Wrong::new(format!("expected {}", kind_of_scalar(ty))),
        Error::Unexpected { expected: "mapping start", .. } => {
            Wrong::new("expected keys with values, such as key: value")
        }
        other => Wrong::new(DefaultMessageFormatter.format_message(other)),
    }
}

/// What a type of Rust is to somebody who writes YAML.
fn kind_of_scalar(ty: &str) -> &str {
    match ty {
        "u8" | "u16" | "u32" | "u64" | "u128" => "a whole number that is not negative and not too large",
        "i8" | "i16" | "i32" | "i64" | "i128" => "a whole number that is not too large",
        "f32" | "f64" | "floating point" => "a number",
        "bool" | "boolean" => "true or false",
        other => other,
    }
}

/// The key that a line sets: the reader tells where a bad value stands, not what it is the value of.
fn key_of(line: &str) -> Option<String> {
    let (key, _) = line.trim_start_matches([' ', '-', '{']).split_once(':')?;
    let key = key.trim_matches(['"', '\'']);
    let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.' | '/');
    (!key.is_empty() && key.chars().all(plain)).then(|| key.to_owned())
}

impl Wrong {
    fn new(message: impl Into<String>) -> Wrong {
        Wrong { line: None, field: None, message: message.into(), hint: None }
    }

    fn field(self, field: &str) -> Wrong {
        Wrong { field: Some(field.to_owned()), ..self }
    }

    fn hint(self, hint: impl Into<String>) -> Wrong {
        Wrong { hint: Some(hint.into()), ..self }
    }
}

/// The nearest of the known names, or all of them.
fn suggestion(name: &str, known: &[&str]) -> String {
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean {near}?"),
        None if known.is_empty() => "nothing may stand here".to_owned(),
        None => format!("known are {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "camelCase", default, deny_unknown_fields)]
    struct Config {
        endpoint: String,
        page_size: usize,
        quick: bool,
        mode: Mode,
    }

    impl Default for Config {
        fn default() -> Config {
            Config { endpoint: "http://127.0.0.1:7480".to_owned(), page_size: 100, quick: false, mode: Mode::Fast }
        }
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "camelCase")]
    enum Mode {
        Fast,
        Thorough,
    }

    #[derive(Debug, Deserialize)]
    struct Strict {
        #[allow(dead_code, reason = "only its absence is looked at")]
        endpoint: String,
    }

    #[test]
    fn nothing_to_read_means_the_defaults() {
        for text in ["", "\n\n", "# to be written\n", "---\n# later\n...\n", "{}", "\u{feff}# made elsewhere\n"] {
            assert_eq!(read::<Config>(text).unwrap(), Config::default(), "{text:?}");
        }
    }

    #[test]
    fn yaml_and_json_say_the_same() {
        let expected = Config { page_size: 7, mode: Mode::Thorough, ..Config::default() };
        for text in ["pageSize: 7\nmode: thorough\n", r#"{"pageSize": 7, "mode": "thorough"}"#] {
            assert_eq!(read::<Config>(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line_its_key_and_what_would_be_right() {
        let cases = [
            ("endpoint: x\nendpont: y\n", "2 endpont: there is no such key; did you mean endpoint?"),
            ("\ncolour: blue\n", "2 colour: there is no such key; known are endpoint, pageSize, quick, mode"),
            ("mode: fast\nmode: fast\n", "2 mode: the key is there twice; keep one of them"),
            ("# what for\nmode: fats\n", "2 mode: \"fats\" is no choice here; did you mean fast?"),
            ("endpoint: x\npageSize: many\n", "2 pageSize: expected a whole number that is not negative"),
            ("{\n \"pageSize\": -1\n}", "2 pageSize: expected a whole number that is not negative"),
            ("quick: soon\n", "1 quick: expected true or false"),
            ("endpoint: x\n---\nendpoint: y\n", "3 endpoint: a second document begins; one file holds one document"),
            ("endpoint: [x]\n", "1 endpoint: expected string"),
            ("just words\n", "1 : expected keys with values"),
            ("- a\n- b\n", "1 : expected keys with values"),
            ("endpoint: \"x\n", "2 : invalid indentation"),
            ("pageSize: 3\n\tmode: fast\n", "1 pageSize: while scanning a plain scalar, found a tab"),
        ];
        for (text, expected) in cases {
            let wrong = read::<Config>(text).unwrap_err();
            let hint = wrong.hint.map(|hint| format!("; {hint}")).unwrap_or_default();
            let line = wrong.line.map(|line| line.to_string()).unwrap_or_default();
            let told = format!("{line} {}: {}{hint}", wrong.field.unwrap_or_default(), wrong.message);
            assert!(told.starts_with(expected), "{text:?} should say {expected:?}: {told}");
        }
    }

    #[test]
    fn a_missing_key_is_named() {
        let wrong = read::<Strict>("zone: harbour\n").unwrap_err();
        assert_eq!((wrong.field.as_deref(), wrong.message.as_str()), (Some("endpoint"), "the key is missing"));
    }

    #[test]
    fn a_text_made_to_explode_is_refused() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let below = format!("*a{}", level - 1);
            text += &format!("a{level}: &a{level} [{}]\n", vec![below; 10].join(", "));
        }
        let deep = "[".repeat(100_000);
        assert!(read::<std::collections::BTreeMap<String, serde::de::IgnoredAny>>(&text).is_err());
        assert!(read::<Vec<serde::de::IgnoredAny>>(&deep).is_err());
    }
}
