//! A document and its declaration, put together.

use std::time::Duration;

use super::declared::{Key, Section, same};
use super::document::{Document, Entry, Part, head};
use super::value;
use crate::{ConfigFile, Problem, Problems, Secret, nearest};

/// A file whose values all have the types that were declared.
#[derive(Debug, Clone)]
pub struct Settings {
    document: Document,
    sections: &'static [Section],
    warnings: Vec<Problem>,
}

/// A section of it; where it says nothing, the defaults hold.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    document: &'a Document,
    section: &'static Section,
    own_name: Option<&'a str>,
}

impl Settings {
    /// Reads a file by its declaration, and says all that is wrong with it.
    pub fn read(file: &ConfigFile, sections: &'static [Section]) -> Result<Settings, Problems> {
        let (settings, problems) = Settings::check(file, sections)?;
        if problems.is_empty() { Ok(settings) } else { Err(problems) }
    }

    /// The same for a reader who has more to say: with values that are wrong, where the defaults hold, come the settings
    /// nevertheless. Without all lines of the file, there are none: nobody knows what is missing.
    pub fn check(file: &ConfigFile, sections: &'static [Section]) -> Result<(Settings, Problems), Problems> {
        let (document, problems) = Document::parse(file);
        let is_whole = problems.is_empty();
        let mut check = Check { document: &document, sections, warnings: Vec::new(), problems };
        document.parts().iter().for_each(|part| check.part(part));
        let Check { warnings, problems, .. } = check;
        if is_whole { Ok((Settings { document, sections, warnings }, problems)) } else { Err(problems) }
    }

    /// What is ignored because nobody declared it.
    pub fn warnings(&self) -> &[Problem] {
        &self.warnings
    }

    /// The section of that name, which has to be declared.
    pub fn section(&self, name: &str) -> View<'_> {
        View { document: &self.document, section: find(self.sections, name), own_name: None }
    }

    /// Each section with a name of its own, by that name, in the order of the file.
    pub fn named(&self, name: &str) -> Vec<(&str, View<'_>)> {
        let mut named: Vec<(&str, View<'_>)> = Vec::new();
        for part in self.document.parts().iter().filter(|part| same(&part.name, name)) {
            let Some(own) = part.own_name.as_deref() else { continue };
            if !named.iter().any(|(known, _)| *known == own) {
                named.push((own, View { own_name: Some(own), ..self.section(name) }));
            }
        }
        named
    }
}

/// The declaration of a section, or an empty one.
fn find(sections: &'static [Section], name: &str) -> &'static Section {
    const NONE: &Section = &Section::EMPTY;
    let found = sections.iter().find(|section| same(section.name, name));
    debug_assert!(found.is_some(), "[{name}] is not declared");
    found.unwrap_or(NONE)
}

// ---- what stands there

impl<'a> View<'a> {
    /// Every time that the key is there, in order.
    fn entries(&self, key: &str) -> impl Iterator<Item = &'a Entry> {
        let (section, own_name) = (self.section, self.own_name);
        let is_here = move |part: &&Part| same(&part.name, section.name) && part.own_name.as_deref() == own_name;
        let parts = self.document.parts().iter().filter(is_here);
        parts.flat_map(|part| &part.entries).filter(move |entry| same(&entry.key, key))
    }

    fn last(&self, key: &str) -> Option<&'a Entry> {
        self.entries(key).last()
    }

    fn default(&self, key: &str) -> &'static str {
        self.section.key(key).map_or("", |key| key.default)
    }

    /// Whether the key is there at all.
    pub fn has(&self, key: &str) -> bool {
        self.last(key).is_some()
    }

    /// A text.
    pub fn text(&self, key: &str) -> &'a str {
        self.last(key).and_then(|entry| entry.value.as_deref()).unwrap_or(self.default(key))
    }

    /// A text that is never printed.
    pub fn secret(&self, key: &str) -> Secret {
        self.text(key).into()
    }

    /// A text, if it is not empty.
    pub fn filled(&self, key: &str) -> Option<&'a str> {
        Some(self.text(key)).filter(|text| !text.is_empty())
    }

    /// What it says, or else the default.
    fn typed<T: Default, E>(&self, key: &str, read: impl Fn(&str) -> Result<T, E>) -> T {
        read(self.text(key)).or_else(|_| read(self.default(key))).unwrap_or_default()
    }

    /// True or false.
    pub fn flag(&self, key: &str) -> bool {
        match self.last(key) {
            Some(Entry { value: None, .. }) => true,
            _ => self.typed(key, value::boolean),
        }
    }

    /// A number.
    pub fn integer(&self, key: &str) -> i64 {
        self.typed(key, value::integer)
    }

    /// A number that is not negative.
    pub fn unsigned(&self, key: &str) -> u64 {
        self.typed(key, value::unsigned)
    }

    /// A duration.
    pub fn duration(&self, key: &str) -> Duration {
        self.typed(key, value::duration)
    }

    /// The texts of a list.
    pub fn list(&self, key: &str) -> Vec<String> {
        self.entries(key).fold(Vec::new(), |mut all, entry| match &entry.value {
            None => Vec::new(),
            Some(text) => {
                all.push(text.clone());
                all
            }
        })
    }

    /// A problem with this key, at the line where it stands, if it is there.
    pub fn problem(&self, key: &str, message: impl Into<String>) -> Problem {
        let line = self.last(key).map(|entry| entry.line);
        let field = format!("{} {key}", head(self.section.name, self.own_name));
        Problem::file(self.document.file(), line, message).field(field)
    }
}

