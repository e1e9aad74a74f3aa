//! Collecting what is wrong with an object, field by field.
//!
//! A check walks the object with a [`Path`] that says where it is and tells its [`Findings`] what it sees.
//! It knows nothing of any kind; the kinds bring the rules.

use std::fmt;

use serde_json::Value;

use crate::field_error::FieldError;
use crate::validation;

/// The place of a field, kept as links on the stack: nothing is written out unless there is an error to report.
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
    /// A field of the object itself.
    pub(crate) fn new(field: &'a str) -> Path<'a> {
        Path { parent: None, step: Step::Field(field) }
    }

    /// `path.field`; `field` may hold several names joined by dots.
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

/// The errors found so far, in the order they were found.
#[derive(Debug, Default)]
pub(crate) struct Findings(Vec<FieldError>);

impl Findings {
    pub(crate) fn into_errors(self) -> Vec<FieldError> {
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

    /// One error for each thing that is wrong with the form of a text.
    pub(crate) fn form(&mut self, at: Path<'_>, value: &str, complaints: Vec<String>) {
        for complaint in complaints {
            self.invalid(at, value, complaint);
        }
    }

    /// An optional text must be one of these.
    pub(crate) fn one_of(&mut self, at: Path<'_>, value: &str, supported: &[&str]) {
        if !supported.contains(&value) {
            self.push(FieldError::not_supported(at, value, supported));
        }
    }

    /// A text that must be there and be one of these.
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
        for complaint in validation::in_range(value, lowest, highest) {
            self.invalid(at, value, complaint);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_written_as_the_api_writes_it() {
        let spec = Path::new("spec");
        let containers = spec.child("containers");
        let first = containers.index(0);
        assert_eq!(first.child("resources.limits").to_string(), "spec.containers[0].resources.limits");
    }

    #[test]
    fn findings_keep_their_order() {
        let mut found = Findings::default();
        found.required_one_of(Path::new("a"), "", &["x"]);
        found.required_one_of(Path::new("b"), "y", &["x"]);
        found.in_range(Path::new("c"), 0, 1, 5);
        found.not_negative(Path::new("d"), 0);
        let texts: Vec<String> = found.into_errors().iter().map(ToString::to_string).collect();
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
