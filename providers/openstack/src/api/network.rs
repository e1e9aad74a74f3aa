//! What Neutron says. Everything may be null or missing, and is then empty.

use std::collections::BTreeMap;

use bowline_cloud::Error;
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Collection, collection, nullable};
use crate::session::{Service, Session};

/// A floating IP.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct FloatingIp {
    #[serde(deserialize_with = "nullable")]
    pub(crate) id: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) floating_ip_address: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) floating_network_id: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) port_id: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) description: String,
}

/// A network.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Network {
    #[serde(deserialize_with = "nullable")]
    pub(crate) id: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) name: String,
    #[serde(rename = "router:external", deserialize_with = "nullable")]
    pub(crate) external: bool,
    #[serde(deserialize_with = "nullable")]
    pub(crate) subnets: Vec<String>,
}

impl Network {
    /// Whether it has a subnet for IPv4, or one of which we are not told what it is for.
    pub(crate) fn serves_ipv4(&self, visible: &[Subnet]) -> bool {
        let is_for_ipv4 = |id: &String| visible.iter().find(|one| one.id == *id).is_none_or(|it| it.ip_version == 4);
        self.subnets.iter().any(is_for_ipv4)
    }
}

/// A subnet.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Subnet {
    #[serde(deserialize_with = "nullable")]
    pub(crate) id: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) name: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) network_id: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) cidr: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) ip_version: u8,
    #[serde(deserialize_with = "nullable")]
    pub(crate) tags: Vec<String>,
}

/// A port.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Port {
    #[serde(deserialize_with = "nullable")]
    pub(crate) id: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) status: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) device_id: String,
    /// What has it: `compute:ZONE` for a server.
    #[serde(deserialize_with = "nullable")]
    pub(crate) device_owner: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) network_id: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) fixed_ips: Vec<FixedIp>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) security_groups: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) allowed_address_pairs: Vec<AddressPair>,
    /// `None` where the extension is not there.
    pub(crate) port_security_enabled: Option<bool>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) tags: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) trunk_details: TrunkDetails,
    pub(crate) revision_number: Option<u64>,
}

/// An address of a port.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct FixedIp {
    #[serde(deserialize_with = "nullable")]
    pub(crate) ip_address: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) subnet_id: String,
}

/// A further address that may be spoken from a port. What is there already is echoed unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct AddressPair {
    #[serde(deserialize_with = "nullable")]
    pub(crate) ip_address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mac_address: Option<String>,
}

/// What hangs on a trunk.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct TrunkDetails {
    #[serde(deserialize_with = "nullable")]
    pub(crate) sub_ports: Vec<SubPort>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SubPort {
    #[serde(deserialize_with = "nullable")]
    pub(crate) port_id: String,
}

/// A security group.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SecurityGroup {
    #[serde(deserialize_with = "nullable")]
    pub(crate) id: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) name: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) description: String,
}

/// A rule of one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SecurityGroupRule {
    #[serde(deserialize_with = "nullable")]
    pub(crate) id: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) direction: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) ethertype: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) protocol: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) port_range_min: u16,
    #[serde(deserialize_with = "nullable")]
    pub(crate) port_range_max: u16,
    #[serde(deserialize_with = "nullable")]
    pub(crate) remote_ip_prefix: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) remote_group_id: String,
}

/// A router.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Router {
    #[serde(deserialize_with = "nullable")]
    pub(crate) id: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) routes: Vec<ExtraRoute>,
}

/// A route of one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ExtraRoute {
    #[serde(deserialize_with = "nullable")]
    pub(crate) destination: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) nexthop: String,
}

/// How much there is of something, and how much there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Usage {
    /// Below zero if there may be any number.
    #[serde(deserialize_with = "nullable")]
    pub(crate) limit: i64,
    #[serde(deserialize_with = "nullable")]
    pub(crate) used: i64,
}

/// What this Neutron can do beyond the usual.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Extension {
    #[serde(deserialize_with = "nullable")]
    pub(crate) alias: String,
}

const PORTS: Collection = collection!(Network, "ports", "port", "ports", "port");
const NETWORKS: Collection = collection!(Network, "networks", "network", "networks", "network");
const SUBNETS: Collection = collection!(Network, "subnets", "subnet", "subnets", "subnet");
const FLOATING_IPS: Collection = collection!(Network, "floatingips", "floatingip", "floatingips", "floating_ip");
const SECURITY_GROUPS: Collection =
    collection!(Network, "security-groups", "security_group", "security_groups", "security_group");
const SECURITY_GROUP_RULES: Collection =
    collection!(Network, "security-group-rules", "security_group_rule", "security_group_rules", "security_group_rule");
const ROUTERS: Collection = collection!(Network, "routers", "router", "routers", "router");

/// All ports that fit.
pub(crate) async fn ports(session: &Session, query: &[(&str, &str)]) -> Result<Vec<Port>, Error> {
    PORTS.list(session, query).await
}

/// One port.
pub(crate) async fn port(session: &Session, id: &str) -> Result<Port, Error> {
    PORTS.get(session, id).await
}

/// Changes a port; with a revision, only if nobody has changed it since (412 otherwise).
pub(crate) async fn update_port(session: &Session, id: &str, body: &Value, revision: Option<u64>) -> Result<(), Error> {
    let call = session.call("port_update", Service::Network, Method::PUT, &["ports", id]);
    call.body("port", body).if_revision(revision).done().await
}

