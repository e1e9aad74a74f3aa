//! Validated configuration.

use super::check::Check;
use super::declared::{Format, Key, Keys, Kind, Section, Table};
use super::document::{Document, Entry, Part};
use super::value::Value;
use super::{gcfg, yaml};
use crate::{ConfigError, ConfigErrors, ConfigFile, Environment};

/// A validated configuration. The default contains no values.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Document, with the declared names.
    document: Document,
    environment: Environment,
    warnings: Vec<ConfigError>,
    format: Option<Format>,
}

/// View of one section. Missing keys have their defaults.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    settings: &'a Settings,
    section: &'a str,
    subsection: Option<&'a str>,
}

impl Table {
    /// Reads a file and the environment, or returns all errors. Without a file, the environment and the defaults
    /// apply.
    pub fn read(&self, file: Option<&ConfigFile>, environment: &Environment) -> Result<Settings, ConfigErrors> {
        let (settings, errors) = self.check(file, environment)?;
        if errors.is_empty() { Ok(settings) } else { Err(errors) }
    }

    /// Like [`read`](Table::read), for callers with further checks: returns the settings together with the errors of invalid
    /// values, which have their defaults. A file with syntax errors has no settings, because its content is not fully known.
    pub fn check(
        &self,
        file: Option<&ConfigFile>,
        environment: &Environment,
    ) -> Result<(Settings, ConfigErrors), ConfigErrors> {
        let (mut document, errors) = file.map(|file| self.parse(file)).unwrap_or_default();
        if !errors.is_empty() {
            // The rest is checked as well, so that all errors are reported at once.
            let (_, more) = Check::of(self, &document, environment);
            return Err([errors, more].into_iter().fold(ConfigErrors::new(), |mut all, some| {
                all.extend(some);
                all
            }));
        }
        let (warnings, errors) = Check::of(self, &document, environment);
        self.rename(&mut document);
        Ok((Settings { document, environment: environment.clone(), warnings, format: Some(self.format) }, errors))
    }

    fn parse(&self, file: &ConfigFile) -> (Document, ConfigErrors) {
        let (parts, errors) = match self.format {
            Format::Gcfg => gcfg::parse(file.path(), file.text()),
            _ => yaml::parse(self, file),
        };
        (Document { file: Some(file.path().to_owned()), parts }, errors)
    }

    /// Replaces aliases and other spellings of sections and keys with the declared names, and removes unknown keys: one may have the
    /// name of a key in another format.
    fn rename(&self, document: &mut Document) {
        for part in &mut document.parts {
            let Some(section) = self.section(&part.name) else { continue };
            part.name = section.name.to_owned();
            part.entries.retain_mut(|entry| {
                let key = self.key(section, &entry.key);
                entry.key = key.map_or_else(String::new, |key| key.name.to_owned());
                key.is_some()
            });
        }
    }
}

impl Settings {
    /// Returns warnings about ignored sections and keys.
    pub fn warnings(&self) -> &[ConfigError] {
        &self.warnings
    }

    /// Reads the fields of a section.
    pub fn section<K: Keys>(&self, name: &str) -> K {
        K::read(&self.view(name))
    }

    /// Returns a section, for error messages about its keys.
    pub fn view<'a>(&'a self, name: &'a str) -> View<'a> {
        View { settings: self, section: name, subsection: None }
    }

    /// Reads the fields of each subsection, with its name, in the order of the file.
    pub fn named<'a, K: Keys>(&'a self, name: &'a str) -> Vec<(&'a str, K)> {
        self.views(name).into_iter().map(|(own, view)| (own, K::read(&view))).collect()
    }

    /// Returns each subsection with its name, in the order of the file.
    pub fn views<'a>(&'a self, name: &'a str) -> Vec<(&'a str, View<'a>)> {
        let mut subsections: Vec<(&str, View<'a>)> = Vec::new();
        for part in self.document.parts.iter().filter(|part| part.name == name) {
            let Some(own) = part.subsection.as_deref() else { continue };
            if !subsections.iter().any(|(known, _)| *known == own) {
                subsections.push((own, View { subsection: Some(own), ..self.view(name) }));
            }
        }
        subsections
    }
}

impl<'a> View<'a> {
    /// Returns all entries of a key, in the order of the file.
    fn entries(&self, key: &Key) -> impl Iterator<Item = &'a Entry> {
        let (view, name) = (*self, key.name);
        let is_here = move |part: &&Part| part.name == view.section && part.subsection.as_deref() == view.subsection;
        let parts = self.settings.document.parts.iter().filter(is_here);
        parts.flat_map(|part| &part.entries).filter(move |entry| entry.key == name)
    }

    /// Returns name and value of the environment variable that is set for a key; it takes precedence over the file.
    fn variable(&self, key: &Key) -> Option<(&'static str, &'a str)> {
        let own = (self.section == Section::ENVIRONMENT).then_some(key.name);
        let names = key.env.iter().copied().filter(|_| self.subsection.is_none()).chain(own);
        names.into_iter().find_map(|name| Some((name, self.settings.environment.get(name)?)))
    }

    /// Returns the value, or the default.
    pub fn get<T: Value>(&self, key: &Key) -> T {
        let texts: Vec<Option<&str>> = match self.variable(key) {
            Some((_, text)) => split_value(key.kind, text),
            None => self.entries(key).map(|entry| entry.value.as_deref()).collect(),
        };
        let read = if texts.is_empty() { None } else { T::read(&texts) };
        read.or_else(|| T::read(&split_value(key.kind, key.default))).unwrap_or_default()
    }

    /// Returns whether the key is set in the file or in the environment.
    pub fn has(&self, key: &Key) -> bool {
        self.variable(key).is_some() || self.entries(key).next().is_some()
    }

    /// Returns the nested section with this name.
    pub fn below(&self, name: &'a str) -> View<'a> {
        View { section: name, ..*self }
    }

    /// Creates an error for a key, with its line if it is set in the file.
    pub fn error(&self, key: &Key, message: impl Into<String>) -> ConfigError {
        if let Some((name, _)) = self.variable(key) {
            return ConfigError::new(message).field(name);
        }
        let format = self.settings.format.unwrap_or(Format::Gcfg);
        let error = match &self.settings.document.file {
            Some(file) => ConfigError::file(file, self.entries(key).last().map(|entry| entry.line), message),
            None => ConfigError::new(message),
        };
        error.field(format.field(self.section, self.subsection, key.name_in(format)))
    }
}

/// Splits a value from the environment or a default: the items of a list are separated by commas.
fn split_value(kind: Kind, text: &str) -> Vec<Option<&str>> {
    match kind {
        Kind::List(_) => text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(Some).collect(),
        _ if text.is_empty() => Vec::new(),
        _ => vec![Some(text)],
    }
}
