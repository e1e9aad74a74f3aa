//! The reference page, from the declaration.

use super::declared::{Format, Key, Kind, Section, Table};

impl Table {
    /// A table for each section that has keys, in Markdown.
    pub fn reference(&self) -> String {
        self.sections.iter().filter(|section| !section.keys.is_empty()).map(|section| self.page(section)).collect()
    }

    fn page(&self, section: &Section) -> String {
        let has_variables = section.keys.iter().any(|key| !key.env.is_empty());
        let rows: String = section.keys.iter().map(|key| self.row(key, has_variables)).collect();
        let (columns, rule) = if has_variables { (" variable |", "---|") } else { ("", "") };
        let head = self.head(section);
        format!("{head}\n| key |{columns} type | default | meaning |\n|---|{rule}---|---|---|\n{rows}")
    }

    fn head(&self, section: &Section) -> String {
        let Section { name, doc, .. } = section;
        match (self.format, section.named) {
            (_, _) if name.is_empty() => String::new(),
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
