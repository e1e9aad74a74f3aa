//! Validation of a configuration. All of it is checked, so that all errors are reported at once.

use super::declared::{Format, Key, Kind, Section, Table, UnknownKeys, suggestion};
use super::document::{Document, Entry, Part, Shape};
use crate::{ConfigError, ConfigErrors, Environment, nearest};

/// Validator of a configuration. A value that a later one replaces must be valid as well.
pub(super) struct Check<'a> {
    table: &'a Table,
    document: &'a Document,
    warnings: Vec<ConfigError>,
    errors: ConfigErrors,
}

impl Check<'_> {
    /// Validates a configuration and returns its warnings and errors.
    pub(super) fn of(
        table: &Table,
        document: &Document,
        environment: &Environment,
    ) -> (Vec<ConfigError>, ConfigErrors) {
        let mut check = Check { table, document, warnings: Vec::new(), errors: ConfigErrors::new() };
        document.parts.iter().for_each(|part| check.part(part));
        let variables = table.sections.iter().filter(|section| !section.named);
        variables.for_each(|section| check.variables(section, environment));
        (check.warnings, check.errors)
    }

    fn part(&mut self, part: &Part) {
        let Some(section) = self.table.section(&part.name) else { return self.unknown_section(part) };
        match (section.named, &part.subsection) {
            // In YAML, this is a mapping in place of a value.
            (false, Some(own)) if self.table.format != Format::Gcfg => {
                let entries = vec![mapping(own, part.line)];
                self.entries(&Part { subsection: None, entries, ..part.clone() }, section);
            }
            (false, Some(_)) => {
                let warning = self.at_head(part, "the section takes no subsection name, and is ignored");
                self.warnings.push(warning.hint(format!("write [{}]", section.name)));
            }
            (true, None) => {
                let warning = self.at_head(part, "the subsection name is missing, so nothing can refer to the section");
                let hint = match self.table.format {
                    Format::Gcfg => format!("write [{} \"name\"]", section.name),
                    _ => format!("write the keys below {}.NAME", section.name),
                };
                self.warnings.push(warning.hint(hint));
                self.entries(part, section);
            }
            _ => self.entries(part, section),
        }
    }

    fn unknown_section(&mut self, part: &Part) {
        // In YAML, this may be a key of the document with a mapping in place of a value.
        if let Some(document) = self.table.section("") {
            let entries = vec![mapping(&part.name, part.line)];
            return self.entries(&Part { name: String::new(), subsection: None, entries, ..part.clone() }, document);
        }
        // A document without declared keys of its own has only sections.
        if part.name.is_empty() {
            return part.entries.iter().for_each(|entry| self.unknown_key(part, &Section::default(), entry));
        }
        let names = self.table.sections.iter().map(|section| section.name);
        if self.table.unknown == UnknownKeys::Reject {
            let error = self.at_head(part, "unknown section");
            return self.errors.push(error.hint(suggestion(&part.name, names)));
        }
        let near = nearest(&part.name, names);
        let near =
            near.map(|name| if self.table.format == Format::Gcfg { format!("[{name}]") } else { name.to_owned() });
        let warning = self.at_head(part, "unknown section, ignored");
        self.warnings.push(with_suggestion(warning, near));
    }

    fn entries(&mut self, part: &Part, section: &Section) {
        for entry in &part.entries {
            match self.table.key(section, &entry.key) {
                Some(key) => self.value(part, section, entry, key),
                None if self.table.is_obsolete(section, &entry.key) => {}
                None => self.unknown_key(part, section, entry),
            }
        }
    }

    fn unknown_key(&mut self, part: &Part, section: &Section, entry: &Entry) {
        // The names of the sections are keys of the document as well.
        let below = self.table.sections.iter().filter(|below| section.name.is_empty() && !below.name.is_empty());
        let names = section.keys.iter().map(|key| key.name_in(self.table.format)).chain(below.map(|below| below.name));
        let at = |message| self.at(part, section, &entry.key, entry.line, message);
        let is_section = section.name.is_empty() && self.table.section(&entry.key).is_some();
        if is_section || self.table.is_group(section, &entry.key) {
            let error = at("expected a mapping").hint("write key: value below it");
            self.errors.push(error);
        } else if self.table.unknown == UnknownKeys::Reject {
            let error = at("unknown key").hint(suggestion(&entry.key, names));
            self.errors.push(error);
        } else {
            let near = nearest(&entry.key, names).map(str::to_owned);
            self.warnings.push(with_suggestion(at("unknown key, ignored"), near));
        }
    }

    fn value(&mut self, part: &Part, section: &Section, entry: &Entry, key: &Key) {
        let error = shape_error(self.table.format, key.kind, entry).or_else(|| key.kind.error(entry.value.as_deref()));
        if let Some((message, hint)) = error {
            let name = key.name_in(self.table.format);
            self.errors.push(self.at(part, section, name, entry.line, &message).hint(hint));
        }
    }

    /// Checks the environment variables of a section.
    fn variables(&mut self, section: &Section, environment: &Environment) {
        let own = |key: &'static str| section.is_environment().then_some(key);
        let names = |key: &Key| key.env.iter().copied().chain(own(key.name)).collect::<Vec<_>>();
        for (key, name) in section.keys.iter().flat_map(|key| names(key).into_iter().map(move |name| (key, name))) {
            let items = environment.get(name).map(|text| match key.kind {
                Kind::List(item) => (*item, text.split(',').map(str::trim).filter(|item| !item.is_empty()).collect()),
                kind => (kind, vec![text]),
            });
            let (kind, texts) = items.unwrap_or((Kind::Text, Vec::new()));
            for (message, hint) in texts.into_iter().filter_map(|text| kind.error(Some(text))) {
                self.errors.push(ConfigError::new(message).field(name).hint(hint));
            }
        }
    }

    fn at_head(&self, part: &Part, message: &str) -> ConfigError {
        let field = self.table.format.field(&part.name, part.subsection.as_deref(), "");
        ConfigError::file(self.document.file.clone().unwrap_or_default(), Some(part.line), message).field(field)
    }

    fn at(&self, part: &Part, section: &Section, key: &str, line: usize, message: &str) -> ConfigError {
        let field = self.table.format.field(section.name, part.subsection.as_deref(), key);
        ConfigError::file(self.document.file.clone().unwrap_or_default(), Some(line), message).field(field)
    }
}

