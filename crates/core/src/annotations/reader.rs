//! Reading the annotations of an object by a table.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::Mistake;
use super::kinds::Kind;
use super::table::{Annotation, Invalid, Table, Unknown};

/// The annotations of an object, and the mistakes that were found in those that were read.
#[derive(Debug)]
pub struct Reader<'a> {
    table: &'a Table,
    annotations: &'a BTreeMap<String, String>,
    mistakes: RefCell<Vec<Mistake>>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(table: &'a Table, annotations: &'a BTreeMap<String, String>) -> Reader<'a> {
        Reader { table, annotations, mistakes: RefCell::default() }
    }

    /// The value; `None` if the annotation is missing, or cannot be read, which is a mistake then.
    pub fn get<K: Kind>(&self, annotation: &Annotation<K>) -> Option<K::Value<'a>> {
        let keys = std::iter::once(&annotation.key).chain(annotation.aliases);
        let key = keys.copied().find(|key| self.annotations.contains_key(*key))?;
        self.get_at(key, annotation)
    }

    /// The value of an annotation whose key is not the declared one, because the configuration names it.
    pub fn get_at<K: Kind>(&self, key: &str, annotation: &Annotation<K>) -> Option<K::Value<'a>> {
        let (key, value) = self.annotations.get_key_value(key)?;
        self.read(key, value, annotation)
    }

    /// The values of a family, each with what stands for the placeholder in its key.
    pub fn family<K: Kind>(&self, annotation: &Annotation<K>) -> Vec<(&'a str, K::Value<'a>)> {
        let member = |(key, value): (&'a String, &'a String)| {
            Some((annotation.member(key)?, self.read(key, value, annotation)?))
        };
        self.annotations.iter().filter_map(member).collect()
    }

    /// The keys that the table does not declare and that begin as its keys do.
    pub fn unknown(&self) -> Vec<Unknown> {
        self.table.unknown(self.annotations)
    }

    /// Everything that was wrong with what was read.
    pub fn into_errors(self) -> Vec<Mistake> {
        self.mistakes.into_inner()
    }

    fn read<K: Kind>(&self, key: &str, value: &'a str, annotation: &Annotation<K>) -> Option<K::Value<'a>> {
        let value = if self.table.trim { value.trim() } else { value };
        if annotation.kind.is_absent(value) {
            return None;
        }
        let read = match value {
            "" if self.table.trim => Err(vec![empty(&annotation.kind.form())]),
            value => annotation.kind.read(value),
        };
        read.map_err(|reasons| self.note(key, value, annotation, &reasons)).ok()
    }

    fn note<K: Kind>(&self, key: &str, value: &str, annotation: &Annotation<K>, reasons: &[String]) {
        let (form, default) = (annotation.kind.form(), annotation.default);
        let message = |why: &String| (self.table.message)(&Invalid { key, value, form: &form, default, why });
        let mistake = |why| Mistake { place: key.to_owned(), message: message(why) };
        self.mistakes.borrow_mut().extend(reasons.iter().map(mistake));
    }
}

fn empty(form: &str) -> String {
    format!("the value is empty; expected {form}, or no annotation for the default")
}
