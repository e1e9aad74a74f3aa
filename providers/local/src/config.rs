//! The provider's configuration file.

use bowline_config::{ConfigFile, Problem, Problems};
use serde::{Deserialize, Serialize};

use crate::client::Endpoint;

/// The provider's configuration file. Every key may be left out. What is switched off is off for the provider only; the
/// cloud can still do it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Config {
    /// Where the cloud listens (`bowline cloud --listen`).
    pub endpoint: String,
    /// What its provider IDs start with: two local clouds in one cluster need two.
    pub id_prefix: String,
    /// Whether `list` is offered.
    pub listing: bool,
    /// How many machines a page of a listing is asked to hold; the cloud may send fewer.
    pub page_size: usize,
    /// How many machines one lookup names; 1 asks one by one. No more than the cloud's page size.
    pub batch_lookup: usize,
    /// How many calls may be under way at once.
    pub max_parallel: usize,
    /// Whether a node without provider ID is looked for by its name.
    pub lookup_by_name: bool,
    /// Whether a stopped machine is told from a running one.
    pub shutdown_state: bool,
    /// Whether zone and region are told.
    pub zones: bool,
    /// Whether further labels are told.
    pub additional_labels: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            endpoint: "http://127.0.0.1:7480".to_owned(),
            id_prefix: "local".to_owned(),
            listing: true,
            page_size: 100,
            batch_lookup: 100,
            max_parallel: 8,
            lookup_by_name: true,
            shutdown_state: true,
            zones: true,
            additional_labels: true,
        }
    }
}

impl Config {
    /// Reads the file and says all that is wrong with it.
    pub fn read(file: &ConfigFile) -> Result<Config, Problems> {
        // An empty file, or one of comments only, is YAML's null and not a mapping.
        let config = file.yaml::<Option<Config>>()?.unwrap_or_default();
        let mut problems = Problems::new();
        for (key, message) in config.mistakes() {
            problems.push(Problem::file(file.path(), line_of(file.text(), key), message).field(key));
        }
        if problems.is_empty() { Ok(config) } else { Err(problems) }
    }

    /// The keys whose values make no sense, and what would be right.
    fn mistakes(&self) -> Vec<(&'static str, String)> {
        let prefix = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'+');
        let mut mistakes = Vec::new();
        if let Err(error) = Endpoint::parse(&self.endpoint) {
            mistakes.push(("endpoint", error.to_string()));
        }
        if self.id_prefix.is_empty() || !self.id_prefix.bytes().all(prefix) {
            let message =
                format!("{:?} cannot stand before \"://\"; use letters, digits, '-', '.', '+'", self.id_prefix);
            mistakes.push(("idPrefix", message));
        }
        let numbers =
            [("pageSize", self.page_size), ("batchLookup", self.batch_lookup), ("maxParallel", self.max_parallel)];
        let zeros = numbers.into_iter().filter(|(_, number)| *number == 0);
        mistakes.extend(zeros.map(|(key, _)| (key, "must be at least 1".to_owned())));
        mistakes
    }
}

/// The line, from 1, on which a key of the outermost mapping stands; `None` if it is not written plainly.
fn line_of(text: &str, key: &str) -> Option<usize> {
    let holds = |line: &str| {
        let line = line.trim_start_matches(['{', ' ', '"', '\'']);
        line.strip_prefix(key).is_some_and(|rest| rest.trim_start_matches(['"', '\'', ' ']).starts_with(':'))
    };
    text.lines().position(holds).map(|index| index + 1)
}
