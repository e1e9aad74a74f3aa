//! Configuration template, generated from the declaration.

use super::declared::{Example, Format, Key, Section, Table};

impl Table {
    /// Returns a file with these sections and keys, each below its description.
    pub fn template(&self, shown: &[(&str, &[Example])]) -> String {
        let head = if self.format == Format::Gcfg { QUOTES } else { "" };
        let sections = shown.iter().filter_map(|(name, examples)| Some(self.examples(self.section(name)?, examples)));
        format!("{head}{}", sections.collect::<Vec<_>>().join("\n"))
    }

    fn examples(&self, section: &Section, examples: &[Example]) -> String {
        let head = match (self.format, section.name) {
            (_, "") => String::new(),
            (Format::Gcfg, name) => format!("# {}\n[{name}]\n", section.doc),
            (_, name) => format!("# {}\n{name}:\n", section.doc),
        };
        let indent = if self.format == Format::Gcfg || section.name.is_empty() { "" } else { "  " };
        let lines = examples.iter().map(|example| self.example(indent, example));
        head + &lines.collect::<String>()
    }

    fn example(&self, indent: &str, example: &Example) -> String {
        let (mark, Key { name, doc, .. }, value) = match example {
            Example::Set(key, value) => ("", key, value),
            Example::Optional(key, value) => ("#", key, value),
        };
        let sign = if self.format == Format::Gcfg { " =" } else { ":" };
        format!("{indent}# {doc}\n{mark}{indent}{name}{sign} {value}\n")
    }
}

const QUOTES: &str = "# Quote values that contain # ; \" or \\.\n\n";
