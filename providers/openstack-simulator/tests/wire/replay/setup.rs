//! Initial state of a replay, and requests that are applied directly to the simulator.

use bowline_openstack_simulator::{Kind, NewPort, NewServer, Service, Simulator, Trust, User};
use bowline_simulator::replay::Names;
use serde_json::{Value, json};

use super::Call;

/// Servers of the recorded cloud with zones and addresses, oldest first.
const SERVERS: [(&str, &str, &str); 3] =
    [("node-2", "az-2", "10.10.0.153"), ("node-3", "az-1", "10.10.0.173"), ("node-1", "az-1", "10.10.0.79")];

/// Maps the hosts of the recorded services to those of the simulator.
fn hosts() -> Names {
    let mut names = Names::default();
    for service in Service::ALL {
        let ours = format!("http://openstack.test/{}", service.kind());
        names.bind(&format!("http://{}.example", service.kind()), &ours);
    }
    names
}

/// Creates the resources of the recorded cloud and binds their names.
pub(crate) fn populate(cloud: &Simulator, bound: &Value) -> Names {
    let (fixture, mut names) = (cloud.fixture(), hosts());
    let pairs = [
        ("project", &fixture.project),
        ("user", &fixture.user),
        ("external_network", &fixture.external_network),
        ("external_subnet", &fixture.external_subnet),
        ("network", &fixture.network),
        ("subnet", &fixture.subnet),
        ("router", &fixture.router),
        ("security_group", &fixture.security_group),
        ("flavor", &fixture.flavor),
    ];
    for (recorded, ours) in pairs {
        names.bind(bound[recorded].as_str().unwrap_or_default(), ours);
    }
    names.bind(bound["image"].as_str().unwrap_or_default(), "024007fc-ff2e-44c6-bc62-3fa4e93be7c9");
    cloud.edit(Kind::Subnet, &fixture.subnet, |subnet| {
        subnet.insert("cidr".to_owned(), json!("10.10.0.0/24"));
        subnet.insert("allocation_pools".to_owned(), json!([{"start": "10.10.0.2", "end": "10.10.0.254"}]));
    });
    for (name, zone, address) in SERVERS {
        names.bind(address, address);
        let ports = vec![NewPort { addresses: vec![address.parse().unwrap()], ..NewPort::default() }];
        let metadata = vec![("role".to_owned(), "node".to_owned())];
        let id = cloud.add_server(NewServer {
            name: name.to_owned(),
            zone: zone.to_owned(),
            ports,
            metadata,
            ..NewServer::default()
        });
        names.bind(bound["servers"][name].as_str().unwrap_or_default(), &id);
    }
    names
}

/// Applies a request that the simulator does not implement; `false` if it implements the request.
pub(crate) fn apply(cloud: &Simulator, names: &mut Names, call: &Call) -> bool {
    let path: Vec<String> = call.path.trim_start_matches('/').split(['/', '?']).map(|part| names.ours(part)).collect();
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let sent: Value = serde_json::from_str(&names.ours(&call.body.to_string())).unwrap();
    match (call.method.as_str(), path.as_slice()) {
        ("PUT" | "DELETE", [_, .., "quotas", _]) => set_quotas(cloud, &sent["quota"]),
        ("POST", [_, "networks"]) => create(cloud, names, call, Kind::Network, "network", &sent),
        ("POST", [_, "subnets"]) => create(cloud, names, call, Kind::Subnet, "subnet", &sent),
        ("DELETE", [_, "networks", id]) => drop(cloud.remove(Kind::Network, id)),
        ("DELETE", [_, "subnets", id]) => drop(cloud.remove(Kind::Subnet, id)),
        ("PUT", [_, "subnets", id, "tags"]) => {
            cloud.edit(Kind::Subnet, id, |subnet| drop(subnet.insert("tags".to_owned(), sent["tags"].clone())));
        }
        ("POST", [_, "servers"]) => create_server(cloud, names, call, &sent["server"]),
        ("POST", [_, "servers", id, "metadata"]) => drop(cloud.edit(Kind::Server, id, |server| {
            server.insert("metadata".to_owned(), sent["metadata"].clone());
        })),
        ("POST", [_, "servers", id, "action"]) => perform_action(cloud, id, &sent),
        ("DELETE", [_, "servers", id]) => cloud.delete_server(id),
        ("POST", ["v1", kind @ ("secrets" | "containers")]) => create_secret(cloud, names, call, kind, &sent),
        ("DELETE", ["v1", "secrets" | "containers", _]) => {}
        ("GET", [_, "users", ..]) => create_user(cloud, names, &call.answer["users"][0]),
        ("POST", [_, "OS-TRUST", "trusts"]) => create_trust(cloud, names, &call.answer["trust"]),
        ("DELETE", [_, "OS-TRUST", ..]) => {}
        // Bowline uses neither microversions nor the limits of Nova.
        ("GET", [_, "limits"]) => {}
        _ if call.headers.keys().any(|name| name.to_ascii_lowercase().contains("api-version")) => {}
        _ => return false,
    }
    true
}

