//! The reference page, from the declaration.

use super::declared::{Format, Key, Kind, Section, Table, Unknown};

impl Table {
    /// A table for each section that has keys, in Markdown.
    pub fn reference(&self) -> String {
        self.sections.iter().filter(|section| !section.keys.is_empty()).map(|section| self.page(section)).collect()
    }

    /// Rules of the file format, as a list in Markdown; empty for YAML, which has a standard.
    pub fn syntax(&self) -> String {
        let unknown = match self.unknown {
            Unknown::Warn => {
                "is ignored with a warning. Everything else that is wrong ends the program, with file, line and key"
            }
            Unknown::Refuse => {
                "is an error, as is everything else that is wrong; it ends the program, with file, line and key"
            }
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
        let names =
            std::iter::once(key.name).chain(key.aliases.iter().copied()).map(code).collect::<Vec<_>>().join(", ");
        let variables = key.env.iter().copied().map(code).collect::<Vec<_>>().join(", ");
        let cells = [names, variables, self.kind(key.kind), code(key.default), key.doc.to_owned()];
        let cells = cells.into_iter().enumerate().filter(|(column, _)| *column != 1 || has_variables);
        format!("| {} |\n", cells.map(|(_, cell)| cell.replace('|', "\\|")).collect::<Vec<_>>().join(" | "))
    }

    fn kind(&self, kind: Kind) -> String {
        match kind {
            Kind::Text => "text".to_owned(),
            Kind::Secret => "text, never printed".to_owned(),
            Kind::Bool => "bool".to_owned(),
            Kind::Integer => "integer".to_owned(),
            Kind::Unsigned => "integer, not negative".to_owned(),
            Kind::Duration => "duration".to_owned(),
            Kind::OneOf(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
            Kind::List(item) if self.format == Format::Gcfg => format!("{}, may be repeated", self.kind(*item)),
            Kind::List(item) => format!("list of {}", self.kind(*item)),
        }
    }
}

const GCFG: &str = "\
- Lines are `[Section]`, `key = value`, or empty. `#` and `;` begin comments, also behind a value.
- Names have letters, digits and `-`, in any case. A `_` in one is an error.
- A value with `#`, `;`, `\"` or `\\` in it, or with blanks at either end, is put in quotes; inside them, write `\\\"` and `\\\\`. \
`password = ab#cd` is the password `ab`.
- A bool is `true`, `yes`, `on`, `1` or their opposites; the key alone is `true`.
- A duration has a unit: `5s`, `1m30s`, `1500ms`. `5` is an error.
- A key that is there twice has its last value; one that may be repeated has all of them, and the key alone forgets those \
above it.
";