// ---- whether it is right

/// All of a document is looked at, so that all that is wrong is told at once. A value that a later one replaces has to be
/// right nevertheless.
struct Check<'a> {
    document: &'a Document,
    sections: &'static [Section],
    warnings: Vec<Problem>,
    problems: Problems,
}

impl Check<'_> {
    fn part(&mut self, part: &Part) {
        let at = |message: String| Problem::file(self.document.file(), Some(part.line), message).field(part.head());
        let Some(section) = self.sections.iter().find(|section| same(section.name, &part.name)) else {
            let near = nearest(&part.name, self.sections.iter().map(|section| section.name));
            let warning = at("nobody knows this section, so it is ignored".to_owned());
            return self.warnings.push(suggesting(warning, near.map(|name| format!("[{name}]"))));
        };
        match (section.named, &part.own_name) {
            (false, Some(_)) => {
                let warning = at("a name of its own is not expected here, so it is ignored".to_owned());
                self.warnings.push(warning.hint(format!("write [{}]", section.name)));
            }
            (true, None) => {
                let warning = at("it has no name of its own, so nothing can refer to it".to_owned());
                self.warnings.push(warning.hint(format!("write [{} \"name\"]", section.name)));
                self.entries(part, section);
            }
            _ => self.entries(part, section),
        }
    }

    fn entries(&mut self, part: &Part, section: &'static Section) {
        for entry in &part.entries {
            match section.key(&entry.key) {
                Some(key) => self.value(part, section, entry, key),
                None if section.is_former(&entry.key) => {}
                None => {
                    let near = nearest(&entry.key, section.keys.iter().map(|key| key.name));
                    let warning = self.at(part, section, entry, "nobody knows this key, so it is ignored".to_owned());
                    self.warnings.push(suggesting(warning, near.map(str::to_owned)));
                }
            }
        }
    }

    fn value(&mut self, part: &Part, section: &Section, entry: &Entry, key: &Key) {
        if let Some((message, hint)) = key.kind.mistake(entry.value.as_deref()) {
            self.problems.push(self.at(part, section, entry, message).hint(hint));
        }
    }

    fn at(&self, part: &Part, section: &Section, entry: &Entry, message: String) -> Problem {
        let name = section.key(&entry.key).map_or(entry.key.as_str(), |key| key.name);
        let field = format!("{} {name}", head(section.name, part.own_name.as_deref()));
        Problem::file(self.document.file(), Some(entry.line), message).field(field)
    }
}

fn suggesting(warning: Problem, near: Option<String>) -> Problem {
    match near {
        Some(near) => warning.hint(format!("did you mean {near}?")),
        None => warning,
    }
}
