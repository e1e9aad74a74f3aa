//! Instances: creation, states and termination, which no manager requests.

use std::net::{Ipv4Addr, Ipv6Addr};

use bowline_simulator::{Fields, Record, object};
use serde_json::{Value, json};

use crate::ec2::tag_set;
use crate::simulator::{Simulator, State};

/// States of an instance, each with its code.
const STATES: [(&str, u8); 6] =
    [("pending", 0), ("running", 16), ("shutting-down", 32), ("terminated", 48), ("stopping", 64), ("stopped", 80)];

/// Parameters of a new instance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewInstance {
    /// Value of the `Name` tag.
    pub name: String,
    /// ID; a new one if empty.
    pub id: String,
    /// State; `running` if empty.
    pub state: String,
    /// Instance type; `t3.medium` if empty.
    pub kind: String,
    /// ID of the subnet; the private subnet of the first zone if empty.
    pub subnet: String,
    /// Tags in addition to `Name`.
    pub tags: Vec<(String, String)>,
    /// IDs of the security groups of all interfaces; the node group if empty.
    pub groups: Vec<String>,
    /// Addresses of each network interface, by device index. Without any, there is one interface with an IPv4 address.
    pub interfaces: Vec<NewInterface>,
    /// Public IPv4 address.
    pub public: Option<Ipv4Addr>,
    /// Private DNS name; derived from the first address if empty.
    pub private_dns_name: String,
}

/// Addresses of a network interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewInterface {
    /// Private IPv4 addresses, the primary one first.
    pub ipv4: Vec<Ipv4Addr>,
    /// IPv6 addresses.
    pub ipv6: Vec<Ipv6Addr>,
}

impl NewInstance {
    /// Running instance with this name in the private subnet of the first zone, without a cluster tag.
    pub fn named(name: &str) -> NewInstance {
        NewInstance { name: name.to_owned(), ..NewInstance::default() }
    }

    /// Adds a tag.
    pub fn tagged(mut self, key: &str, value: &str) -> NewInstance {
        self.tags.push((key.to_owned(), value.to_owned()));
        self
    }
}

impl Simulator {
    /// Creates an instance and returns its ID.
    pub fn add_instance(&self, new: NewInstance) -> String {
        self.state().add_instance(new)
    }

    /// Sets the state of an instance: `pending`, `running`, `stopping`, `stopped`, `shutting-down` or `terminated`.
    pub fn set_state(&self, id: &str, name: &str) {
        self.state().set_instance_state(id, name);
    }

    /// Terminates an instance: its interfaces are deleted, routes to it become blackholes, and load balancers lose it as a target.
    /// It is still listed; [`remove`](Simulator::remove) makes its ID unknown.
    pub fn terminate(&self, id: &str) {
        let state = &mut *self.state();
        state.set_instance_state(id, "terminated");
        state.records.of_mut("network_interface").retain(|row| row.owner != id);
        for row in state.records.of_mut("classic").iter_mut() {
            retain(&mut row.record, "Instances", |instance| instance["InstanceId"] != id);
        }
        for row in state.records.of_mut("target_group").iter_mut() {
            retain(&mut row.record, "_targets", |target| target["Id"] != id);
        }
        if let Some(record) = state.records.get_mut("instance", id) {
            ["privateIpAddress", "ipAddress", "subnetId", "vpcId"].iter().for_each(|field| drop(record.remove(*field)));
            record.set("groupSet", json!([]));
            record.set("privateDnsName", "");
            record.set("dnsName", "");
        }
    }

    /// Changes the `Name` tag of an instance.
    pub fn rename(&self, id: &str, name: &str) {
        self.edit("instance", id, |record| {
            retain(record, "tagSet", |tag| tag["key"] != "Name");
            if let Some(tags) = record.get_mut("tagSet").and_then(Value::as_array_mut) {
                tags.push(json!({"key": "Name", "value": name}));
            }
        });
    }
}

/// Tags of a new instance.
fn tags(new: &NewInstance) -> Value {
    let given = new.tags.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    tag_set([("Name", new.name.as_str())].into_iter().chain(given))
}

/// Removes the items of a list field for which `keep` returns `false`.
pub(crate) fn retain(record: &mut Record, field: &str, keep: impl FnMut(&Value) -> bool) {
    if let Some(list) = record.get_mut(field).and_then(Value::as_array_mut) {
        list.retain(keep);
    }
}

impl State {
    fn set_instance_state(&mut self, id: &str, name: &str) {
        let code = STATES.iter().find(|(known, _)| *known == name).map_or(0, |(_, code)| *code);
        if let Some(record) = self.records.get_mut("instance", id) {
            record.set("instanceState", json!({"code": code, "name": name}));
        }
    }

