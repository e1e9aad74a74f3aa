//! Client of the DigitalOcean API v2: one method for each call, and the records that it sends and receives.
//!
//! Required fields of a record have no default, so that an incomplete response is an error and not an empty value. Fields that the
//! API leaves out or sets to null have one.

mod account;
mod droplets;
mod errors;
mod firewalls;
mod load_balancers;

use std::future::Future;
use std::time::Duration;

use bowline_cloud::{Calls, Result};
use bowline_config::ConfigError;
use bowline_http::{Api, ApiResponse, Authorize, CallBuilder, Page, all_pages, rate_limit_until_epoch, user_agent};
use http::{Method, header};
use serde::Deserialize;
use serde::de::DeserializeOwned;

pub(crate) use account::{Account, Region, TaggedResource};
pub(crate) use droplets::{Droplet, DropletStatus};
pub(crate) use errors::Errors;
pub(crate) use firewalls::{Firewall, FirewallSettings, Peers, Rule};
pub(crate) use load_balancers::{
    Certificate, ForwardingRule, HealthCheck, LoadBalancer, LoadBalancerFirewall, LoadBalancerRequest,
    LoadBalancerSettings, StickySessions,
};

/// Number of items per page, the API's maximum.
// upstream: 50.
pub(crate) const PAGE: usize = 200;

/// Name of the API in the call layer.
const SERVICE: &str = "api";

/// Timeout of one call.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// User agent of the Go manager, with Bowline in place of its client library.
const USER_AGENT: &str = concat!(
    "digitalocean-cloud-controller-manager/",
    env!("CARGO_PKG_VERSION"),
    " bowline/",
    env!("CARGO_PKG_VERSION")
);

/// Client of the API. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Client {
    api: Api,
}

/// Links of a page, all of them optional.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Links {
    pages: Pages,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Pages {
    prev: String,
    next: String,
}

impl Client {
    /// Creates a client for the API at `base`.
    pub(crate) fn new(
        http: bowline_http::Client,
        calls: &Calls,
        base: &str,
        token: impl Authorize + 'static,
        user_agents: &[String],
    ) -> std::result::Result<Client, ConfigError> {
        let agent = user_agent(user_agents, USER_AGENT)?;
        let api = Api::new(http, calls, SERVICE).base(base).authorize(token).errors(Errors);
        Ok(Client { api: api.budget(rate_limit_until_epoch).header(header::USER_AGENT, agent) })
    }

    /// Reads all pages of a list.
    async fn all<T: DeserializeOwned>(
        &self,
        name: &'static str,
        resource: &str,
        filter: &[(&str, &str)],
    ) -> Result<Vec<T>> {
        all_pages(name, |page| self.page(name, resource, filter, page)).await
    }

    /// Reads one page of a list, the first one without a token. Tokens are page numbers.
    fn page<T: DeserializeOwned>(
        &self,
        name: &'static str,
        resource: &str,
        filter: &[(&str, &str)],
        token: Option<String>,
    ) -> impl Future<Output = Result<Page<T>>> + Send {
        let (number, size) = (token.unwrap_or_else(|| "1".to_owned()), PAGE.to_string());
        let query = [filter, &[("page", number.as_str()), ("per_page", size.as_str())]].concat();
        let call = self.api.call(name, Method::GET, &["v2", resource]).query(&query);
        let resource = resource.to_owned();
        async move {
            let response = call.send().await?;
            let mut fields = response.fields()?;
            let (items, links) = (fields.take(&resource)?, fields.take_or_default::<Links>("links")?);
            let next = response.decoded(links.next_page())?;
            Ok(Page { items, next: next.map(|page| page.to_string()) })
        }
    }

    /// Reads the first item of a list.
    async fn first(&self, name: &'static str, resource: &str, filter: &[(&str, &str)]) -> Result<ApiResponse> {
        let query = [filter, &[("page", "1"), ("per_page", "1")]].concat();
        self.api.call(name, Method::GET, &["v2", resource]).query(&query).send().await
    }

    /// Reads one object; `None` if there is none.
    async fn find<T: DeserializeOwned>(&self, name: &'static str, path: &[&str], field: &str) -> Result<Option<T>> {
        let response = self.api.call(name, Method::GET, path).find().await?;
        response.map(|response| response.field(field)).transpose()
    }

    /// Returns a call that creates a resource, or replaces that with this ID.
    fn write(&self, name: &'static str, resource: &str, id: Option<&str>) -> CallBuilder<'_> {
        match id {
            Some(id) => self.api.call(name, Method::PUT, &["v2", resource, id]),
            None => self.api.call(name, Method::POST, &["v2", resource]),
        }
    }
}

impl Links {
    /// Returns the number of the next page; `None` on the last one.
    // upstream: the number follows from the link to the previous page.
    fn next_page(&self) -> std::result::Result<Option<u64>, String> {
        if self.pages.next.is_empty() {
            return Ok(None);
        }
        let previous = if self.pages.prev.is_empty() { 0 } else { page_of(&self.pages.prev)? };
        Ok(Some(previous.saturating_add(2)))
    }
}

/// Returns the number in the query parameter `page` of a link.
fn page_of(link: &str) -> std::result::Result<u64, String> {
    let query = link.split_once('?').map_or("", |(_, query)| query);
    let page = query.split('&').find_map(|pair| pair.strip_prefix("page="));
    page.and_then(|page| page.parse().ok()).ok_or_else(|| format!("the link {link:?} has no page number"))
}
