//! Instances, their topology, and network interfaces.

use bowline_cloud::Result;
use bowline_http::Page;
use serde::Deserialize;

use super::super::xml::{Items, item_tags, items, token};
use super::super::{Filter, Query, Tags};
use super::{Ec2, filtered, paged};

/// An instance.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Instance {
    pub(crate) instance_id: String,
    #[serde(default)]
    pub(crate) instance_state: InstanceState,
    #[serde(default)]
    pub(crate) instance_type: String,
    #[serde(default)]
    pub(crate) private_dns_name: String,
    /// Public DNS name.
    #[serde(rename = "dnsName", default)]
    pub(crate) public_dns_name: String,
    #[serde(default)]
    pub(crate) private_ip_address: String,
    /// Public IPv4 address.
    #[serde(rename = "ipAddress", default)]
    pub(crate) public_ip_address: String,
    #[serde(default)]
    pub(crate) placement: Placement,
    #[serde(default)]
    pub(crate) vpc_id: String,
    #[serde(default)]
    pub(crate) subnet_id: String,
    /// Whether only packets from and to its own addresses pass; `None` if AWS reports nothing.
    #[serde(default)]
    pub(crate) source_dest_check: Option<bool>,
    #[serde(rename = "networkInterfaceSet", default, deserialize_with = "items")]
    pub(crate) network_interfaces: Vec<NetworkInterface>,
    #[serde(rename = "groupSet", default, deserialize_with = "items")]
    pub(crate) groups: Vec<GroupName>,
    #[serde(rename = "tagSet", default, deserialize_with = "item_tags")]
    pub(crate) tags: Tags,
}

/// State of an instance; the name is empty if AWS reports none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct InstanceState {
    #[serde(default)]
    pub(crate) name: String,
}

/// Placement of an instance.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Placement {
    #[serde(default)]
    pub(crate) availability_zone: String,
}

/// Reference to a security group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GroupName {
    pub(crate) group_id: String,
    #[serde(default)]
    pub(crate) group_name: String,
}

/// A network interface, of an instance or on its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NetworkInterface {
    #[serde(default)]
    pub(crate) network_interface_id: String,
    #[serde(default)]
    pub(crate) status: String,
    #[serde(default)]
    pub(crate) availability_zone: String,
    #[serde(default)]
    pub(crate) private_ip_address: String,
    #[serde(default)]
    pub(crate) private_dns_name: String,
    #[serde(default)]
    pub(crate) attachment: Option<Attachment>,
    #[serde(rename = "privateIpAddressesSet", default, deserialize_with = "items")]
    pub(crate) private_ip_addresses: Vec<PrivateIpAddress>,
    #[serde(rename = "ipv6AddressesSet", default, deserialize_with = "items")]
    pub(crate) ipv6_addresses: Vec<Ipv6Address>,
}

/// Attachment of a network interface to an instance.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Attachment {
    #[serde(default)]
    pub(crate) device_index: u32,
}

/// A private IPv4 address.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PrivateIpAddress {
    pub(crate) private_ip_address: String,
}

/// An IPv6 address.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Ipv6Address {
    pub(crate) ipv6_address: String,
}

/// Network nodes of an instance, from the top layer to the one next to it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InstanceTopology {
    pub(crate) instance_id: String,
    #[serde(rename = "networkNodeSet", default, deserialize_with = "items")]
    pub(crate) network_nodes: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DescribeInstances {
    reservation_set: Items<Reservation>,
    #[serde(default, deserialize_with = "token")]
    next_token: Option<String>,
}

#[derive(Deserialize)]
struct Reservation {
    #[serde(rename = "instancesSet", default, deserialize_with = "items")]
    instances: Vec<Instance>,
}

impl super::Paged for DescribeInstances {
    type Item = Instance;

    fn into_page(self) -> Page<Instance> {
        let instances = self.reservation_set.items.into_iter().flat_map(|reservation| reservation.instances);
        Page { items: instances.collect(), next: self.next_token }
    }
}

paged!(DescribeNetworkInterfaces, NetworkInterface, "networkInterfaceSet");
paged!(DescribeInstanceTopology, InstanceTopology, "instanceSet");

/// Maximum number of instances on a page.
pub(crate) const PAGE: usize = 1000;

impl Ec2 {
    /// Reads instances by ID. AWS rejects the whole request if one does not exist.
    pub(crate) async fn instances_by_id(&self, ids: &[String]) -> Result<Vec<Instance>> {
        self.all::<DescribeInstances>(Query::read("DescribeInstances").with_list("InstanceId", ids)).await
    }

    /// Reads all instances that match filters.
    pub(crate) async fn instances(&self, filters: &[Filter]) -> Result<Vec<Instance>> {
        self.all::<DescribeInstances>(filtered("DescribeInstances", filters).with("MaxResults", PAGE)).await
    }

    /// Reads one page of the instances that match filters.
    pub(crate) async fn instances_page(&self, filters: &[Filter], token: Option<String>) -> Result<Page<Instance>> {
        self.page::<DescribeInstances>(filtered("DescribeInstances", filters).with("MaxResults", PAGE), token).await
    }

    /// Reads the topology of instances; those of an unsupported type are missing.
    pub(crate) async fn instance_topology(&self, ids: &[String]) -> Result<Vec<InstanceTopology>> {
        let query = Query::read("DescribeInstanceTopology").with_list("InstanceId", ids);
        self.all::<DescribeInstanceTopology>(query).await
    }

    /// Reads the network interfaces that match filters.
    pub(crate) async fn network_interfaces(&self, filters: &[Filter]) -> Result<Vec<NetworkInterface>> {
        self.all::<DescribeNetworkInterfaces>(filtered("DescribeNetworkInterfaces", filters)).await
    }

    /// Disables the check that an instance is source or destination of its packets, which routes to it need.
    pub(crate) async fn disable_source_dest_check(&self, id: &str) -> Result<()> {
        let query = Query::write("ModifyInstanceAttribute").with("InstanceId", id);
        self.0.execute(query.with("SourceDestCheck.Value", false)).await
    }
}
