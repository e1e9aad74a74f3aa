//! Default fields of each kind of record, and the initial network of the account.

use std::sync::LazyLock;

use bowline_simulator::{Fields, Record, object};
use serde_json::{Value, json};

use crate::instances::{NewInstance, NewInterface};
use crate::simulator::State;

static FIXTURE: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("fixture.json")).unwrap_or_default());

/// Name of the default security group of a VPC.
pub(crate) const DEFAULT_GROUP: &str = "default";

/// Kinds of records, each with the field that holds the ID and the prefix of new IDs.
const IDS: [(&str, &str, &str); 13] = [
    ("vpc", "vpcId", "vpc"),
    ("internet_gateway", "internetGatewayId", "igw"),
    ("zone", "zoneName", "zone"),
    ("subnet", "subnetId", "subnet"),
    ("route_table", "routeTableId", "rtb"),
    ("security_group", "groupId", "sg"),
    ("instance", "instanceId", "i"),
    ("network_interface", "networkInterfaceId", "eni"),
    ("address", "allocationId", "eipalloc"),
    ("certificate", "CertificateArn", "certificate"),
    ("classic", "LoadBalancerName", "classic"),
    ("load_balancer", "LoadBalancerArn", "arn"),
    ("target_group", "TargetGroupArn", "arn"),
];

/// IDs of the resources that a new account has.
#[derive(Debug, Clone, Default)]
pub struct Fixture {
    /// VPC 10.20.0.0/16.
    pub vpc: String,
    /// Internet gateway.
    pub internet_gateway: String,
    /// Public subnets of the zones a, b and c.
    pub public_subnets: [String; 3],
    /// Private subnets of the zones a, b and c.
    pub private_subnets: [String; 3],
    /// Main route table, of the private subnet of zone c.
    pub main_table: String,
    /// Route table of the public subnets.
    pub public_table: String,
    /// Route table of the private subnets of zones a and b, with the cluster tag.
    pub node_table: String,
    /// Security group of the nodes, with the cluster tag.
    pub node_group: String,
    /// Security group of the control plane, with the cluster tag.
    pub control_plane_group: String,
    /// Default security group of the VPC.
    pub default_group: String,
    /// Control-plane instance; empty if the options have none.
    pub control_plane: String,
    /// Allocation ID of the elastic IP address.
    pub allocation: String,
    /// ARN of the certificate.
    pub certificate: String,
}

/// Default fields of a record of this kind.
pub(crate) fn defaults(kind: &str) -> Record {
    object(FIXTURE["kinds"][kind].clone())
}

/// Default attributes of a load balancer or target group of ELBv2.
pub(crate) fn attributes(kind: &str) -> Value {
    FIXTURE["attributes"][kind].clone()
}

/// Adds the network and the control-plane instance.
pub(crate) fn populate(state: &mut State) {
    let cluster = format!("kubernetes.io/cluster/{}", state.options.cluster);
    let tag = |value: &str| json!({"key": cluster, "value": value});
    let tags = json!([{"key": "Name", "value": state.options.cluster}, tag("shared")]);
    let vpc = state.put("vpc", object(json!({"cidrBlock": "10.20.0.0/16", "tagSet": tags})));
    state.fixture.vpc.clone_from(&vpc);
    state.fixture.internet_gateway = state.put("internet_gateway", object(json!({"_vpc": vpc})));
    put_subnets(state, &vpc, &tag("shared"));
    put_tables(state, &vpc, &tag("owned"));
    put_groups(state, &vpc, &tag("owned"));
    state.fixture.allocation = state.put("address", object(json!({"publicIp": "203.0.113.10"})));
    let (region, account) = (&state.options.region, &state.options.account);
    let arn = format!("arn:aws:acm:{region}:{account}:certificate/11111111-2222-4333-8444-555555555555");
    state.fixture.certificate = state.put("certificate", object(json!({"CertificateArn": arn})));
    if state.options.control_plane {
        let groups = vec![state.fixture.control_plane_group.clone()];
        let interfaces = vec![NewInterface { ipv4: vec![[10, 20, 64, 5].into()], ipv6: Vec::new() }];
        let new = NewInstance { groups, interfaces, ..NewInstance::named("control-plane-1") };
        state.fixture.control_plane = state.add_instance(new.tagged(&cluster, "owned"));
        state.own_instance = state.fixture.control_plane.clone();
    }
}

