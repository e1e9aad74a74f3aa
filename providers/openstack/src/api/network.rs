//! Neutron records and calls. Fields that are null or missing are empty.

use std::collections::BTreeMap;

use bowline_cloud::Error;
use http::Method;
use serde_json::Value;

use super::{Collection, collection, record};
use crate::session::{Service, Session};

record! {
    /// A floating IP.
    FloatingIp {
        id: String,
        floating_ip_address: String,
        floating_network_id: String,
        port_id: String,
        description: String,
    }

    /// A network.
    Network {
        id: String,
        name: String,
        external: bool = "router:external",
        subnets: Vec<String>,
    }
}

impl Network {
    /// Returns whether it has an IPv4 subnet, or one that is not visible.
    pub(crate) fn serves_ipv4(&self, visible: &[Subnet]) -> bool {
        let is_for_ipv4 = |id: &String| visible.iter().find(|one| one.id == *id).is_none_or(|it| it.ip_version == 4);
        self.subnets.iter().any(is_for_ipv4)
    }
}

record! {
    /// A subnet.
    Subnet {
        id: String,
        name: String,
        network_id: String,
        cidr: String,
        ip_version: u8,
        tags: Vec<String>,
    }

    /// A port.
    Port {
        id: String,
        status: String,
        device_id: String,
        /// Owner: `compute:ZONE` for a server.
        device_owner: String,
        network_id: String,
        fixed_ips: Vec<FixedIp>,
        security_groups: Vec<String>,
        allowed_address_pairs: Vec<AddressPair>,
        /// `None` without the port security extension.
        port_security_enabled: Option<bool>,
        tags: Vec<String>,
        trunk_details: TrunkDetails,
        revision_number: Option<u64>,
    }

    /// An address of a port.
    FixedIp { ip_address: String, subnet_id: String, }

    /// A further source address that the port may use. Existing ones are sent back unchanged.
    AddressPair {
        ip_address: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        mac_address: Option<String>,
    }

    /// Subports of a trunk port.
    TrunkDetails { sub_ports: Vec<SubPort>, }

    /// A subport.
    SubPort { port_id: String, }

    /// A security group.
    SecurityGroup {
        id: String,
        name: String,
        description: String,
        security_group_rules: Vec<SecurityGroupRule>,
    }

    /// A security group rule.
    SecurityGroupRule {
        id: String,
        direction: String,
        ethertype: String,
        protocol: String,
        port_range_min: u16,
        port_range_max: u16,
        remote_ip_prefix: String,
        remote_group_id: String,
    }

    /// A router.
    Router { id: String, routes: Vec<ExtraRoute>, }

    /// A route of a router.
    ExtraRoute { destination: String, nexthop: String, }

    /// Usage and limit of a quota.
    #[derive(Copy)]
    Usage {
        /// Negative for no limit.
        limit: i64,
        used: i64,
    }

    /// A Neutron API extension.
    Extension { alias: String, }
}

pub(crate) const PORTS: Collection<Port> = collection!(Network, "port", "port", "port");
pub(crate) const NETWORKS: Collection<Network> = collection!(Network, "network", "network", "network");
pub(crate) const SUBNETS: Collection<Subnet> = collection!(Network, "subnet", "subnet", "subnet");
pub(crate) const FLOATING_IPS: Collection<FloatingIp> =
    collection!(Network, "floating IP", "floatingip", "floating_ip");
pub(crate) const SECURITY_GROUPS: Collection<SecurityGroup> =
    collection!(Network, "security group", "security_group", "security_group", "security-groups");
pub(crate) const SECURITY_GROUP_RULES: Collection<SecurityGroupRule> =
    collection!(Network, "security group rule", "security_group_rule", "security_group_rule", "security-group-rules");
pub(crate) const ROUTERS: Collection<Router> = collection!(Network, "router", "router", "router");

/// Updates a port; with a revision, only if no other client has changed it since (412 otherwise).
pub(crate) async fn update_port(
    session: &Session,
    id: &str,
    body: &Value,
    revision: Option<u64>,
) -> Result<Port, Error> {
    let call = session.call("port_update", Service::Network, Method::PUT, &["ports", id]);
    call.body("port", body).if_revision(revision).read("port").await
}

/// Removes a tag from a port.
pub(crate) async fn delete_port_tag(session: &Session, port: &str, tag: &str) -> Result<(), Error> {
    session.call("port_tag_delete", Service::Network, Method::DELETE, &["ports", port, "tags", tag]).send_delete().await
}

/// Lists the API extensions.
pub(crate) async fn extensions(session: &Session) -> Result<Vec<Extension>, Error> {
    session.call("network_extension_list", Service::Network, Method::GET, &["extensions"]).list("extensions").await
}

/// Adds routes to a router or removes them (`add_extraroutes`, `remove_extraroutes`), and leaves the others unchanged.
pub(crate) async fn change_routes(
    session: &Session,
    router: &str,
    how: &str,
    routes: &[ExtraRoute],
) -> Result<(), Error> {
    let call = session.call("router_update", Service::Network, Method::PUT, &["routers", router, how]);
    call.body("router", &serde_json::json!({ "routes": routes })).send().await
}

/// Reads usage and limits of the project.
pub(crate) async fn quotas(session: &Session, project: &str) -> Result<BTreeMap<String, Usage>, Error> {
    let path = ["quotas", project, "details.json"];
    session.call("quota_get", Service::Network, Method::GET, &path).read("quota").await
}
