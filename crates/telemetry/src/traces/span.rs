//! A span as it is sent.

/// What was done.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Span {
    pub(super) trace: u128,
    pub(super) id: u64,
    /// Within what it was done.
    pub(super) parent: Option<u64>,
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// Nanoseconds since 1970.
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) attributes: Vec<(&'static str, Value)>,
    /// Why it failed, if it did.
    pub(super) error: Option<String>,
}

/// Who works while it lasts; the numbers are OTLP's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// This process.
    Internal = 1,
    /// Somebody whom it asks.
    Client = 3,
}

/// What is said of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Text(String),
    Integer(i64),
    Number(f64),
    Bool(bool),
}