/// Adds a public and a private subnet in each of three zones.
fn put_subnets(state: &mut State, vpc: &str, tag: &Value) {
    for (at, letter) in ["a", "b", "c"].into_iter().enumerate() {
        let zone = put_zone(state, at, letter);
        let put = |state: &mut State, kind: &str, role: &str, cidr: String| {
            let name = json!({"key": "Name", "value": format!("{kind}-{letter}")});
            let role = json!({"key": format!("kubernetes.io/role/{role}"), "value": "1"});
            let fields =
                json!({"vpcId": vpc, "cidrBlock": cidr, "availabilityZone": zone, "tagSet": [name, tag, role]});
            state.put("subnet", object(fields))
        };
        state.fixture.public_subnets[at] = put(state, "public", "elb", format!("10.20.{}.0/20", 16 * at));
        state.fixture.private_subnets[at] =
            put(state, "private", "internal-elb", format!("10.20.{}.0/18", 64 + 64 * at));
    }
}

/// Adds the default group, and those of the nodes and the control plane.
fn put_groups(state: &mut State, vpc: &str, tag: &Value) {
    let group = |state: &mut State, name: &str, tags: Value| {
        let fields = json!({"groupName": name, "groupDescription": name, "vpcId": vpc, "tagSet": tags});
        state.put("security_group", object(fields))
    };
    state.fixture.default_group = group(state, DEFAULT_GROUP, json!([]));
    state.fixture.node_group = group(state, "nodes", json!([tag]));
    state.fixture.control_plane_group = group(state, "control-plane", json!([tag]));
}

fn put_zone(state: &mut State, at: usize, letter: &str) -> String {
    let region = state.options.region.clone();
    let zone = format!("{region}{letter}");
    let fields = json!({"zoneName": zone, "regionName": region, "groupName": region, "networkBorderGroup": region,
        "zoneId": format!("{}-az{}", abbreviated(&region), at + 1)});
    state.put("zone", object(fields))
}

/// Region in zone IDs: `use1` for `us-east-1`, `apse2` for `ap-southeast-2`.
fn abbreviated(region: &str) -> String {
    let part = |(at, part): (usize, &str)| match part {
        part if at == 0 => part.to_owned(),
        "northeast" | "northwest" | "southeast" | "southwest" => format!("{}{}", &part[..1], &part[5..6]),
        part => part.get(..1).unwrap_or_default().to_owned(),
    };
    region.split('-').enumerate().map(part).collect()
}

/// Adds the main route table, the public one and the one for pod routes.
fn put_tables(state: &mut State, vpc: &str, tag: &Value) {
    let local = json!({"destinationCidrBlock": "10.20.0.0/16", "gatewayId": "local", "origin": "CreateRouteTable", "state": "active"});
    let gateway = json!({"destinationCidrBlock": "0.0.0.0/0", "gatewayId": state.fixture.internet_gateway, "origin": "CreateRoute",
        "state": "active"});
    let (public, private) = (state.fixture.public_subnets.clone(), state.fixture.private_subnets.clone());
    let table = |state: &mut State, routes: &[&Value], subnets: &[String], tags: Value| {
        let id = state.new_id("rtb");
        let association = |subnet: Option<&String>| {
            json!({"routeTableAssociationId": id.replace("rtb", "rtbassoc"), "routeTableId": id, "subnetId": subnet,
                "main": subnet.is_none(), "associationState": {"state": "associated"}})
        };
        let mut associations: Vec<Value> = subnets.iter().map(|subnet| association(Some(subnet))).collect();
        if subnets.is_empty() {
            associations.push(association(None));
        }
        let fields = json!({"routeTableId": id, "vpcId": vpc, "associationSet": associations, "_routes": routes, "tagSet": tags});
        state.put("route_table", object(fields))
    };
    state.fixture.main_table = table(state, &[&local], &[], json!([]));
    state.fixture.public_table =
        table(state, &[&local, &gateway], &public, json!([{"key": "Name", "value": "rtb-public"}]));
    let tags = json!([{"key": "Name", "value": "rtb-nodes"}, tag]);
    state.fixture.node_table = table(state, &[&local], private.get(..2).unwrap_or_default(), tags);
}

impl State {
    /// Stores a record and returns its ID. Fields that are not given get defaults. `_owner` is the record that it belongs to.
    pub(crate) fn put(&mut self, kind: &'static str, mut given: Record) -> String {
        let owner = given.remove("_owner").unwrap_or_default();
        let mut record = defaults(kind);
        record.extend(given.into_iter().filter(|(_, value)| !value.is_null()));
        let (_, field, prefix) = IDS.into_iter().find(|(known, ..)| *known == kind).unwrap_or((kind, "id", kind));
        let id = if record.text(field).is_empty() { self.new_id(prefix) } else { record.text(field).to_owned() };
        record.set(field, id.as_str());
        for field in ["launchTime", "CreatedTime"] {
            if let Some(date) = record.get_mut(field) {
                *date = json!(self.clock.format("%Y-%m-%dT%H:%M:%S.000Z"));
            }
        }
        if record.contains_key("ownerId") {
            record.set("ownerId", self.options.account.as_str());
        }
        self.store(kind, owner.as_str().unwrap_or_default(), &id, record);
        id
    }
}
