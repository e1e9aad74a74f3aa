//! YAML deserialisation, with error messages that name the key and the expected value.

use serde::de::DeserializeOwned;
use serde_saphyr::{DefaultMessageFormatter, Error, MessageFormatter as _, Options};

use crate::nearest;

/// An error in a YAML text.
#[derive(Debug)]
pub(crate) struct YamlError {
    /// Line, from 1; `None` for errors of the whole document.
    pub(crate) line: Option<usize>,
    /// Key.
    pub(crate) field: Option<String>,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

/// Parses one document.
pub(crate) fn read<T: DeserializeOwned>(text: &str) -> Result<T, YamlError> {
    let text = if has_content(text) { text } else { "{}" };
    serde_saphyr::from_str_with_options(text, options()).map_err(|error| explain(error.without_snippet(), text))
}

/// Returns the parser options. The defaults limit depth, aliases and events. Snippets are disabled, because each error is one line,
/// and because a value may be a secret, which must not be logged.
fn options() -> Options {
    serde_saphyr::options! { with_snippet: false }
}

/// Returns whether the text has anything but comments and document markers.
fn has_content(text: &str) -> bool {
    let text = text.trim_start_matches('\u{feff}');
    text.lines().map(str::trim).any(|line| !line.is_empty() && !line.starts_with('#') && !matches!(line, "---" | "..."))
}

fn explain(error: &Error, text: &str) -> YamlError {
    let line = error.location().and_then(|location| usize::try_from(location.line()).ok()).filter(|line| *line > 0);
    let mut described = describe(error);
    described.line = line;
    described.field = described.field.or_else(|| key_of(text.lines().nth(line?.checked_sub(1)?)?));
    described
}

/// Describes an error without its line.
fn describe(error: &Error) -> YamlError {
    match error {
        Error::SerdeUnknownField { field, expected, .. } => {
            YamlError::new("unknown key").field(field).hint(suggestion(field, expected))
        }
        Error::SerdeMissingField { field, .. } => YamlError::new("the key is missing").field(field),
        Error::DuplicateMappingKey { key: Some(key), .. } => {
            YamlError::new("duplicate key").field(key).hint("keep one of them")
        }
        Error::SerdeUnknownVariant { variant, expected, .. } => {
            YamlError::new(format!("{variant:?} is not a valid value")).hint(suggestion(variant, expected))
        }
        Error::MultipleDocuments { .. } => {
            YamlError::new("unexpected second document").hint("a file must contain one document")
        }
        Error::InvalidScalar { ty, .. } => YamlError::new(format!("expected {}", kind_of_scalar(ty))),
        Error::Unexpected { expected: "mapping start", .. } => YamlError::new("expected a mapping, such as key: value"),
        other => YamlError::new(DefaultMessageFormatter.format_message(other)),
    }
}

/// Describes a Rust type in terms of YAML.
fn kind_of_scalar(ty: &str) -> &str {
    match ty {
        "u8" | "u16" | "u32" | "u64" | "u128" => "a whole number that is not negative and not too large",
        "i8" | "i16" | "i32" | "i64" | "i128" => "a whole number that is not too large",
        "f32" | "f64" | "floating point" => "a number",
        "bool" | "boolean" => "true or false",
        other => other,
    }
}

/// Returns the key of a line. The parser reports the position of an invalid value, but not its key.
fn key_of(line: &str) -> Option<String> {
    let (key, _) = line.trim_start_matches([' ', '-', '{']).split_once(':')?;
    let key = key.trim_matches(['"', '\'']);
    let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.' | '/');
    (!key.is_empty() && key.chars().all(plain)).then(|| key.to_owned())
}

impl YamlError {
    fn new(message: impl Into<String>) -> YamlError {
        YamlError { line: None, field: None, message: message.into(), hint: None }
    }

    fn field(self, field: &str) -> YamlError {
        YamlError { field: Some(field.to_owned()), ..self }
    }

    fn hint(self, hint: impl Into<String>) -> YamlError {
        YamlError { hint: Some(hint.into()), ..self }
    }
}

/// Suggests the most similar known name, or lists all of them.
fn suggestion(name: &str, known: &[&str]) -> String {
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean {near}?"),
        None if known.is_empty() => "no keys are allowed here".to_owned(),
        None => format!("expected one of {}", known.join(", ")),
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
        #[allow(dead_code, reason = "only its absence is tested")]
        endpoint: String,
    }

    #[test]
    fn an_empty_document_has_the_defaults() {
        for text in ["", "\n\n", "# to be written\n", "---\n# later\n...\n", "{}", "\u{feff}# made elsewhere\n"] {
            assert_eq!(read::<Config>(text).unwrap(), Config::default(), "{text:?}");
        }
    }

    #[test]
    fn yaml_and_json_are_equivalent() {
        let expected = Config { page_size: 7, mode: Mode::Thorough, ..Config::default() };
        for text in ["pageSize: 7\nmode: thorough\n", r#"{"pageSize": 7, "mode": "thorough"}"#] {
            assert_eq!(read::<Config>(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn errors_have_line_key_and_expected_value() {
        let cases = [
            ("endpoint: x\nendpont: y\n", "2 endpont: unknown key; did you mean endpoint?"),
            ("\ncolour: blue\n", "2 colour: unknown key; expected one of endpoint, pageSize, quick, mode"),
            ("mode: fast\nmode: fast\n", "2 mode: duplicate key; keep one of them"),
            ("# what for\nmode: fats\n", "2 mode: \"fats\" is not a valid value; did you mean fast?"),
            ("endpoint: x\npageSize: many\n", "2 pageSize: expected a whole number that is not negative"),
            ("{\n \"pageSize\": -1\n}", "2 pageSize: expected a whole number that is not negative"),
            ("quick: soon\n", "1 quick: expected true or false"),
            (
                "endpoint: x\n---\nendpoint: y\n",
                "3 endpoint: unexpected second document; a file must contain one document",
            ),
            ("endpoint: [x]\n", "1 endpoint: expected string"),
            ("just words\n", "1 : expected a mapping"),
            ("- a\n- b\n", "1 : expected a mapping"),
            ("endpoint: \"x\n", "2 : invalid indentation"),
            ("pageSize: 3\n\tmode: fast\n", "1 pageSize: while scanning a plain scalar, found a tab"),
        ];
        for (text, expected) in cases {
            let error = read::<Config>(text).unwrap_err();
            let hint = error.hint.map(|hint| format!("; {hint}")).unwrap_or_default();
            let line = error.line.map(|line| line.to_string()).unwrap_or_default();
            let message = format!("{line} {}: {}{hint}", error.field.unwrap_or_default(), error.message);
            assert!(message.starts_with(expected), "{text:?}: expected {expected:?}, got {message:?}");
        }
    }

    #[test]
    fn a_missing_key_is_named() {
        let error = read::<Strict>("zone: harbour\n").unwrap_err();
        assert_eq!((error.field.as_deref(), error.message.as_str()), (Some("endpoint"), "the key is missing"));
    }

    #[test]
    fn exponential_aliases_and_deep_nesting_are_rejected() {
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
