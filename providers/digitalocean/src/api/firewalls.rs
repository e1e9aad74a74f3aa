//! Cloud firewalls.

use bowline_cloud::Result;
use http::Method;
use serde::{Deserialize, Serialize};

use super::{Client, listing, nullable};

/// A firewall, as the API returns it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Firewall {
    pub(crate) id: String,
    #[serde(flatten)]
    pub(crate) settings: FirewallRequest,
}

/// Body of a request that creates or replaces a firewall. All five fields are always sent; lists without items are null.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FirewallRequest {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) inbound_rules: Option<Vec<InboundRule>>,
    #[serde(default)]
    pub(crate) outbound_rules: Option<Vec<OutboundRule>>,
    #[serde(default)]
    pub(crate) droplet_ids: Option<Vec<u64>>,
    #[serde(default)]
    pub(crate) tags: Option<Vec<String>>,
}

/// Traffic that may enter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InboundRule {
    pub(crate) protocol: String,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "str::is_empty")]
    pub(crate) ports: String,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) sources: Peers,
}

/// Traffic that may leave.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OutboundRule {
    pub(crate) protocol: String,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "str::is_empty")]
    pub(crate) ports: String,
    #[serde(default, deserialize_with = "nullable")]
    pub(crate) destinations: Peers,
}

/// Sources or destinations. The API knows more kinds of peers; the manager sets and compares these alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Peers {
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub(crate) addresses: Vec<String>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub(crate) load_balancer_uids: Vec<String>,
}

#[derive(Deserialize)]
struct Found {
    firewall: Firewall,
}

listing!(Firewalls, firewalls: Firewall);

const PATH: &[&str] = &["v2", "firewalls"];

impl Client {
    /// Returns the firewall with this ID; `None` if there is none.
    pub(crate) async fn firewall(&self, id: &str) -> Result<Option<Firewall>> {
        let found: Option<Found> = self.find("firewall_get", &["v2", "firewalls", id]).await?;
        Ok(found.map(|found| found.firewall))
    }

    /// Returns the first firewall of this name; `None` if there is none.
    pub(crate) async fn firewall_of_name(&self, name: &str) -> Result<Option<Firewall>> {
        let all = self.all::<Firewalls>("firewall_list", PATH, &[]).await?;
        Ok(all.into_iter().find(|firewall| firewall.settings.name == name))
    }

    /// Creates a firewall.
    pub(crate) async fn create_firewall(&self, request: &FirewallRequest) -> Result<Firewall> {
        let call = self.api.call("firewall_create", Method::POST, PATH);
        Ok(call.json(request).send().await?.json::<Found>()?.firewall)
    }

    /// Replaces a firewall.
    pub(crate) async fn update_firewall(&self, id: &str, request: &FirewallRequest) -> Result<Firewall> {
        let call = self.api.call("firewall_update", Method::PUT, &["v2", "firewalls", id]);
        Ok(call.json(request).send().await?.json::<Found>()?.firewall)
    }
}
