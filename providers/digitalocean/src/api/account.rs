//! Account, regions, VPCs and tags.

use bowline_cloud::{Effect, Result};
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Client;

/// The account of the token.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Account {
    pub(crate) droplet_limit: u64,
    pub(crate) status: String,
    pub(crate) status_message: String,
}

/// A region.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub(crate) struct Region {
    pub(crate) slug: String,
}

/// A VPC.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Vpc {
    pub(crate) name: String,
    pub(crate) region: String,
}

/// A resource that gets a tag.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct TaggedResource {
    pub(crate) resource_id: String,
    pub(crate) resource_type: &'static str,
}

impl TaggedResource {
    /// Returns the load balancer with this ID as a resource.
    pub(crate) fn load_balancer(id: &str) -> TaggedResource {
        TaggedResource { resource_id: id.to_owned(), resource_type: "load_balancer" }
    }
}

impl Client {
    /// Returns the account.
    pub(crate) async fn account(&self) -> Result<Account> {
        self.api.call("account_get", Method::GET, &["v2", "account"]).send().await?.field("account")
    }

    /// Returns all regions.
    pub(crate) async fn regions(&self) -> Result<Vec<Region>> {
        self.all("region_list", "regions", &[]).await
    }

    /// Returns the VPC with this ID; `None` if there is none.
    pub(crate) async fn vpc(&self, id: &str) -> Result<Option<Vpc>> {
        self.find("vpc_get", &["v2", "vpcs", id], "vpc").await
    }

    /// Reads one item of a list, to check that the token may read it.
    pub(crate) async fn probe(&self, name: &'static str, resource: &str) -> Result<()> {
        self.first(name, resource, &[]).await?.without_result()
    }

    /// Creates a tag. The API returns a tag that exists.
    pub(crate) async fn create_tag(&self, tag: &str) -> Result<()> {
        let call = self.api.call("tag_create", Method::POST, &["v2", "tags"]).effect(Effect::IdempotentWrite);
        call.json(&json!({ "name": tag })).send().await?.without_result()
    }

    /// Adds a tag to resources. Fails with `NotFound` if the tag does not exist.
    pub(crate) async fn tag(&self, tag: &str, resources: &[TaggedResource]) -> Result<()> {
        let call = self.api.call("tag_resources", Method::POST, &["v2", "tags", tag, "resources"]);
        call.effect(Effect::IdempotentWrite).json(&json!({ "resources": resources })).send().await?.without_result()
    }

    /// Removes a tag from resources. Succeeds if the tag does not exist.
    pub(crate) async fn untag(&self, tag: &str, resources: &[TaggedResource]) -> Result<()> {
        let call = self.api.call("untag_resources", Method::DELETE, &["v2", "tags", tag, "resources"]);
        let response = call.json(&json!({ "resources": resources })).find().await?;
        response.map_or(Ok(()), |response| response.without_result())
    }
}