/// Takes a tag from a port.
pub(crate) async fn delete_port_tag(session: &Session, port: &str, tag: &str) -> Result<(), Error> {
    session.call("port_tag_delete", Service::Network, Method::DELETE, &["ports", port, "tags", tag]).gone().await
}

/// All networks that fit.
pub(crate) async fn networks(session: &Session, query: &[(&str, &str)]) -> Result<Vec<Network>, Error> {
    NETWORKS.list(session, query).await
}

/// One network.
pub(crate) async fn network(session: &Session, id: &str) -> Result<Network, Error> {
    NETWORKS.get(session, id).await
}

/// All subnets that fit.
pub(crate) async fn subnets(session: &Session, query: &[(&str, &str)]) -> Result<Vec<Subnet>, Error> {
    SUBNETS.list(session, query).await
}

/// One subnet.
pub(crate) async fn subnet(session: &Session, id: &str) -> Result<Subnet, Error> {
    SUBNETS.get(session, id).await
}

/// What this Neutron can do beyond the usual.
pub(crate) async fn extensions(session: &Session) -> Result<Vec<Extension>, Error> {
    session.call("network_extension_list", Service::Network, Method::GET, &["extensions"]).list("extensions").await
}

/// All floating IPs that fit.
pub(crate) async fn floating_ips(session: &Session, query: &[(&str, &str)]) -> Result<Vec<FloatingIp>, Error> {
    FLOATING_IPS.list(session, query).await
}

/// One floating IP.
pub(crate) async fn floating_ip(session: &Session, id: &str) -> Result<FloatingIp, Error> {
    FLOATING_IPS.get(session, id).await
}

/// Makes a floating IP, and attaches it if the body says where.
pub(crate) async fn create_floating_ip(session: &Session, body: &Value) -> Result<FloatingIp, Error> {
    FLOATING_IPS.create(session, body).await
}

/// Attaches a floating IP, or detaches it.
pub(crate) async fn update_floating_ip(session: &Session, id: &str, body: &Value) -> Result<(), Error> {
    FLOATING_IPS.update(session, id, body).await
}

/// Gives a floating IP back.
pub(crate) async fn delete_floating_ip(session: &Session, id: &str) -> Result<(), Error> {
    FLOATING_IPS.delete(session, id).await
}

/// All security groups that fit.
pub(crate) async fn security_groups(session: &Session, query: &[(&str, &str)]) -> Result<Vec<SecurityGroup>, Error> {
    SECURITY_GROUPS.list(session, query).await
}

/// Makes a security group.
pub(crate) async fn create_security_group(session: &Session, body: &Value) -> Result<SecurityGroup, Error> {
    SECURITY_GROUPS.create(session, body).await
}

/// Changes a security group.
pub(crate) async fn update_security_group(session: &Session, id: &str, body: &Value) -> Result<(), Error> {
    SECURITY_GROUPS.update(session, id, body).await
}

/// Deletes a security group.
pub(crate) async fn delete_security_group(session: &Session, id: &str) -> Result<(), Error> {
    SECURITY_GROUPS.delete(session, id).await
}

/// All rules of security groups that fit.
pub(crate) async fn security_group_rules(
    session: &Session,
    query: &[(&str, &str)],
) -> Result<Vec<SecurityGroupRule>, Error> {
    SECURITY_GROUP_RULES.list(session, query).await
}

/// Makes a rule of a security group.
pub(crate) async fn create_security_group_rule(session: &Session, body: &Value) -> Result<SecurityGroupRule, Error> {
    SECURITY_GROUP_RULES.create(session, body).await
}

/// Deletes a rule of a security group.
pub(crate) async fn delete_security_group_rule(session: &Session, id: &str) -> Result<(), Error> {
    SECURITY_GROUP_RULES.delete(session, id).await
}

/// One router.
pub(crate) async fn router(session: &Session, id: &str) -> Result<Router, Error> {
    ROUTERS.get(session, id).await
}

/// Changes a router.
pub(crate) async fn update_router(session: &Session, id: &str, body: &Value) -> Result<(), Error> {
    ROUTERS.update(session, id, body).await
}

/// Adds these routes to a router, whatever else it has.
pub(crate) async fn add_routes(session: &Session, router: &str, routes: &[ExtraRoute]) -> Result<(), Error> {
    change_routes(session, router, "add_extraroutes", routes).await
}

/// Takes these routes from a router, and leaves the others alone.
pub(crate) async fn remove_routes(session: &Session, router: &str, routes: &[ExtraRoute]) -> Result<(), Error> {
    change_routes(session, router, "remove_extraroutes", routes).await
}

async fn change_routes(session: &Session, router: &str, how: &str, routes: &[ExtraRoute]) -> Result<(), Error> {
    let call = session.call("router_update", Service::Network, Method::PUT, &["routers", router, how]);
    call.body("router", &serde_json::json!({ "routes": routes })).done().await
}

/// Whether Neutron answers us at all.
pub(crate) async fn answers(session: &Session) -> Result<(), Error> {
    let call = session.call("network_list", Service::Network, Method::GET, &["networks"]);
    call.query(&[("limit", "1"), ("fields", "id")]).done().await
}

/// How much of everything the project has, and may have.
pub(crate) async fn quotas(session: &Session, project: &str) -> Result<BTreeMap<String, Usage>, Error> {
    let path = ["quotas", project, "details.json"];
    session.call("quota_get", Service::Network, Method::GET, &path).read("quota").await
}
