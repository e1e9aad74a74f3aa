//! What every simulated cloud has from the start: a project with a network behind a router, and an external network.

use bowline_simulator::addresses::{hosts, range};
use serde_json::{Value, json};

use crate::identity::{ApplicationCredential, Project, Trust, User};
use crate::network::addresses;
use crate::network::skeletons;
use crate::records::{Fields, Kind, Record, object};
use crate::simulator::State;

/// The IDs of what every simulated cloud has, and the secrets of its users.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fixture {
    /// The project, called `k8s`.
    pub project: String,
    /// Its user, called `k8s` in the domain `default`.
    pub user: String,
    /// The password of the user.
    pub password: String,
    /// An application credential, called `cloud-provider`.
    pub application_credential: String,
    /// Its secret.
    pub application_secret: String,
    /// A trust that the user was lent.
    pub trust: String,
    /// The network `k8s-net`.
    pub network: String,
    /// Its subnet, 10.10.0.0/16.
    pub subnet: String,
    /// The external network `public`.
    pub external_network: String,
    /// Its subnet, 203.0.113.0/24.
    pub external_subnet: String,
    /// The router `k8s-router` between the two.
    pub router: String,
    /// The security group `k8s-nodes`.
    pub security_group: String,
    /// The security group `default`.
    pub default_group: String,
    /// The flavor `m1.tiny`.
    pub flavor: String,
    /// The only flavor of Octavia.
    pub octavia_flavor: String,
    /// The name of the only availability zone of Octavia.
    pub octavia_zone: String,
}

/// Puts it there.
pub(crate) fn furnish(state: &mut State) {
    people(state);
    outside(state);
    state.fixture.network = add_network(state, json!({"name": "k8s-net"}));
    let network = state.fixture.network.clone();
    state.fixture.subnet = add_subnet(state, &network, "k8s-net-subnet", "10.10.0.0/16");
    state.fixture.default_group = add_group(state, "default");
    state.fixture.security_group = add_group(state, "k8s-nodes");
    let (default, nodes) = (state.fixture.default_group.clone(), state.fixture.security_group.clone());
    for ethertype in ["IPv4", "IPv6"] {
        admit(state, &default, json!({"ethertype": ethertype, "remote_group_id": default, "description": null}));
    }
    admit(state, &nodes, json!({"remote_group_id": nodes}));
    admit(state, &nodes, json!({"protocol": "tcp", "port_range_min": 22, "port_range_max": 22}));
    router(state);
    flavor(state);
    state.fixture.octavia_flavor = state.ids.uuid();
    state.fixture.octavia_zone = "lb-zone-1".to_owned();
}

/// An external network, which is somebody else's.
fn outside(state: &mut State) {
    let external = json!({"name": "public", "router:external": true, "mtu": 1500, "is_default": false});
    let network = add_network(state, external);
    let subnet = add_subnet(state, &network, "public-subnet", "203.0.113.0/24");
    let other = state.ids.hex();
    for (kind, id) in [(Kind::Network, &network), (Kind::Subnet, &subnet)] {
        if let Some(record) = state.records.get_mut(kind, id) {
            record.set("tenant_id", other.clone());
            record.set("project_id", other.clone());
        }
    }
    (state.fixture.external_network, state.fixture.external_subnet) = (network, subnet);
}

/// A rule that lets others in.
fn admit(state: &mut State, group: &str, fields: Value) {
    let mut rule = object(fields);
    rule.set("security_group_id", group);
    add(state, Kind::SecurityGroupRule, Value::Object(rule));
}

