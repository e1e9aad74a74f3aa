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
        let config: Config = file.yaml()?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config, Problems> {
        Config::read(&ConfigFile::from_text("local.yaml", text))
    }

    #[test]
    fn every_key_may_be_left_out() {
        for text in ["", "# nothing\n", "{}"] {
            assert_eq!(read(text), Ok(Config::default()), "{text:?}");
        }
    }

    #[test]
    fn keys_are_read_as_they_are_documented() {
        let text = "endpoint: http://127.0.0.1:1\nidPrefix: other\nlisting: false\npageSize: 2\nbatchLookup: 3\n\
                    maxParallel: 4\nlookupByName: false\nshutdownState: false\nzones: false\nadditionalLabels: false\n";
        let config = Config {
            endpoint: "http://127.0.0.1:1".to_owned(),
            id_prefix: "other".to_owned(),
            listing: false,
            page_size: 2,
            batch_lookup: 3,
            max_parallel: 4,
            lookup_by_name: false,
            shutdown_state: false,
            zones: false,
            additional_labels: false,
        };
        assert_eq!(read(text), Ok(config));
    }

    #[test]
    fn all_that_is_wrong_is_told_at_once_with_its_line() {
        let text =
            "# ours\nendpoint: https://cloud\nidPrefix: \"a://b\"\n\npageSize: 0\nbatchLookup : 0\n'maxParallel': 0\n";
        let problems = read(text).unwrap_err();
        let places: Vec<_> = problems.iter().map(|problem| (problem.line, problem.field.as_deref())).collect();
        let wanted = [(2, "endpoint"), (3, "idPrefix"), (5, "pageSize"), (6, "batchLookup"), (7, "maxParallel")]
            .map(|(line, field)| (Some(line), Some(field)));
        assert_eq!(places, wanted, "{problems}");
        assert!(problems.to_string().starts_with("local.yaml:2: endpoint: the endpoint \"https://cloud\" does not"));
    }

    #[test]
    fn what_is_not_a_configuration_is_refused_with_its_line() {
        for (text, line) in
            [("zones: true\nzone: a\n", 2), ("listing: perhaps\n", 1), ("- a\n", 1), ("pageSize: -1", 1)]
        {
            let problems = read(text).unwrap_err();
            assert_eq!(problems.iter().next().and_then(|problem| problem.line), Some(line), "{text:?}: {problems}");
        }
    }
}