/// Sets the quotas in the request, or resets all if it has none.
fn set_quotas(cloud: &Simulator, quotas: &Value) {
    let neutron = ["floatingip", "port", "security_group", "security_group_rule"].map(|name| (name, name));
    let octavia = [("loadbalancer", "load_balancer"), ("healthmonitor", "health_monitor")];
    let octavia = octavia.into_iter().chain(["listener", "pool", "member"].map(|name| (name, name)));
    for (sent, name) in neutron.into_iter().chain(octavia) {
        if quotas.is_null() || !quotas[sent].is_null() {
            cloud.set_quota(name, quotas[sent].as_u64());
        }
    }
}

/// Creates a record with the sent fields and binds its ID.
fn create(cloud: &Simulator, names: &mut Names, call: &Call, kind: Kind, name: &str, sent: &Value) {
    let mut fields = sent[name].clone();
    if kind == Kind::Subnet {
        for field in ["gateway_ip", "allocation_pools"] {
            fields[field] = call.answer[name][field].clone();
        }
    }
    let id = cloud.add(kind, fields);
    names.bind(call.answer[name]["id"].as_str().unwrap_or_default(), &id);
}

fn create_server(cloud: &Simulator, names: &mut Names, call: &Call, sent: &Value) {
    let text = |field: &str| sent[field].as_str().unwrap_or_default().to_owned();
    let server = NewServer { name: text("name"), zone: text("availability_zone"), ..NewServer::default() };
    let id = cloud.add_server(server);
    let default = json!([{"name": "default"}]);
    cloud.edit(Kind::Server, &id, |server| drop(server.insert("security_groups".to_owned(), default)));
    let group = cloud.fixture().default_group;
    let ports = cloud.records(Kind::Port);
    for port in ports.iter().filter(|port| port["device_id"] == id) {
        let port = port["id"].as_str().unwrap();
        cloud.edit(Kind::Port, port, |port| drop(port.insert("security_groups".to_owned(), json!([group]))));
    }
    names.bind(call.answer["server"]["id"].as_str().unwrap(), &id);
}

fn perform_action(cloud: &Simulator, id: &str, action: &Value) {
    let actions = [("os-stop", "SHUTOFF"), ("os-start", "ACTIVE"), ("pause", "PAUSED")];
    for (_, status) in actions.iter().filter(|(name, _)| action.get(name).is_some()) {
        cloud.set_server_status(id, status);
    }
}

fn create_secret(cloud: &Simulator, names: &mut Names, call: &Call, kind: &str, sent: &Value) {
    let (kind, answered) =
        if kind == "secrets" { (Kind::Secret, "secret_ref") } else { (Kind::Container, "container_ref") };
    let id = cloud.add_secret(kind, sent["name"].as_str().unwrap_or_default());
    let reference = call.answer[answered].as_str().unwrap();
    let ours = format!("http://openstack.test/key-manager/v1/{}/{id}", call.path.rsplit('/').next().unwrap());
    cloud.edit(kind, &id, |record| {
        for field in ["type", "secret_refs"].iter().filter(|field| kind == Kind::Container && !sent[**field].is_null())
        {
            record.insert((*field).to_owned(), sent[*field].clone());
        }
        record.insert(answered.to_owned(), json!(ours));
    });
    names.bind(reference.rsplit('/').next().unwrap(), &id);
}

/// Creates another user with the same password.
fn create_user(cloud: &Simulator, names: &mut Names, answered: &Value) {
    let (id, password) = ("0".repeat(31) + "a", cloud.fixture().password);
    names.bind(answered["id"].as_str().unwrap(), &id);
    let name = answered["name"].as_str().unwrap().to_owned();
    cloud.edit_identity(|identity| identity.users.push(User { id, name, password, ..User::default() }));
}

fn create_trust(cloud: &Simulator, names: &mut Names, answered: &Value) {
    let text = |field: &str| names.ours(answered[field].as_str().unwrap_or_default());
    let id = "0".repeat(31) + "b";
    let (trustee, trustor) = (text("trustee_user_id"), text("trustor_user_id"));
    let trust = Trust { id: id.clone(), trustee, trustor, project: cloud.fixture().project };
    names.bind(answered["id"].as_str().unwrap(), &id);
    cloud.edit_identity(|identity| identity.trusts.push(trust));
}

/// Inserts the fixture's secrets into a request that was recorded with valid secrets, which recordings omit.
pub(crate) fn with_secrets(cloud: &Simulator, call: &Call, text: String, token: Option<&str>) -> String {
    let fixture = cloud.fixture();
    // An application credential with a scope is valid; Keystone rejects the scope.
    let was_valid = call.status == 201 || !call.answer["error"]["identity"].is_null();
    let Ok(mut body) = serde_json::from_str::<Value>(&text) else { return text };
    let Some(identity) = body.pointer_mut("/auth/identity").filter(|_| was_valid) else { return text };
    let mut set = |pointer: &str, value: &str| {
        if let Some(found) = identity.pointer_mut(pointer) {
            *found = json!(value);
        }
    };
    set("/password/user/password", &fixture.password);
    set("/application_credential/id", &fixture.application_credential);
    set("/application_credential/secret", &fixture.application_secret);
    set("/token/id", token.unwrap_or_default());
    body.to_string()
}
