//! The provider's configuration file.

use serde::{Deserialize, Serialize};

/// The provider's configuration file. Every key may be left out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Config {
    /// Where the cloud listens (`bowline cloud --listen`).
    pub endpoint: String,
    /// What its provider IDs start with: two local clouds in one cluster need two.
    pub id_prefix: String,
    /// Whether `list` is offered.
    pub listing: bool,
    /// How many machines one lookup names; 1 asks one by one.
    pub batch_lookup: usize,
    /// Whether a node without provider ID is looked for by its name.
    pub lookup_by_name: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            endpoint: "http://127.0.0.1:7480".to_owned(),
            id_prefix: "local".to_owned(),
            listing: true,
            batch_lookup: 100,
            lookup_by_name: true,
        }
    }
}
