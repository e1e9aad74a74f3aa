//! Configuration template, generated from the declaration.

use super::declared::{Example, Format, Section, Table, header};

impl Table {
    /// Returns a file with these sections and keys, each below its description. `section.own` is a subsection.
    pub fn template(&self, shown: &[(&str, &[Example])]) -> String {
        let head = if self.format == Format::Gcfg { QUOTES } else { "" };
        let sections = shown.iter().filter_map(|(name, examples)| {
            let (name, own) = name.split_once('.').map_or((*name, None), |(name, own)| (name, Some(own)));
            Some(self.examples(self.section(name)?, own, examples))
        });
        format!("{head}{}", sections.collect::<Vec<_>>().join("\n"))
    }

    fn examples(&self, section: &Section, own: Option<&str>, examples: &[Example]) -> String {
        let doc = section.doc;
        let head = match (self.format, section.name, own) {
            (_, "", _) => String::new(),
            (Format::Gcfg, name, _) => format!("# {doc}\n{}\n", header(name, own)),
            (_, name, None) => format!("# {doc}\n{name}:\n"),
            (_, name, Some(own)) => format!("# {doc}\n{name}:\n  {own}:\n"),
        };
        let indent = match own {
            _ if self.format == Format::Gcfg || section.name.is_empty() => "",
            None => "  ",
            Some(_) => "    ",
        };
        let lines = examples.iter().map(|example| self.example(indent, example));
        head + &lines.collect::<String>()
    }

    fn example(&self, indent: &str, example: &Example) -> String {
        let (mark, key, value) = match example {
            Example::Set(key, value) => ("", key, value),
            Example::Optional(key, value) => ("#", key, value),
        };
        let sign = if self.format == Format::Gcfg { " =" } else { ":" };
        format!("{indent}# {}\n{mark}{indent}{}{sign} {value}\n", key.doc, key.name_in(self.format))
    }
}

const QUOTES: &str = "# Quote values that contain # ; \" or \\.\n\n";