fn people(state: &mut State) {
    let [project, user, credential, trust] = std::array::from_fn(|_| state.ids.hex());
    let (password, secret) = ("k8s-secret".to_owned(), "application-secret".to_owned());
    let name = "k8s".to_owned();
    let known = &mut state.identity;
    known.projects.push(Project { id: project.clone(), name: name.clone(), ..Project::default() });
    let default_project = Some(project.clone());
    known.users.push(User { id: user.clone(), name, password: password.clone(), default_project, ..User::default() });
    known.application_credentials.push(ApplicationCredential {
        id: credential.clone(),
        name: "cloud-provider".to_owned(),
        secret: secret.clone(),
        user: user.clone(),
        project: project.clone(),
    });
    let (trustee, trustor) = (user.clone(), "somebody-else".to_owned());
    known.trusts.push(Trust { id: trust.clone(), trustee, trustor, project: project.clone() });
    let fixture = &mut state.fixture;
    (fixture.project, fixture.user, fixture.password) = (project, user, password);
    (fixture.application_credential, fixture.application_secret, fixture.trust) = (credential, secret, trust);
}

/// Makes a record of Neutron with these fields, and returns its ID.
pub(crate) fn add(state: &mut State, kind: Kind, fields: Value) -> String {
    let mut record = skeletons::new(state, kind);
    record.extend(object(fields));
    let id = record.text("id").to_owned();
    state.records.of_mut(kind).insert("", record);
    id
}

pub(crate) fn add_network(state: &mut State, fields: Value) -> String {
    add(state, Kind::Network, fields)
}

/// A subnet of which all addresses but the first, which is the gateway's, can be had.
pub(crate) fn add_subnet(state: &mut State, network: &str, name: &str, cidr: &str) -> String {
    let version = if cidr.contains(':') { 6 } else { 4 };
    let mut fields = json!({"name": name, "network_id": network, "cidr": cidr, "ip_version": version});
    if let Some((gateway, last)) = cidr.parse().ok().and_then(hosts) {
        let start = range(gateway, last).nth(1);
        fields["gateway_ip"] = json!(gateway);
        fields["allocation_pools"] = json!([{"start": start, "end": last}]);
    }
    add(state, Kind::Subnet, fields)
}

fn add_group(state: &mut State, name: &str) -> String {
    let group = crate::network::add_group(state, object(json!({"name": name})));
    group.text("id").to_owned()
}

/// A router with an address outside, and the gateway's address of the network.
fn router(state: &mut State) {
    let outside = state.records.get(Kind::Subnet, &state.fixture.external_subnet).cloned().unwrap_or_default();
    let address = addresses::allocate(state, &outside, None).map(|ip| addresses::fixed_ip(&outside, ip));
    let addresses: Vec<Value> = address.into_iter().collect();
    let network = state.fixture.external_network.clone();
    let gateway = json!({"network_id": network, "external_fixed_ips": addresses, "enable_snat": true});
    state.fixture.router = add(state, Kind::Router, json!({"name": "k8s-router", "external_gateway_info": gateway}));
    let (router, subnet) = (state.fixture.router.clone(), state.fixture.subnet.clone());
    add_interface(state, &router, &subnet);
}

/// Leads a router into a subnet, at the gateway's address.
pub(crate) fn add_interface(state: &mut State, router: &str, subnet: &str) {
    let subnet: Record = state.records.get(Kind::Subnet, subnet).cloned().unwrap_or_default();
    let ip = json!([{"subnet_id": subnet.text("id"), "ip_address": subnet.text("gateway_ip")}]);
    let mac = state.ids.mac();
    let interface = json!({
        "device_id": router, "device_owner": "network:router_interface", "network_id": subnet.text("network_id"),
        "fixed_ips": ip, "status": "ACTIVE", "mac_address": mac, "port_security_enabled": false,
    });
    add(state, Kind::Port, interface);
}

fn flavor(state: &mut State) {
    state.fixture.flavor = state.ids.uuid();
    let flavor = flavor_of(&state.fixture.flavor, "m1.tiny");
    state.records.of_mut(Kind::Flavor).insert("", flavor);
}

/// A flavor of this ID and name.
pub(crate) fn flavor_of(id: &str, name: &str) -> Record {
    object(json!({
        "id": id, "name": name, "ram": 512, "disk": 1, "swap": "", "OS-FLV-EXT-DATA:ephemeral": 0,
        "OS-FLV-DISABLED:disabled": false, "vcpus": 1, "os-flavor-access:is_public": true, "rxtx_factor": 1.0,
    }))
}
