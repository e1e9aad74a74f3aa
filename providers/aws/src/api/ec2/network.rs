//! Zones, subnets and route tables.

use bowline_cloud::Result;
use bowline_http::Page;
use serde::Deserialize;

use super::super::xml::{Items, item_tags, items};
use super::super::{Filter, Query, Tags};
use super::{Ec2, filtered, paged};

/// An availability zone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AvailabilityZone {
    #[serde(rename = "zoneName")]
    pub(crate) name: String,
    #[serde(rename = "zoneId", default)]
    pub(crate) id: String,
    /// `availability-zone`, `local-zone` or `wavelength-zone`.
    #[serde(rename = "zoneType", default)]
    pub(crate) kind: String,
}

/// A subnet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Subnet {
    #[serde(rename = "subnetId")]
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) vpc_id: String,
    #[serde(default)]
    pub(crate) availability_zone: String,
    #[serde(default)]
    pub(crate) cidr_block: String,
    #[serde(rename = "tagSet", default, deserialize_with = "item_tags")]
    pub(crate) tags: Tags,
}

/// A route table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RouteTable {
    #[serde(rename = "routeTableId")]
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) vpc_id: String,
    #[serde(rename = "associationSet", default, deserialize_with = "items")]
    pub(crate) associations: Vec<Association>,
    #[serde(rename = "routeSet", default, deserialize_with = "items")]
    pub(crate) routes: Vec<Route>,
    #[serde(rename = "tagSet", default, deserialize_with = "item_tags")]
    pub(crate) tags: Tags,
}

/// Association of a route table with a subnet, or with its VPC as the main table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Association {
    #[serde(default)]
    pub(crate) main: bool,
    #[serde(default)]
    pub(crate) subnet_id: String,
}

/// A route.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Route {
    /// IPv4 destination; empty for a route with another kind of destination.
    #[serde(default)]
    pub(crate) destination_cidr_block: String,
    #[serde(default)]
    pub(crate) gateway_id: String,
    #[serde(default)]
    pub(crate) instance_id: String,
    /// `active` or `blackhole`.
    #[serde(default)]
    pub(crate) state: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DescribeAvailabilityZones {
    availability_zone_info: Items<AvailabilityZone>,
}

paged!(DescribeSubnets, Subnet, "subnetSet");
paged!(DescribeRouteTables, RouteTable, "routeTableSet");

impl Ec2 {
    /// Reads the zones of the region that are enabled for the account.
    pub(crate) async fn availability_zones(&self) -> Result<Vec<AvailabilityZone>> {
        let response: DescribeAvailabilityZones = self.0.send(Query::read("DescribeAvailabilityZones")).await?;
        Ok(response.availability_zone_info.items)
    }

    /// Reads the subnets that match filters.
    pub(crate) async fn subnets(&self, filters: &[Filter]) -> Result<Vec<Subnet>> {
        self.all::<DescribeSubnets>(filtered("DescribeSubnets", filters)).await
    }

    /// Reads the route tables that match filters.
    pub(crate) async fn route_tables(&self, filters: &[Filter]) -> Result<Vec<RouteTable>> {
        self.all::<DescribeRouteTables>(filtered("DescribeRouteTables", filters)).await
    }

    /// Creates a route to an instance.
    pub(crate) async fn create_route(&self, table: &str, cidr: &str, instance: &str) -> Result<()> {
        let query = Query::create("CreateRoute").with("RouteTableId", table).with("DestinationCidrBlock", cidr);
        self.0.execute(query.with("InstanceId", instance)).await
    }

    /// Deletes the route to a destination.
    pub(crate) async fn delete_route(&self, table: &str, cidr: &str) -> Result<()> {
        let query = Query::write("DeleteRoute").with("RouteTableId", table);
        self.0.execute(query.with("DestinationCidrBlock", cidr)).await
    }
}
