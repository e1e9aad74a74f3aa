//! A span, as it is exported.

/// A finished span.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Span {
    pub(super) trace: u128,
    pub(super) id: u64,
    /// ID of the parent span.
    pub(super) parent: Option<u64>,
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// Nanoseconds since the Unix epoch.
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) attributes: Vec<(&'static str, Value)>,
    /// Error of a failed span.
    pub(super) error: Option<String>,
}

/// Span kind, with OTLP's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Work of this process.
    Internal = 1,
    /// Request to another service.
    Client = 3,
}

/// Value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Text(String),
    Integer(i64),
    Number(f64),
    Bool(bool),
}