/// Checks the YAML type of a value.
fn shape_error(format: Format, kind: Kind, entry: &Entry) -> Option<(String, String)> {
    let is_list = matches!(kind, Kind::List(_));
    let scalar = if let Kind::List(item) = kind { *item } else { kind };
    let is_text = matches!(scalar, Kind::Text | Kind::Secret | Kind::OneOf(_) | Kind::Duration);
    let is_valid = match entry.shape {
        Shape::Item => is_list,
        Shape::Quoted => is_text && !is_list,
        Shape::Plain => format == Format::Gcfg || !is_list && kind != Kind::Map,
        Shape::Mapping => kind == Kind::Map,
    };
    let (expected, hint) = match kind {
        Kind::List(_) => ("a list".to_owned(), "write [a, b]"),
        Kind::Map => (kind.description(), "write key: value below it"),
        _ => (kind.description(), "write a plain value"),
    };
    (!is_valid).then(|| (format!("expected {expected}"), hint.to_owned()))
}

fn mapping(key: &str, line: usize) -> Entry {
    Entry { key: key.to_owned(), value: None, line, shape: Shape::Mapping }
}

fn with_suggestion(warning: ConfigError, near: Option<String>) -> ConfigError {
    match near {
        Some(near) => warning.hint(format!("did you mean {near}?")),
        None => warning,
    }
}
