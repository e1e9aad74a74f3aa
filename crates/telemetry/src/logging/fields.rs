//! Fields of an event and its spans.

use std::fmt::Debug;

use tracing::field::{Field, Visit};

/// Field name of the message.
const MESSAGE: &str = "message";

/// Maximum length of a text, in characters: enough for any error message of a cloud.
const LONGEST: usize = 4_000;

/// Total length of the texts in a line above which each further one is truncated to [`SHORT`]. Container runtimes split lines at
/// 16 KiB, and log collectors then get invalid JSON.
const LONG_LINE: usize = 12_000;
const SHORT: usize = 100;

/// A formatted value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    /// Number or boolean, without quotes.
    Bare(String),
    /// Text, with quotes.
    Text(String),
}

/// Fields in the order of recording, each name once.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Fields {
    message: String,
    values: Vec<(&'static str, Value)>,
}

impl Fields {
    /// Creates a message with one number.
    pub(super) fn of(message: &str, name: &'static str, number: u64) -> Fields {
        Fields { message: message.to_owned(), values: vec![(name, Value::Bare(number.to_string()))] }
    }

    /// Message of the event.
    pub(super) fn message(&self) -> &str {
        &self.message
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        self.values.iter().map(|(name, value)| (*name, value))
    }

    /// Adds the fields that are not set yet: inner values win.
    pub(super) fn add_missing(&mut self, others: &Fields) {
        for (name, value) in &others.values {
            if self.values.iter().all(|(known, _)| known != name) {
                self.values.push((name, value.clone()));
            }
        }
    }

    /// Truncates long texts, with the number of omitted characters.
    pub(super) fn truncate(&mut self) {
        let mut length = truncate(&mut self.message, LONGEST);
        for (_, value) in &mut self.values {
            let limit = if length < LONG_LINE { LONGEST } else { SHORT };
            length += match value {
                Value::Text(text) => truncate(text, limit),
                Value::Bare(text) => text.len(),
            };
        }
    }

    fn set(&mut self, field: &Field, value: Value) {
        // Only for traces.
        if field.name().starts_with("otel.") {
            return;
        }
        let name = name(field);
        match self.values.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => self.values.push((name, value)),
        }
    }

    fn set_text(&mut self, field: &Field, text: String) {
        if field.name() == MESSAGE { self.message = text } else { self.set(field, Value::Text(text)) }
    }

    fn set_bare(&mut self, field: &Field, value: impl ToString) {
        self.set(field, Value::Bare(value.to_string()));
    }
}

/// Truncates a text to this number of characters, and returns its new length in bytes.
fn truncate(text: &mut String, limit: usize) -> usize {
    // A text has at most as many characters as bytes.
    let end = if text.len() <= limit { None } else { text.char_indices().nth(limit).map(|(end, _)| end) };
    if let Some(end) = end {
        let omitted = text[end..].chars().count();
        text.truncate(end);
        text.push_str(&format!("… ({omitted} characters omitted)"));
    }
    text.len()
}

/// Field name in the log. upstream: klog and zapr both use `err`. Names that are Rust keywords have the prefix `r#`.
fn name(field: &Field) -> &'static str {
    match field.name() {
        "error" => "err",
        name => name.strip_prefix("r#").unwrap_or(name),
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.set_text(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.set_text(field, format!("{value:?}"));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.set_text(field, bowline_core::with_causes(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set_bare(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set_bare(field, value);
    }

    fn record_i128(&mut self, field: &Field, value: i128) {
        self.set_bare(field, value);
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        self.set_bare(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set_bare(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        // NaN and infinity are no JSON numbers, and are quoted.
        if value.is_finite() { self.set_bare(field, value) } else { self.set_text(field, value.to_string()) }
    }
}
