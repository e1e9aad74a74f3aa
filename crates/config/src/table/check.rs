//! Whether a configuration is right: all of it is checked, so that everything that is wrong is reported at once.

use super::declared::{Format, Key, Kind, Section, Table, Unknown, suggestion};
use super::document::{Document, Entry, Part, Shape};
use crate::{ConfigError, ConfigErrors, Environment, nearest};

/// A value that a later one replaces has to be right nevertheless.
pub(super) struct Check<'a> {
    table: &'a Table,
    document: &'a Document,
    warnings: Vec<ConfigError>,
    errors: ConfigErrors,
}

impl Check<'_> {
    /// Warnings and problems.
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
        match (section.named, &part.own_name) {
            // In YAML, it is a mapping in place of a value.
            (false, Some(own)) if self.table.format != Format::Gcfg => {
                let entries = vec![mapping(own, part.line)];
                self.entries(&Part { own_name: None, entries, ..part.clone() }, section);
            }
            (false, Some(_)) => {
                let warning = self.at_head(part, "a name of its own is not expected here, so it is ignored");
                self.warnings.push(warning.hint(format!("write [{}]", section.name)));
            }
            (true, None) => {
                let warning = self.at_head(part, "it has no name of its own, so nothing can refer to it");
                self.warnings.push(warning.hint(format!("write [{} \"name\"]", section.name)));
                self.entries(part, section);
            }
            _ => self.entries(part, section),
        }
    }

    fn unknown_section(&mut self, part: &Part) {
        // In YAML, it may be a key of the document, with a mapping in place of a value.
        if let Some(document) = self.table.section("") {
            let entries = vec![mapping(&part.name, part.line)];
            return self.entries(&Part { name: String::new(), own_name: None, entries, ..part.clone() }, document);
        }
        let names = self.table.sections.iter().map(|section| section.name);
        if self.table.unknown == Unknown::Refuse {
            let problem = self.at_head(part, "there is no such section");
            return self.errors.push(problem.hint(suggestion(&part.name, names)));
        }
        let near = nearest(&part.name, names);
        let near =
            near.map(|name| if self.table.format == Format::Gcfg { format!("[{name}]") } else { name.to_owned() });
        let warning = self.at_head(part, "nobody knows this section, so it is ignored");
        self.warnings.push(suggesting(warning, near));
    }

    fn entries(&mut self, part: &Part, section: &Section) {
        for entry in &part.entries {
            match self.table.key(section, &entry.key) {
                Some(key) => self.value(part, section, entry, key),
                None if self.table.is_former(section, &entry.key) => {}
                None => self.unknown_key(part, section, entry),
            }
        }
    }

    fn unknown_key(&mut self, part: &Part, section: &Section, entry: &Entry) {
        // The document itself has the sections below it, too.
        let below = self.table.sections.iter().filter(|below| section.name.is_empty() && !below.name.is_empty());
        let names = section.keys.iter().map(|key| key.name).chain(below.map(|below| below.name));
        let at = |message| self.at(part, section, &entry.key, entry.line, message);
        let is_section = section.name.is_empty() && self.table.section(&entry.key).is_some();
        if is_section || self.table.is_group(section, &entry.key) {
            let problem = at("keys with values are wanted here").hint("write key: value below it");
            self.errors.push(problem);
        } else if self.table.unknown == Unknown::Refuse {
            let problem = at("there is no such key").hint(suggestion(&entry.key, names));
            self.errors.push(problem);
        } else {
            let near = nearest(&entry.key, names).map(str::to_owned);
            self.warnings.push(suggesting(at("nobody knows this key, so it is ignored"), near));
        }
    }

    fn value(&mut self, part: &Part, section: &Section, entry: &Entry, key: &Key) {
        let mistake =
            shape_mistake(self.table.format, key.kind, entry).or_else(|| key.kind.mistake(entry.value.as_deref()));
        if let Some((message, hint)) = mistake {
            self.errors.push(self.at(part, section, key.name, entry.line, &message).hint(hint));
        }
    }

    /// The environment variables of a section.
    fn variables(&mut self, section: &Section, environment: &Environment) {
        let own = |key: &'static str| section.is_environment().then_some(key);
        let names = |key: &Key| key.env.iter().copied().chain(own(key.name)).collect::<Vec<_>>();
        for (key, name) in section.keys.iter().flat_map(|key| names(key).into_iter().map(move |name| (key, name))) {
            let items = environment.get(name).map(|text| match key.kind {
                Kind::List(item) => (*item, text.split(',').map(str::trim).filter(|item| !item.is_empty()).collect()),
                kind => (kind, vec![text]),
            });
            let (kind, texts) = items.unwrap_or((Kind::Text, Vec::new()));
            for (message, hint) in texts.into_iter().filter_map(|text| kind.mistake(Some(text))) {
                self.errors.push(ConfigError::new(message).field(name).hint(hint));
            }
        }
    }

    fn at_head(&self, part: &Part, message: &str) -> ConfigError {
        let field = self.table.format.field(&part.name, part.own_name.as_deref(), "");
        ConfigError::file(self.document.file.clone().unwrap_or_default(), Some(part.line), message).field(field)
    }

    fn at(&self, part: &Part, section: &Section, key: &str, line: usize, message: &str) -> ConfigError {
        let field = self.table.format.field(section.name, part.own_name.as_deref(), key);
        ConfigError::file(self.document.file.clone().unwrap_or_default(), Some(line), message).field(field)
    }
}

/// What is wrong with the form of a value, in formats that have several.
fn shape_mistake(format: Format, kind: Kind, entry: &Entry) -> Option<(String, String)> {
    let is_list = matches!(kind, Kind::List(_));
    let scalar = if let Kind::List(item) = kind { *item } else { kind };
    let is_text = matches!(scalar, Kind::Text | Kind::Secret | Kind::OneOf(_) | Kind::Duration);
    let is_right = match entry.shape {
        Shape::Item => is_list,
        Shape::Quoted => is_text && !is_list,
        Shape::Plain => format == Format::Gcfg || !is_list,
        Shape::Mapping => false,
    };
    let (wanted, hint) =
        if is_list { ("a list".to_owned(), "write [a, b]") } else { (kind.description(), "write it plainly") };
    (!is_right).then(|| (format!("{wanted} is wanted here"), hint.to_owned()))
}

fn mapping(key: &str, line: usize) -> Entry {
    Entry { key: key.to_owned(), value: None, line, shape: Shape::Mapping }
}

fn suggesting(warning: ConfigError, near: Option<String>) -> ConfigError {
    match near {
        Some(near) => warning.hint(format!("did you mean {near}?")),
        None => warning,
    }
}
