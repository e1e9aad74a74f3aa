//! EC2 2016-11-15: instances, networks, security groups, routes and tags.

mod instances;
mod network;
mod security_groups;
#[cfg(test)]
pub(crate) mod testing;

use bowline_cloud::Result;
use bowline_http::{Page, all_pages};
use serde::de::DeserializeOwned;

#[cfg(test)]
pub(crate) use instances::{Attachment, Ipv6Address, PrivateIpAddress};
pub(crate) use instances::{GroupName, Instance, InstanceTopology, NetworkInterface, PAGE};
#[cfg(test)]
pub(crate) use network::Association;
pub(crate) use network::{AvailabilityZone, Route, RouteTable, Subnet};
pub(crate) use security_groups::{NewSecurityGroup, Rule, SecurityGroup, Source};

use super::xml::{items, token};
use super::{Filter, Query, Service, Tags};

/// Name in the call layer, and version of the API.
pub(crate) const API: (&str, &str) = ("ec2", "2016-11-15");

/// Client of EC2. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Ec2(pub(crate) Service);

/// A response with pages.
trait Paged {
    type Item;

    fn into_page(self) -> Page<Self::Item>;
}

/// Implements [`Paged`] for a response with a list of EC2 and a token.
macro_rules! paged {
    ($response:ident, $item:ty, $set:literal) => {
        #[derive(serde::Deserialize)]
        struct $response {
            #[serde(rename = $set, deserialize_with = "crate::api::ec2::items")]
            items: Vec<$item>,
            #[serde(rename = "nextToken", default, deserialize_with = "crate::api::ec2::token")]
            next: Option<String>,
        }

        impl crate::api::ec2::Paged for $response {
            type Item = $item;

            fn into_page(self) -> Page<$item> {
                Page { items: self.items, next: self.next }
            }
        }
    };
}
use paged;

impl Ec2 {
    /// Reads one page of a list.
    async fn page<R: Paged + DeserializeOwned>(&self, query: Query, token: Option<String>) -> Result<Page<R::Item>> {
        let response: R = self.0.send(query.with_some("NextToken", token)).await?;
        Ok(response.into_page())
    }

    /// Reads all pages of a list.
    async fn all<R: Paged + DeserializeOwned>(&self, query: Query) -> Result<Vec<R::Item>> {
        all_pages(query.action, |token| self.page::<R>(query.clone(), token)).await
    }

    /// Adds tags to resources, and replaces those with the same keys.
    pub(crate) async fn create_tags(&self, resources: &[String], tags: &Tags) -> Result<()> {
        self.0.execute(tagging("CreateTags", resources, tags)).await
    }

    /// Removes tags with these keys and values from resources.
    pub(crate) async fn delete_tags(&self, resources: &[String], tags: &Tags) -> Result<()> {
        self.0.execute(tagging("DeleteTags", resources, tags)).await
    }
}

fn tagging(action: &'static str, resources: &[String], tags: &Tags) -> Query {
    Query::write(action).with_list("ResourceId", resources).with_pairs("Tag", tags)
}

fn filtered(action: &'static str, filters: &[Filter]) -> Query {
    Query::read(action).with_filters(filters)
}