    pub(crate) fn add_instance(&mut self, mut new: NewInstance) -> String {
        let or = |given: &str, default: &str| if given.is_empty() { default.to_owned() } else { given.to_owned() };
        let id = if new.id.is_empty() { self.new_id("i") } else { new.id.clone() };
        let subnet = or(&new.subnet, &self.fixture.private_subnets[0]);
        let record = self.records.get("subnet", &subnet).cloned().unwrap_or_default();
        let (vpc, zone) = (record.text("vpcId").to_owned(), record.text("availabilityZone").to_owned());
        if new.interfaces.is_empty() {
            let ipv4 = vec![self.next_address(record.text("cidrBlock"))];
            new.interfaces.push(NewInterface { ipv4, ipv6: Vec::new() });
        }
        if new.groups.is_empty() {
            new.groups.push(self.fixture.node_group.clone());
        }
        let address = new.interfaces.first().and_then(|interface| interface.ipv4.first().copied());
        let private_dns_name = match (new.private_dns_name.is_empty(), address) {
            (true, Some(address)) => self.private_dns_name(address),
            _ => new.private_dns_name.clone(),
        };
        let dns_name = new.public.map_or(String::new(), |public| self.public_dns_name(public));
        let fields = json!({"instanceId": id, "instanceType": or(&new.kind, "t3.medium"), "subnetId": subnet, "vpcId": vpc,
            "placement": {"availabilityZone": zone, "groupName": "", "tenancy": "default"}, "privateDnsName": private_dns_name,
            "dnsName": dns_name, "privateIpAddress": address, "ipAddress": new.public, "groupSet": self.group_set(&new.groups),
            "tagSet": tags(&new)});
        self.put("instance", object(fields));
        self.set_instance_state(&id, &or(&new.state, "running"));
        for (index, interface) in new.interfaces.iter().enumerate() {
            let public = new.public.filter(|_| index == 0);
            let place = json!({"subnetId": subnet, "vpcId": vpc, "availabilityZone": zone, "groupSet": self.group_set(&new.groups)});
            self.add_interface(&id, index, interface, public, place);
        }
        id
    }

    /// Attaches a network interface to an instance.
    fn add_interface(
        &mut self,
        instance: &str,
        index: usize,
        new: &NewInterface,
        public: Option<Ipv4Addr>,
        place: Value,
    ) {
        let association = public.map(
            |public| json!({"publicIp": public, "publicDnsName": self.public_dns_name(public), "ipOwnerId": "amazon"}),
        );
        let address = |(at, ip): (usize, &Ipv4Addr)| {
            let association = association.as_ref().filter(|_| at == 0);
            json!({"privateIpAddress": ip, "privateDnsName": self.private_dns_name(*ip), "primary": at == 0, "association": association})
        };
        let addresses: Vec<Value> = new.ipv4.iter().enumerate().map(address).collect();
        let ipv6: Vec<Value> = new.ipv6.iter().map(|ip| json!({"ipv6Address": ip, "isPrimaryIpv6": false})).collect();
        let attachment = json!({"attachmentId": self.new_id("eni-attach"), "deviceIndex": index, "status": "attached",
            "deleteOnTermination": true, "instanceId": instance, "instanceOwnerId": self.options.account});
        let mut fields = object(place);
        fields.set("attachment", attachment);
        fields.set("association", association.clone());
        fields.set("macAddress", self.ids.mac());
        fields.set("privateIpAddress", new.ipv4.first().map(Ipv4Addr::to_string));
        fields.set("privateDnsName", new.ipv4.first().map(|ip| self.private_dns_name(*ip)));
        fields.set("privateIpAddressesSet", addresses);
        fields.set("ipv6AddressesSet", ipv6);
        fields.set("_owner", instance);
        let id = self.put("network_interface", fields);
        let interfaces = self.records.get_mut("instance", instance).and_then(|record| record.get_mut("_interfaces"));
        interfaces.and_then(Value::as_array_mut).into_iter().for_each(|list| list.push(json!(id)));
    }

    /// Network interfaces of an instance, by device index; none if it is terminated.
    pub(crate) fn interfaces(&self, instance: &str) -> Vec<&Record> {
        let record = self.records.get("instance", instance);
        let ids = record.map(|record| record.texts("_interfaces")).unwrap_or_default();
        ids.into_iter().filter_map(|id| self.records.get("network_interface", id)).collect()
    }

    fn group_set(&self, groups: &[String]) -> Value {
        let name = |id: &str| self.records.get("security_group", id).map(|group| group.text("groupName").to_owned());
        groups.iter().map(|id| json!({"groupId": id, "groupName": name(id)})).collect::<Vec<_>>().into()
    }

    /// Next address of a subnet.
    pub(crate) fn next_address(&mut self, cidr: &str) -> Ipv4Addr {
        self.count += 1;
        let network = cidr.parse::<ipnet::Ipv4Net>().map_or(Ipv4Addr::new(10, 20, 0, 0), |net| net.network());
        Ipv4Addr::from_bits(network.to_bits().wrapping_add(9 + self.count))
    }

    fn private_dns_name(&self, address: Ipv4Addr) -> String {
        let domain = match self.options.region.as_str() {
            "us-east-1" => "ec2.internal".to_owned(),
            region => format!("{region}.compute.internal"),
        };
        format!("ip-{}.{domain}", address.to_string().replace('.', "-"))
    }

    fn public_dns_name(&self, address: Ipv4Addr) -> String {
        let domain = match self.options.region.as_str() {
            "us-east-1" => "compute-1.amazonaws.com".to_owned(),
            region => format!("{region}.compute.amazonaws.com"),
        };
        format!("ec2-{}.{domain}", address.to_string().replace('.', "-"))
    }
}
