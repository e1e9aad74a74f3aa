//! Droplets.

use bowline_cloud::Result;
use bowline_http::Page;
use serde::Deserialize;

use super::Client;

/// A Droplet.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Droplet {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) status: DropletStatus,
    #[serde(default)]
    pub(crate) size_slug: String,
    #[serde(default)]
    pub(crate) region: super::Region,
    pub(crate) networks: Option<Networks>,
}

/// Status of a Droplet. An unknown status does not count as off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DropletStatus {
    Off,
    #[serde(other)]
    Other,
}

/// Networks of a Droplet, by IP family.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Networks {
    pub(crate) v4: Vec<Network>,
    pub(crate) v6: Vec<Network>,
}

/// An address of a Droplet.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Network {
    pub(crate) ip_address: String,
    /// `public` or `private`.
    #[serde(rename = "type")]
    pub(crate) kind: String,
}

/// Number of all items of a list.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Meta {
    total: u64,
}

impl Droplet {
    /// Returns the first private IPv4 address.
    pub(crate) fn private_v4(&self) -> Option<&str> {
        self.networks.as_ref().and_then(|networks| first(&networks.v4, "private"))
    }

    /// Returns the first public IPv4 address.
    pub(crate) fn public_v4(&self) -> Option<&str> {
        self.networks.as_ref().and_then(|networks| first(&networks.v4, "public"))
    }

    /// Returns the first public IPv6 address.
    pub(crate) fn public_v6(&self) -> Option<&str> {
        self.networks.as_ref().and_then(|networks| first(&networks.v6, "public"))
    }
}

fn first<'a>(networks: &'a [Network], kind: &str) -> Option<&'a str> {
    networks.iter().find(|network| network.kind == kind).map(|network| network.ip_address.as_str())
}

impl Client {
    /// Returns the Droplet with this ID; `None` if there is none.
    pub(crate) async fn droplet(&self, id: u64) -> Result<Option<Droplet>> {
        self.find("droplet_get", &["v2", "droplets", &id.to_string()], "droplet").await
    }

    /// Returns a page of all Droplets except those with a GPU, which the API lists only on request.
    pub(crate) async fn droplets_page(&self, token: Option<String>) -> Result<Page<Droplet>> {
        self.page("droplet_list", "droplets", &[], token).await
    }

    /// Returns all Droplets except those with a GPU.
    pub(crate) async fn droplets(&self) -> Result<Vec<Droplet>> {
        self.all("droplet_list", "droplets", &[]).await
    }

    /// Returns the Droplets of this name. The API ignores case.
    pub(crate) async fn droplets_of_name(&self, name: &str) -> Result<Vec<Droplet>> {
        self.all("droplet_list", "droplets", &[("name", name)]).await
    }

    /// Returns the number of Droplets.
    pub(crate) async fn count_droplets(&self) -> Result<u64> {
        Ok(self.first("droplet_list", "droplets", &[]).await?.field::<Meta>("meta")?.total)
    }
}
