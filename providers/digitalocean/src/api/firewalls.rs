//! Cloud firewalls.

use bowline_cloud::Result;
use serde::{Deserialize, Serialize};

use super::Client;

/// A firewall, as the API returns it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Firewall {
    pub(crate) id: String,
    #[serde(flatten)]
    pub(crate) settings: FirewallSettings,
}

/// Body of a request that creates or replaces a firewall. All five fields are always sent; lists without items are null.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct FirewallSettings {
    pub(crate) name: String,
    pub(crate) inbound_rules: Option<Vec<Rule>>,
    pub(crate) outbound_rules: Option<Vec<Rule>>,
    pub(crate) droplet_ids: Option<Vec<u64>>,
    pub(crate) tags: Option<Vec<String>>,
}

/// Traffic that may enter or leave.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Rule {
    pub(crate) protocol: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) ports: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sources: Option<Peers>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) destinations: Option<Peers>,
}

/// Sources or destinations. The API knows more kinds of peers; the manager sets and compares these alone.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Peers {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) addresses: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) load_balancer_uids: Vec<String>,
}

impl Client {
    /// Returns the firewall with this ID; `None` if there is none.
    pub(crate) async fn firewall(&self, id: &str) -> Result<Option<Firewall>> {
        self.find("firewall_get", &["v2", "firewalls", id], "firewall").await
    }

    /// Returns the first firewall of this name; `None` if there is none.
    pub(crate) async fn firewall_of_name(&self, name: &str) -> Result<Option<Firewall>> {
        let all: Vec<Firewall> = self.all("firewall_list", "firewalls", &[]).await?;
        Ok(all.into_iter().find(|firewall| firewall.settings.name == name))
    }

    /// Creates a firewall, or replaces that with this ID.
    pub(crate) async fn write_firewall(&self, id: Option<&str>, settings: &FirewallSettings) -> Result<Firewall> {
        let name = if id.is_some() { "firewall_update" } else { "firewall_create" };
        self.write(name, "firewalls", id).json(settings).send().await?.field("firewall")
    }
}
