//! What Nova says. Everything may be null or missing, and is then empty.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::nullable;

/// A server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Server {
    #[serde(deserialize_with = "nullable")]
    pub(crate) id: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) name: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) status: String,
    #[serde(rename = "accessIPv4", deserialize_with = "nullable")]
    pub(crate) access_ipv4: String,
    #[serde(rename = "accessIPv6", deserialize_with = "nullable")]
    pub(crate) access_ipv6: String,
    /// By the name of the network.
    #[serde(deserialize_with = "nullable")]
    pub(crate) addresses: BTreeMap<String, Vec<ServerAddress>>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) metadata: BTreeMap<String, String>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) flavor: ServerFlavor,
    #[serde(rename = "OS-EXT-AZ:availability_zone", deserialize_with = "nullable")]
    pub(crate) availability_zone: String,
}

/// An address of a server, as Nova last heard of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ServerAddress {
    #[serde(deserialize_with = "nullable")]
    pub(crate) addr: String,
    /// `fixed` or `floating`.
    #[serde(rename = "OS-EXT-IPS:type", deserialize_with = "nullable")]
    pub(crate) kind: String,
}

/// The flavor of a server: its ID, or from microversion 2.47 on its name at the time when the server was made.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ServerFlavor {
    #[serde(deserialize_with = "nullable")]
    pub(crate) id: String,
    pub(crate) original_name: Option<String>,
}

/// A flavor.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Flavor {
    #[serde(deserialize_with = "nullable")]
    pub(crate) id: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) name: String,
}
