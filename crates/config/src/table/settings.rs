//! A configuration and its declaration, put together.

use super::check::Check;
use super::declared::{Format, Key, Keys, Kind, Section, Table};
use super::document::{Document, Entry, Part};
use super::value::Value;
use super::{gcfg, yaml};
use crate::{ConfigError, ConfigErrors, ConfigFile, Environment};

/// A configuration whose values all have the types that were declared. The default says nothing at all.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// With the names that were declared.
    document: Document,
    environment: Environment,
    warnings: Vec<ConfigError>,
    format: Option<Format>,
}

/// A section of it; where it says nothing, the defaults hold.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    settings: &'a Settings,
    section: &'a str,
    own_name: Option<&'a str>,
}

impl Table {
    /// Reads a file and the environment, or reports everything that is wrong. Without a file, the environment and the defaults hold.
    pub fn read(&self, file: Option<&ConfigFile>, environment: &Environment) -> Result<Settings, ConfigErrors> {
        let (settings, errors) = self.check(file, environment)?;
        if errors.is_empty() { Ok(settings) } else { Err(errors) }
    }

    /// The same for a reader that checks more: with invalid values, in place of which the defaults hold, it returns the settings
    /// nevertheless. Without all lines of the file there are none: nothing is known about what is missing.
    pub fn check(
        &self,
        file: Option<&ConfigFile>,
        environment: &Environment,
    ) -> Result<(Settings, ConfigErrors), ConfigErrors> {
        let (mut document, errors) = file.map(|file| self.parse(file)).unwrap_or_default();
        if !errors.is_empty() {
            // The rest is checked, too, so that everything is reported at once.
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

    /// Sections and keys get the names that were declared.
    fn rename(&self, document: &mut Document) {
        for part in &mut document.parts {
            let Some(section) = self.section(&part.name) else { continue };
            part.name = section.name.to_owned();
            for entry in &mut part.entries {
                if let Some(key) = self.key(section, &entry.key) {
                    entry.key = key.name.to_owned();
                }
            }
        }
    }
}

impl Settings {
    /// What is ignored because it is not declared.
    pub fn warnings(&self) -> &[ConfigError] {
        &self.warnings
    }

    /// The fields of a section.
    pub fn section<K: Keys>(&self, name: &str) -> K {
        K::read(&self.view(name))
    }

    /// A section, for problems with its keys.
    pub fn view<'a>(&'a self, name: &'a str) -> View<'a> {
        View { settings: self, section: name, own_name: None }
    }

    /// The fields of each section with a name of its own, by that name, in the order of the file.
    pub fn named<'a, K: Keys>(&'a self, name: &'a str) -> Vec<(&'a str, K)> {
        self.views(name).into_iter().map(|(own, view)| (own, K::read(&view))).collect()
    }

    /// Each section with a name of its own, by that name, in the order of the file.
    pub fn views<'a>(&'a self, name: &'a str) -> Vec<(&'a str, View<'a>)> {
        let mut named: Vec<(&str, View<'a>)> = Vec::new();
        for part in self.document.parts.iter().filter(|part| part.name == name) {
            let Some(own) = part.own_name.as_deref() else { continue };
            if !named.iter().any(|(known, _)| *known == own) {
                named.push((own, View { own_name: Some(own), ..self.view(name) }));
            }
        }
        named
    }
}

impl<'a> View<'a> {
    /// Every time that the key is there, in order.
    fn entries(&self, key: &Key) -> impl Iterator<Item = &'a Entry> {
        let (view, name) = (*self, key.name);
        let is_here = move |part: &&Part| part.name == view.section && part.own_name.as_deref() == view.own_name;
        let parts = self.settings.document.parts.iter().filter(is_here);
        parts.flat_map(|part| &part.entries).filter(move |entry| entry.key == name)
    }

    /// Name and value of the environment variable that is set for a key; it goes before the file.
    fn variable(&self, key: &Key) -> Option<(&'static str, &'a str)> {
        let own = (self.section == Section::ENVIRONMENT).then_some(key.name);
        let names = key.env.iter().copied().filter(|_| self.own_name.is_none()).chain(own);
        names.into_iter().find_map(|name| Some((name, self.settings.environment.get(name)?)))
    }

    /// The value, or else the default.
    pub fn get<T: Value>(&self, key: &Key) -> T {
        let texts: Vec<Option<&str>> = match self.variable(key) {
            Some((_, text)) => written(key.kind, text),
            None => self.entries(key).map(|entry| entry.value.as_deref()).collect(),
        };
        let read = if texts.is_empty() { None } else { T::read(&texts) };
        read.or_else(|| T::read(&written(key.kind, key.default))).unwrap_or_default()
    }

    /// Whether the key is there at all.
    pub fn has(&self, key: &Key) -> bool {
        self.variable(key).is_some() || self.entries(key).next().is_some()
    }

    /// The section below this one.
    pub fn below(&self, name: &'a str) -> View<'a> {
        View { section: name, ..*self }
    }

    /// A problem with this key, at the line where it stands, if it is there.
    pub fn problem(&self, key: &Key, message: impl Into<String>) -> ConfigError {
        if let Some((name, _)) = self.variable(key) {
            return ConfigError::new(message).field(name);
        }
        let format = self.settings.format.unwrap_or(Format::Gcfg);
        let problem = match &self.settings.document.file {
            Some(file) => ConfigError::file(file, self.entries(key).last().map(|entry| entry.line), message),
            None => ConfigError::new(message),
        };
        problem.field(format.field(self.section, self.own_name, key.name))
    }
}

/// A value in one text: a list has commas between its items.
fn written(kind: Kind, text: &str) -> Vec<Option<&str>> {
    match kind {
        Kind::List(_) => text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(Some).collect(),
        _ if text.is_empty() => Vec::new(),
        _ => vec![Some(text)],
    }
}
