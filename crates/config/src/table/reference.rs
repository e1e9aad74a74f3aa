//! Reference page, generated from the declaration.

use super::declared::{Format, Key, Kind, Section, Table, UnknownKeys};

impl Table {
    /// Returns a Markdown table for each section that has keys.
    pub fn reference(&self) -> String {
        self.sections.iter().filter(|section| !section.keys.is_empty()).map(|section| self.page(section)).collect()
    }

    /// Returns the syntax of the file format as a Markdown list; empty for YAML, which is standardised.
    pub fn syntax(&self) -> String {
        let unknown = match self.unknown {
            UnknownKeys::Warn => {
                "is ignored with a warning. Any other error ends the program, with a message that has file, line and key"
            }
            UnknownKeys::Reject => "is an error, which ends the program with a message that has file, line and key",
        };
        match self.format {
            Format::Gcfg => format!("{GCFG}- An unknown section or key {unknown}.\n"),
            _ => String::new(),
        }
    }

    fn page(&self, section: &Section) -> String {
        let has_variables = section.keys.iter().any(|key| !key.env.is_empty());
        let rows: String = section.keys.iter().map(|key| self.row(key, has_variables)).collect();
        let (columns, rule) = if has_variables { (" variable |", "---|") } else { ("", "") };
        let head = self.head(section);
        let key = if section.is_environment() { "variable" } else { "key" };
        format!("{head}\n| {key} |{columns} type | default | meaning |\n|---|{rule}---|---|---|\n{rows}")
    }

    fn head(&self, section: &Section) -> String {
        let Section { name, doc, .. } = section;
        match (self.format, section.named) {
            (_, _) if name.is_empty() => String::new(),
            (_, _) if section.is_environment() => format!("\n## Environment variables\n\n{doc}\n"),
            (Format::Gcfg, false) => format!("\n## `[{name}]`\n\n{doc}\n"),
            (Format::Gcfg, true) => format!("\n## `[{name} \"name\"]`\n\n{doc}\n"),
            (_, false) => format!("\n## `{name}`\n\n{doc}\n"),
            (_, true) => format!("\n## `{name}.NAME`\n\n{doc}\n"),
        }
    }

    fn row(&self, key: &Key, has_variables: bool) -> String {
        let code = |text: &str| if text.is_empty() { String::new() } else { format!("`{text}`") };
        let names = std::iter::once(key.name)
            .chain(key.gcfg)
            .chain(key.aliases.iter().copied())
            .map(code)
            .collect::<Vec<_>>()
            .join(", ");
        let variables = key.env.iter().copied().map(code).collect::<Vec<_>>().join(", ");
        let cells = [names, variables, self.kind(key.kind), code(key.default), key.doc.to_owned()];
        let cells = cells.into_iter().enumerate().filter(|(column, _)| *column != 1 || has_variables);
        format!("| {} |\n", cells.map(|(_, cell)| cell.replace('|', "\\|")).collect::<Vec<_>>().join(" | "))
    }

    fn kind(&self, kind: Kind) -> String {
        match kind {
            Kind::Text => "string".to_owned(),
            Kind::Secret => "string, never printed".to_owned(),
            Kind::Bool => "bool".to_owned(),
            Kind::Integer => "integer".to_owned(),
            Kind::Unsigned | Kind::Count => "integer, not negative".to_owned(),
            Kind::Positive => "number above 0".to_owned(),
            Kind::Duration => "duration".to_owned(),
            Kind::OneOf(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
            Kind::List(item) if self.format == Format::Gcfg => format!("{}, may be repeated", self.kind(*item)),
            Kind::List(item) => format!("list of {}", self.kind(*item)),
            Kind::Map => "mapping of strings".to_owned(),
        }
    }
}

const GCFG: &str = "\
- A line is `[Section]`, `key = value`, or empty. `#` and `;` start a comment, also after a value.
- Names consist of letters, digits and `-` and are case-insensitive. A `_` in a name is an error.
- Quote a value that contains `#`, `;`, `\"` or `\\`, or has whitespace at either end; inside quotes, write `\\\"` and `\\\\`. \
Without quotes, `password = ab#cd` is the password `ab`.
- A bool is `true`, `yes`, `on`, `1` or one of their opposites; a key without a value is `true`.
- A duration needs a unit: `5s`, `1m30s`, `1500ms`. `5` is an error.
- The last value of a repeated key is used. A key that may be repeated has all its values; without a value, it clears the \
earlier ones.
";
