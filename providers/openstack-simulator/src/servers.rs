//! Methods with which a test creates and changes servers.

use std::net::IpAddr;

use serde_json::{Value, json};

use crate::fixture;
use crate::network;
use crate::network::addresses;
use crate::records::{Fields, Kind, Record, object};
use crate::simulator::{Simulator, State};

/// Parameters of a new server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewServer {
    /// Name.
    pub name: String,
    /// ID; generated if empty.
    pub id: String,
    /// Availability zone; `az-1` if empty.
    pub zone: String,
    /// ID of the flavor; the fixture's flavor if empty.
    pub flavor: String,
    /// Metadata.
    pub metadata: Vec<(String, String)>,
    /// Ports; one in the fixture's subnet with a free address if empty.
    pub ports: Vec<NewPort>,
    /// `accessIPv4` and `accessIPv6`, each possibly empty.
    pub access: (String, String),
}

/// Parameters of a port of a new server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewPort {
    /// ID, by which Neutron sorts; generated if empty.
    pub id: String,
    /// ID of the subnet; the fixture's subnet if empty.
    pub subnet: String,
    /// Fixed IPs, not validated; a free address if empty.
    pub addresses: Vec<IpAddr>,
    /// Whether the port is down.
    pub down: bool,
    /// Floating IPs, which the server lists on the same network.
    pub floating: Vec<IpAddr>,
}

impl NewServer {
    /// Server with this name and one port in the fixture's subnet.
    pub fn named(name: &str) -> NewServer {
        NewServer { name: name.to_owned(), ..NewServer::default() }
    }

    /// Adds a port with this address.
    pub fn at(mut self, address: IpAddr) -> NewServer {
        self.ports.push(NewPort { addresses: vec![address], ..NewPort::default() });
        self
    }
}

impl Simulator {
    /// Creates a running server and returns its ID.
    pub fn add_server(&self, server: NewServer) -> String {
        add(&mut self.state(), server)
    }

    /// Sets the status of a server, with the matching VM state and power state.
    pub fn set_server_status(&self, id: &str, status: &str) {
        self.edit(Kind::Server, id, |server| {
            let (vm_state, power_state) = match status {
                "SHUTOFF" => ("stopped".to_owned(), 4),
                other => (other.to_ascii_lowercase(), 1),
            };
            server.set("status", status);
            // Nova only shows `progress` for servers that are active or being built.
            match status {
                "ACTIVE" => server.set("progress", 0),
                _ => drop(server.remove("progress")),
            }
            server.set("OS-EXT-STS:vm_state", vm_state);
            server.set("OS-EXT-STS:power_state", power_state);
        });
    }

    /// Stops a server.
    pub fn stop_server(&self, id: &str) {
        self.set_server_status(id, "SHUTOFF");
    }

    /// Starts a server.
    pub fn start_server(&self, id: &str) {
        self.set_server_status(id, "ACTIVE");
    }

    /// Renames a server.
    pub fn rename_server(&self, id: &str, name: &str) {
        self.edit(Kind::Server, id, |server| server.set("name", name));
    }

    /// Deletes a server and its ports.
    pub fn delete_server(&self, id: &str) {
        let state = &mut *self.state();
        state.records.of_mut(Kind::Server).remove(id);
        let ports = state.records.of(Kind::Port).iter().filter(|row| row.record.text("device_id") == id);
        let ports: Vec<String> = ports.map(|row| row.record.text("id").to_owned()).collect();
        for port in ports {
            network::remove_port(state, &port);
        }
    }
}

fn add(state: &mut State, new: NewServer) -> String {
    let id = if new.id.is_empty() { state.ids.uuid() } else { new.id };
    let zone = if new.zone.is_empty() { "az-1".to_owned() } else { new.zone };
    let ports = if new.ports.is_empty() { vec![NewPort::default()] } else { new.ports };
    let mut networks = Record::new();
    for port in ports {
        let (network, entries) = add_port(state, &id, &zone, port);
        match networks.get_mut(&network) {
            Some(Value::Array(list)) => list.extend(entries),
            _ => networks.set(&network, entries),
        }
    }
    let flavor = if new.flavor.is_empty() { state.fixture.flavor.clone() } else { new.flavor };
    let metadata: Record = new.metadata.into_iter().map(|(key, value)| (key, json!(value))).collect();
    let mut server = skeleton(state);
    server.set("id", id.clone());
    server.set("name", new.name);
    server.set("metadata", metadata);
    server.set("flavor", json!({"id": flavor}));
    server.set("addresses", networks);
    (server["accessIPv4"], server["accessIPv6"]) = (json!(new.access.0), json!(new.access.1));
    server.set("OS-EXT-AZ:availability_zone", zone);
    state.records.of_mut(Kind::Server).insert("", server);
    id
}

fn skeleton(state: &State) -> Record {
    let date = state.with_zone();
    object(json!({
        "status": "ACTIVE", "tenant_id": state.fixture.project, "user_id": state.fixture.user, "hostId": "52ef6391",
        "image": {"id": "024007fc-ff2e-44c6-bc62-3fa4e93be7c9"}, "created": date, "updated": date,
        "accessIPv4": "", "accessIPv6": "", "OS-DCF:diskConfig": "MANUAL", "progress": 0, "config_drive": "",
        "key_name": null, "OS-SRV-USG:launched_at": state.without_zone() + ".000000",
        "OS-SRV-USG:terminated_at": null, "security_groups": [{"name": "k8s-nodes"}], "OS-EXT-STS:task_state": null,
        "OS-EXT-STS:vm_state": "active", "OS-EXT-STS:power_state": 1, "os-extended-volumes:volumes_attached": [],
    }))
}

/// Creates a port and returns its entry in the server's `addresses`: network name and addresses.
fn add_port(state: &mut State, server: &str, zone: &str, new: NewPort) -> (String, Vec<Value>) {
    let subnet = if new.subnet.is_empty() { &state.fixture.subnet } else { &new.subnet };
    let subnet: Record = state.records.get(Kind::Subnet, subnet).cloned().unwrap_or_default();
    let mut ips = new.addresses;
    if ips.is_empty() {
        ips.extend(addresses::allocate(state, &subnet, None));
    }
    let fixed_ips: Vec<Value> = ips.iter().map(|ip| addresses::fixed_ip(&subnet, *ip)).collect();
    let (mac, group) = (state.ids.mac(), state.fixture.security_group.clone());
    let mut fields = object(json!({
        "device_id": server, "device_owner": format!("compute:{zone}"), "network_id": subnet.text("network_id"),
        "fixed_ips": fixed_ips, "status": if new.down { "DOWN" } else { "ACTIVE" }, "mac_address": mac,
        "security_groups": [group], "revision_number": 3,
    }));
    if !new.id.is_empty() {
        fields.set("id", new.id);
    }
    fixture::add(state, Kind::Port, Value::Object(fields));
    let network = state.records.get(Kind::Network, subnet.text("network_id"));
    let name = network.map_or("", |network| network.text("name")).to_owned();
    let entry = |kind: &'static str, mac: String| {
        move |ip: &IpAddr| {
            let version = if ip.is_ipv4() { 4 } else { 6 };
            json!({"version": version, "addr": ip.to_string(), "OS-EXT-IPS:type": kind, "OS-EXT-IPS-MAC:mac_addr": mac})
        }
    };
    let fixed = ips.iter().map(entry("fixed", mac.clone()));
    (name, fixed.chain(new.floating.iter().map(entry("floating", mac))).collect())
}
