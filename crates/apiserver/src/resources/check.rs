//! Helpers for field validation.
//!
//! A validation function walks the object with a [`Path`] to the current field and adds errors to an [`ErrorList`].
//! Nothing here depends on a kind.

use std::fmt;

use serde_json::Value;

use crate::field_error::FieldError;
use crate::validation;

/// Path of a field, a linked list on the stack. It is formatted only if there is an error to report.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Step<'a> {
    Field(&'a str),
    Index(usize),
}

impl<'a> Path<'a> {
    /// Path of a top-level field.
    pub(crate) fn new(field: &'a str) -> Path<'a> {
        Path { parent: None, step: Step::Field(field) }
    }

    /// `path.field`; `field` may be several names joined by dots.
    pub(crate) fn child(&'a self, field: &'a str) -> Path<'a> {
        Path { parent: Some(self), step: Step::Field(field) }
    }

    /// `path[3]`.
    pub(crate) fn index(&'a self, index: usize) -> Path<'a> {
        Path { parent: Some(self), step: Step::Index(index) }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match (self.step, self.parent) {
            (Step::Field(name), None) => f.write_str(name),
            (Step::Field(name), Some(_)) => write!(f, ".{name}"),
            (Step::Index(index), _) => write!(f, "[{index}]"),
        }
    }
}

impl From<Path<'_>> for String {
    fn from(path: Path<'_>) -> String {
        path.to_string()
    }
}

/// Field errors in the order they were found.
#[derive(Debug, Default)]
pub(crate) struct ErrorList(Vec<FieldError>);

impl ErrorList {
    pub(crate) fn into_vec(self) -> Vec<FieldError> {
        self.0
    }

    pub(crate) fn push(&mut self, error: FieldError) {
        self.0.push(error);
    }

    pub(crate) fn extend(&mut self, errors: impl IntoIterator<Item = FieldError>) {
        self.0.extend(errors);
    }

    pub(crate) fn required(&mut self, at: Path<'_>, detail: &str) {
        self.push(FieldError::required(at, detail));
    }

    pub(crate) fn invalid(&mut self, at: Path<'_>, value: impl Into<Value>, detail: impl Into<String>) {
        self.push(FieldError::invalid(at, value, detail));
    }

    pub(crate) fn forbidden(&mut self, at: Path<'_>, detail: impl Into<String>) {
        self.push(FieldError::forbidden(at, detail));
    }

    pub(crate) fn duplicate(&mut self, at: Path<'_>, value: impl Into<Value>) {
        self.push(FieldError::duplicate(at, value));
    }

    /// Adds one "Invalid value" error for each detail.
    pub(crate) fn invalid_each(&mut self, at: Path<'_>, value: &str, details: Vec<String>) {
        for detail in details {
            self.invalid(at, value, detail);
        }
    }

    /// Requires the value to be one of `supported`.
    pub(crate) fn one_of(&mut self, at: Path<'_>, value: &str, supported: &[&str]) {
        if !supported.contains(&value) {
            self.push(FieldError::not_supported(at, value, supported));
        }
    }

    /// Requires the value to be non-empty and one of `supported`.
    pub(crate) fn required_one_of(&mut self, at: Path<'_>, value: &str, supported: &[&str]) {
        match value {
            "" => self.required(at, ""),
            _ => self.one_of(at, value, supported),
        }
    }

    pub(crate) fn not_negative(&mut self, at: Path<'_>, value: i64) {
        if value < 0 {
            self.invalid(at, value, validation::NOT_NEGATIVE);
        }
    }

    pub(crate) fn in_range(&mut self, at: Path<'_>, value: i64, lowest: i64, highest: i64) {
        for detail in validation::in_range(value, lowest, highest) {
            self.invalid(at, value, detail);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_has_the_format_of_the_api() {
        let spec = Path::new("spec");
        let containers = spec.child("containers");
        let first = containers.index(0);
        assert_eq!(first.child("resources.limits").to_string(), "spec.containers[0].resources.limits");
    }

    #[test]
    fn errors_keep_their_order() {
        let mut errors = ErrorList::default();
        errors.required_one_of(Path::new("a"), "", &["x"]);
        errors.required_one_of(Path::new("b"), "y", &["x"]);
        errors.in_range(Path::new("c"), 0, 1, 5);
        errors.not_negative(Path::new("d"), 0);
        let texts: Vec<String> = errors.into_vec().iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "a: Required value",
                "b: Unsupported value: \"y\": supported values: \"x\"",
                "c: Invalid value: 0: must be between 1 and 5, inclusive"
            ]
        );
    }
}
