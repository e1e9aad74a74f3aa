//! Initial resources of every simulated cloud: a project with a network behind a router, and an external network.

use bowline_simulator::addresses::{hosts, range};
use serde_json::{Value, json};

use crate::identity::{ApplicationCredential, Project, Trust, User};
use crate::network::addresses;
use crate::network::skeletons;
use crate::records::{Fields, Kind, Record, object};
use crate::simulator::State;

/// IDs of the initial resources, and the secrets of the user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fixture {
    /// Project `k8s`.
    pub project: String,
    /// User `k8s` in the domain `default`.
    pub user: String,
    /// Password of the user.
    pub password: String,
    /// Application credential `cloud-provider`.
    pub application_credential: String,
    /// Secret of the application credential.
    pub application_secret: String,
    /// Trust with the user as trustee.
    pub trust: String,
    /// Network `k8s-net`.
    pub network: String,
    /// Subnet of `k8s-net`, 10.10.0.0/16.
    pub subnet: String,
    /// External network `public`.
    pub external_network: String,
    /// Subnet of `public`, 203.0.113.0/24.
    pub external_subnet: String,
    /// Router `k8s-router` between both networks.
    pub router: String,
    /// Security group `k8s-nodes`.
    pub security_group: String,
    /// Security group `default`.
    pub default_group: String,
    /// Nova flavor `m1.tiny`.
    pub flavor: String,
    /// The only Octavia flavor.
    pub octavia_flavor: String,
    /// Name of the only Octavia availability zone.
    pub octavia_zone: String,
}

/// Creates the initial resources.
pub(crate) fn populate(state: &mut State) {
    add_identities(state);
    add_external_network(state);
    state.fixture.network = add_network(state, json!({"name": "k8s-net"}));
    let network = state.fixture.network.clone();
    state.fixture.subnet = add_subnet(state, &network, "k8s-net-subnet", "10.10.0.0/16");
    state.fixture.default_group = add_group(state, "default");
    state.fixture.security_group = add_group(state, "k8s-nodes");
    let (default, nodes) = (state.fixture.default_group.clone(), state.fixture.security_group.clone());
    for ethertype in ["IPv4", "IPv6"] {
        add_rule(state, &default, json!({"ethertype": ethertype, "remote_group_id": default, "description": null}));
    }
    add_rule(state, &nodes, json!({"remote_group_id": nodes}));
    add_rule(state, &nodes, json!({"protocol": "tcp", "port_range_min": 22, "port_range_max": 22}));
    add_router(state);
    add_default_flavor(state);
    state.fixture.octavia_flavor = state.ids.uuid();
    state.fixture.octavia_zone = "lb-zone-1".to_owned();
}

/// Creates an external network, which belongs to another project.
fn add_external_network(state: &mut State) {
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

/// Adds an ingress rule to a security group.
fn add_rule(state: &mut State, group: &str, fields: Value) {
    let mut rule = object(fields);
    rule.set("security_group_id", group);
    add(state, Kind::SecurityGroupRule, Value::Object(rule));
}

fn add_identities(state: &mut State) {
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
    let (trustee, trustor) = (user.clone(), "another-user".to_owned());
    known.trusts.push(Trust { id: trust.clone(), trustee, trustor, project: project.clone() });
    let fixture = &mut state.fixture;
    (fixture.project, fixture.user, fixture.password) = (project, user, password);
    (fixture.application_credential, fixture.application_secret, fixture.trust) = (credential, secret, trust);
}

/// Creates a Neutron resource with these fields and returns its ID.
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

/// Creates a subnet. The gateway has the first address, and the allocation pool all others.
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

/// Creates a router with an external gateway and an interface in the fixture's subnet.
fn add_router(state: &mut State) {
    let external = state.records.get(Kind::Subnet, &state.fixture.external_subnet).cloned().unwrap_or_default();
    let address = addresses::allocate(state, &external, None).map(|ip| addresses::fixed_ip(&external, ip));
    let addresses: Vec<Value> = address.into_iter().collect();
    let network = state.fixture.external_network.clone();
    let gateway = json!({"network_id": network, "external_fixed_ips": addresses, "enable_snat": true});
    state.fixture.router = add(state, Kind::Router, json!({"name": "k8s-router", "external_gateway_info": gateway}));
    let (router, subnet) = (state.fixture.router.clone(), state.fixture.subnet.clone());
    add_interface(state, &router, &subnet);
}

/// Adds a router interface to a subnet, at the gateway address.
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

fn add_default_flavor(state: &mut State) {
    state.fixture.flavor = state.ids.uuid();
    let flavor = flavor_of(&state.fixture.flavor, "m1.tiny");
    state.records.of_mut(Kind::Flavor).insert("", flavor);
}

/// Nova flavor with this ID and name.
pub(crate) fn flavor_of(id: &str, name: &str) -> Record {
    object(json!({
        "id": id, "name": name, "ram": 512, "disk": 1, "swap": "", "OS-FLV-EXT-DATA:ephemeral": 0,
        "OS-FLV-DISABLED:disabled": false, "vcpus": 1, "os-flavor-access:is_public": true, "rxtx_factor": 1.0,
    }))
}
