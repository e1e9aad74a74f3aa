//! Reader for the annotations of an object.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::FieldError;
use super::kinds::Kind;
use super::table::{Annotation, Invalid, Table, UnknownAnnotation};

/// Reads the annotations of an object and collects the errors of invalid values.
#[derive(Debug)]
pub struct Reader<'a> {
    table: &'a Table,
    annotations: &'a BTreeMap<String, String>,
    errors: RefCell<Vec<FieldError>>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(table: &'a Table, annotations: &'a BTreeMap<String, String>) -> Reader<'a> {
        Reader { table, annotations, errors: RefCell::default() }
    }

    /// Returns the value; `None` if the annotation is missing or invalid. An invalid value is recorded as an error.
    pub fn get<K: Kind>(&self, annotation: &Annotation<K>) -> Option<K::Value<'a>> {
        let keys = std::iter::once(&annotation.key).chain(annotation.aliases);
        let key = keys.copied().find(|key| self.annotations.contains_key(*key))?;
        self.get_at(key, annotation)
    }

    /// Returns the value of an annotation under another key than the declared one, for keys that come from the configuration.
    pub fn get_at<K: Kind>(&self, key: &str, annotation: &Annotation<K>) -> Option<K::Value<'a>> {
        let (key, value) = self.annotations.get_key_value(key)?;
        self.read(key, value, annotation)
    }

    /// Returns the values of a family of annotations, each with the part of its key that matches the placeholder.
    pub fn family<K: Kind>(&self, annotation: &Annotation<K>) -> Vec<(&'a str, K::Value<'a>)> {
        let member = |(key, value): (&'a String, &'a String)| {
            Some((annotation.member(key)?, self.read(key, value, annotation)?))
        };
        self.annotations.iter().filter_map(member).collect()
    }

    /// Returns the keys that have a prefix of the table and are not declared.
    pub fn unknown(&self) -> Vec<UnknownAnnotation> {
        self.table.unknown(self.annotations)
    }

    /// Returns the errors of all values that were read.
    pub fn into_errors(self) -> Vec<FieldError> {
        self.errors.into_inner()
    }

    fn read<K: Kind>(&self, key: &str, value: &'a str, annotation: &Annotation<K>) -> Option<K::Value<'a>> {
        let value = if self.table.trim { value.trim() } else { value };
        if annotation.kind.is_absent(value) {
            return None;
        }
        let read = match value {
            "" if self.table.trim => Err(vec![empty_value(&annotation.kind.form())]),
            value => annotation.kind.read(value),
        };
        read.map_err(|reasons| self.record_errors(key, value, annotation, &reasons)).ok()
    }

    fn record_errors<K: Kind>(&self, key: &str, value: &str, annotation: &Annotation<K>, reasons: &[String]) {
        let (form, default) = (annotation.kind.form(), annotation.default);
        let message = |why: &String| (self.table.message)(&Invalid { key, value, form: &form, default, why });
        let error = |why| FieldError { field: key.to_owned(), message: message(why) };
        self.errors.borrow_mut().extend(reasons.iter().map(error));
    }
}

fn empty_value(form: &str) -> String {
    format!("the value is empty; expected {form}, or remove the annotation to get the default")
}
