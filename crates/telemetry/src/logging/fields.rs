//! The fields of an event and of the spans around it.

use std::fmt::Debug;

use tracing::field::{Field, Visit};

/// The name under which the message of an event comes.
const MESSAGE: &str = "message";

/// Maximum length of a text, in characters: enough for any message of a cloud, and little enough to read.
const LONGEST: usize = 4_000;

/// Length of all texts of a line from which on each further one is cut to [`SHORT`]. Container runtimes split lines at 16 KiB, and
/// what collects logs then finds parts that are no JSON.
const LONG_LINE: usize = 12_000;
const SHORT: usize = 100;

/// A value, ready to be written.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    /// A number or a boolean, which needs no quotes.
    Bare(String),
    /// Anything else.
    Text(String),
}

/// Fields in the order in which they came, each name once.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Fields {
    message: String,
    values: Vec<(&'static str, Value)>,
}

impl Fields {
    /// A message with one number.
    pub(super) fn of(message: &str, name: &'static str, number: u64) -> Fields {
        Fields { message: message.to_owned(), values: vec![(name, Value::Bare(number.to_string()))] }
    }

    /// What the event says.
    pub(super) fn message(&self) -> &str {
        &self.message
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        self.values.iter().map(|(name, value)| (*name, value))
    }

    /// Adds what is not there yet: what is nearer to the event counts.
    pub(super) fn add_missing(&mut self, others: &Fields) {
        for (name, value) in &others.values {
            if self.values.iter().all(|(known, _)| known != name) {
                self.values.push((name, value.clone()));
            }
        }
    }

    /// Cuts what is too long, and says how much is left out.
    pub(super) fn cut(&mut self) {
        let mut length = cut(&mut self.message, LONGEST);
        for (_, value) in &mut self.values {
            let limit = if length < LONG_LINE { LONGEST } else { SHORT };
            length += match value {
                Value::Text(text) => cut(text, limit),
                Value::Bare(text) => text.len(),
            };
        }
    }

    fn set(&mut self, field: &Field, value: Value) {
        // For traces only.
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

/// Cuts a text to this many characters; its length in bytes afterwards.
fn cut(text: &mut String, limit: usize) -> usize {
    // A text with no more bytes than that has no more characters.
    let end = if text.len() <= limit { None } else { text.char_indices().nth(limit).map(|(end, _)| end) };
    if let Some(end) = end {
        let left_out = text[end..].chars().count();
        text.truncate(end);
        text.push_str(&format!("… ({left_out} characters cut)"));
    }
    text.len()
}

/// upstream: klog and zapr both write `err`. A field that is named like a word of Rust comes with a mark.
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
        // What is no number in JSON needs quotes there.
        if value.is_finite() { self.set_bare(field, value) } else { self.set_text(field, value.to_string()) }
    }
}
