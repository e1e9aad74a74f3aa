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
use bowline_config::{ConfigError, ConfigErrors};
use bowline_http::{Api, ApiResponse, Authorize, Page, all_pages};
use http::{HeaderValue, Method, StatusCode, header};
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
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Links {
    pages: Pages,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Pages {
    prev: String,
    next: String,
}

/// Number of all items of a list.
#[derive(Debug, Default, Deserialize)]
struct Meta {
    #[serde(default)]
    total: u64,
}

/// A list, as the API returns it. Its items are in a field with the name of the resource.
trait Listing: DeserializeOwned + Send {
    type Item: Send;

    fn into_parts(self) -> (Vec<Self::Item>, Links);
}

/// Declares the response of a list call.
macro_rules! listing {
    ($name:ident, $field:ident: $item:ty) => {
        #[derive(serde::Deserialize)]
        struct $name {
            $field: Vec<$item>,
            #[serde(default)]
            links: crate::api::Links,
        }

        impl crate::api::Listing for $name {
            type Item = $item;

            fn into_parts(self) -> (Vec<$item>, crate::api::Links) {
                (self.$field, self.links)
            }
        }
    };
}
use listing;

impl Client {
    /// Creates a client for the API at `base`.
    pub(crate) fn new(
        http: bowline_http::Client,
        calls: &Calls,
        base: &str,
        token: impl Authorize + 'static,
        user_agents: &[String],
    ) -> std::result::Result<Client, ConfigErrors> {
        let agent = user_agents.iter().rev().map(String::as_str).chain([USER_AGENT]).collect::<Vec<_>>().join(" ");
        let agent = HeaderValue::try_from(agent).map_err(|_| {
            ConfigError::flag("user-agent", "it contains characters that are invalid in a header")
                .hint("remove control characters")
        })?;
        let api = Api::new(http, calls, SERVICE).base(base).authorize(token).errors(Errors);
        Ok(Client { api: api.budget(errors::budget).header(header::USER_AGENT, agent) })
    }

    /// Reads all pages of a list.
    async fn all<L: Listing>(
        &self,
        name: &'static str,
        path: &[&str],
        filter: &[(&str, &str)],
    ) -> Result<Vec<L::Item>> {
        all_pages(name, |page| self.page::<L>(name, path, filter, page)).await
    }

    /// Reads one page of a list, the first one without a token. Tokens are page numbers.
    fn page<L: Listing>(
        &self,
        name: &'static str,
        path: &[&str],
        filter: &[(&str, &str)],
        token: Option<String>,
    ) -> impl Future<Output = Result<Page<L::Item>>> + Send {
        let (number, size) = (token.unwrap_or_else(|| "1".to_owned()), PAGE.to_string());
        let query = [("page", number.as_str()), ("per_page", size.as_str())];
        let query: Vec<_> = filter.iter().copied().chain(query).collect();
        let call = self.api.call(name, Method::GET, path).query(&query);
        async move {
            let response = call.send().await?;
            let (items, links) = response.json_without_nulls::<L>()?.into_parts();
            let next = response.decoded(links.next_page())?;
            Ok(Page { items, next: next.map(|page| page.to_string()) })
        }
    }

    /// Reads one object; `None` if the API reports that it does not exist.
    async fn find<T: DeserializeOwned>(&self, name: &'static str, path: &[&str]) -> Result<Option<T>> {
        match self.api.call(name, Method::GET, path).send().await {
            Err(error) if error.is_not_found() => Ok(None),
            response => response?.json_without_nulls().map(Some),
        }
    }
}

/// Succeeds on a response without content. Any other must be JSON, otherwise it does not come from the API.
fn done(response: &ApiResponse) -> Result<()> {
    match response.status() {
        StatusCode::NO_CONTENT => Ok(()),
        _ => response.json::<serde_json::Value>().map(drop),
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
