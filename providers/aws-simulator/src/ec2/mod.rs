//! EC2: lists of all kinds of resources, and the actions on each of them.

mod filters;
mod groups;
mod routes;
mod tags;

use bowline_simulator::{Fields, Record};
use serde_json::{Map, Value, json};

use crate::params::Params;
use crate::simulator::{Action, State};
use crate::wire::{Failure, Outcome, require};

pub(crate) use groups::{add_rules, view as group_view};
pub(crate) use routes::view as route_table_view;
pub(crate) use tags::{pairs, tag_set};

pub(crate) const ACTIONS: &[Action] = &[
    Action::new("DescribeInstances", "InstanceId.# Filter.#.{Name,Value.#} MaxResults NextToken", instances),
    Action::new("DescribeInstanceTopology", "InstanceId.# Filter.#.{Name,Value.#} MaxResults NextToken", topology),
    Action::new(
        "DescribeAvailabilityZones",
        "ZoneName.# Filter.#.{Name,Value.#} AllAvailabilityZones",
        |state, params| describe(state, params, &ZONES),
    ),
    Action::new("DescribeSubnets", "SubnetId.# Filter.#.{Name,Value.#} MaxResults NextToken", |state, params| {
        describe(state, params, &SUBNETS)
    }),
    Action::new(
        "DescribeRouteTables",
        "RouteTableId.# Filter.#.{Name,Value.#} MaxResults NextToken",
        |state, params| describe(state, params, &ROUTE_TABLES),
    ),
    Action::new("DescribeSecurityGroups", "GroupId.# Filter.#.{Name,Value.#} MaxResults NextToken", |state, params| {
        describe(state, params, &GROUPS)
    }),
    Action::new(
        "DescribeNetworkInterfaces",
        "NetworkInterfaceId.# Filter.#.{Name,Value.#} MaxResults NextToken",
        |state, params| describe(state, params, &INTERFACES),
    ),
    Action::new(
        "CreateSecurityGroup",
        "GroupName! GroupDescription! VpcId TagSpecification.#.{ResourceType,Tag.#.{Key,Value}}",
        groups::create,
    ),
    Action::new("DeleteSecurityGroup", "GroupId!", groups::delete),
    Action::new("AuthorizeSecurityGroupIngress", groups::RULES, groups::authorize),
    Action::new("RevokeSecurityGroupIngress", groups::RULES, groups::revoke),
    Action::new("CreateTags", "ResourceId.#! Tag.#.{Key!,Value}", tags::create),
    Action::new("DeleteTags", "ResourceId.#! Tag.#.{Key,Value}", tags::delete),
    Action::new(
        "CreateRoute",
        "RouteTableId! DestinationCidrBlock DestinationIpv6CidrBlock InstanceId GatewayId NetworkInterfaceId",
        routes::create,
    ),
    Action::new("DeleteRoute", "RouteTableId! DestinationCidrBlock DestinationIpv6CidrBlock", routes::delete),
    Action::new("ModifyInstanceAttribute", "InstanceId! SourceDestCheck.Value", modify_instance),
];

/// A kind of resource that has an action to describe it.
pub(crate) struct List {
    pub(crate) kind: &'static str,
    /// Parameter with the IDs.
    ids: &'static str,
    /// Element of the response that holds the items.
    set: &'static str,
    /// Noun in error messages.
    noun: &'static str,
    /// Prefix of error codes: `InvalidInstanceID`.
    code: &'static str,
    /// Prefix of IDs.
    prefix: &'static str,
    /// Filters other than those for tags, each with the path of its field: `vpc-id=vpcId`.
    filters: &'static str,
}

pub(crate) const INSTANCES: List = List {
    kind: "instance",
    ids: "InstanceId",
    set: "reservationSet",
    noun: "instance ID",
    code: "InvalidInstanceID",
    prefix: "i-",
    filters: "instance-id=instanceId private-dns-name=privateDnsName private-ip-address=privateIpAddress \
        instance-state-name=instanceState.name instance-type=instanceType vpc-id=vpcId subnet-id=subnetId \
        availability-zone=placement.availabilityZone instance.group-id=groupSet.groupId \
        network-interface.private-dns-name=networkInterfaceSet.privateDnsName \
        network-interface.addresses.private-ip-address=networkInterfaceSet.privateIpAddressesSet.privateIpAddress",
};

const ZONES: List = List {
    kind: "zone",
    ids: "ZoneName",
    set: "availabilityZoneInfo",
    noun: "availability zone",
    code: "InvalidParameterValue",
    prefix: "",
    filters: "zone-name=zoneName zone-id=zoneId zone-type=zoneType state=zoneState region-name=regionName",
};

pub(crate) const SUBNETS: List = List {
    kind: "subnet",
    ids: "SubnetId",
    set: "subnetSet",
    noun: "subnet ID",
    code: "InvalidSubnetID",
    prefix: "subnet-",
    filters: "subnet-id=subnetId vpc-id=vpcId availability-zone=availabilityZone state=state cidr-block=cidrBlock",
};

pub(crate) const ROUTE_TABLES: List = List {
    kind: "route_table",
    ids: "RouteTableId",
    set: "routeTableSet",
    noun: "routeTable ID",
    code: "InvalidRouteTableID",
    prefix: "rtb-",
    filters: "route-table-id=routeTableId vpc-id=vpcId association.subnet-id=associationSet.subnetId \
        association.main=associationSet.main route.destination-cidr-block=routeSet.destinationCidrBlock \
        route.instance-id=routeSet.instanceId route.state=routeSet.state",
};

pub(crate) const GROUPS: List = List {
    kind: "security_group",
    ids: "GroupId",
    set: "securityGroupInfo",
    noun: "security group",
    code: "InvalidGroup",
    prefix: "sg-",
    filters: "group-id=groupId group-name=groupName vpc-id=vpcId description=groupDescription \
        ip-permission.group-id=ipPermissions.groups.groupId ip-permission.cidr=ipPermissions.ipRanges.cidrIp \
        ip-permission.protocol=ipPermissions.ipProtocol ip-permission.from-port=ipPermissions.fromPort \
        ip-permission.to-port=ipPermissions.toPort",
};

pub(crate) const INTERFACES: List = List {
    kind: "network_interface",
    ids: "NetworkInterfaceId",
    set: "networkInterfaceSet",
    noun: "networkInterface ID",
    code: "InvalidNetworkInterfaceID",
    prefix: "eni-",
    filters: "network-interface-id=networkInterfaceId vpc-id=vpcId subnet-id=subnetId status=status \
        private-dns-name=privateDnsName private-ip-address=privateIpAddressesSet.privateIpAddress \
        addresses.private-ip-address=privateIpAddressesSet.privateIpAddress \
        ipv6-addresses.ipv6-address=ipv6AddressesSet.ipv6Address attachment.status=attachment.status \
        attachment.instance-id=attachment.instanceId group-id=groupSet.groupId",
};

/// Pages that `MaxResults` may request.
const PAGE: std::ops::RangeInclusive<usize> = 5..=1000;

/// Types of instances that have a topology.
const TOPOLOGY_PREFIXES: [&str; 3] = ["hpc", "trn", "p"];

fn describe(state: &mut State, params: &Params, list: &List) -> Outcome {
    let found = find(state, params, list)?;
    // The list of zones has no pages, and neither has a request with IDs.
    page(state, params, list.set, found, &PAGE, params.has(list.ids) || list.kind == "zone")
}

/// Resources with the requested IDs that match all filters.
fn find(state: &State, params: &Params, list: &List) -> Result<Vec<Value>, Failure> {
    let ids = params.texts(list.ids);
    check_ids(state, list, &ids)?;
    let rows = state.records.of(list.kind).oldest_first();
    let mut found = Vec::new();
    for row in rows.into_iter().filter(|row| ids.is_empty() || ids.contains(&row.record.text("id"))) {
        let view = state.view(list.kind, &row.record);
        if filters::matches(params.items("Filter"), list.filters, &view)? {
            found.push(view);
        }
    }
    // The filters are checked even if there are no resources.
    filters::matches(params.items("Filter"), list.filters, &Value::Null)?;
    Ok(found)
}

/// Checks that all resources exist. The error names all IDs that do not.
pub(crate) fn check_ids(state: &State, list: &List, ids: &[&str]) -> Result<(), Failure> {
    let (code, noun) = (list.code, list.noun);
    let missing: Vec<&str> = ids.iter().filter(|id| state.records.get(list.kind, id).is_none()).copied().collect();
    if let Some(id) = missing.iter().find(|id| !is_well_formed(list.prefix, id)) {
        let code = if code == "InvalidGroup" { "InvalidGroupId" } else { code };
        return Err(Failure::new(&format!("{code}.Malformed"), format!("Invalid id: \"{id}\"")));
    }
    let message = match missing.as_slice() {
        _ if state.is_empty_view() => return Ok(()),
        [] => return Ok(()),
        [id] => format!("The {noun} '{id}' does not exist"),
        ids => format!("The {noun}s '{}' do not exist", ids.join(", ")),
    };
    let code = if list.prefix.is_empty() { code.to_owned() } else { format!("{code}.NotFound") };
    Err(Failure::new(&code, message))
}

/// Whether an ID has 8 or 17 hexadecimal digits after the prefix.
fn is_well_formed(prefix: &str, id: &str) -> bool {
    let is_hex = |text: &str| text.bytes().all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c));
    prefix.is_empty() || id.strip_prefix(prefix).is_some_and(|rest| [8, 17].contains(&rest.len()) && is_hex(rest))
}

/// One page of items: at most as many as the options allow, unless the response is `complete`.
fn page(
    state: &State,
    params: &Params,
    set: &str,
    found: Vec<Value>,
    sizes: &std::ops::RangeInclusive<usize>,
    complete: bool,
) -> Outcome {
    let size = params.number("MaxResults")?;
    if let Some(size) = size.filter(|size| !sizes.contains(size)) {
        let (low, high) = (sizes.start(), sizes.end());
        let message = format!(
            "Value ( {size} ) for parameter maxResults is invalid. Expecting a value between {low} and {high}."
        );
        return Err(Failure::invalid(message));
    }
    let start = match params.given("NextToken") {
        None => 0,
        Some(token) => {
            let start = token.strip_prefix("page-").and_then(|start| start.parse().ok());
            start
                .filter(|start| *start <= found.len())
                .ok_or_else(|| Failure::invalid("Unable to parse pagination token"))?
        }
    };
    let largest = if complete { usize::MAX } else { state.options.ec2_page };
    let end = start.saturating_add(size.unwrap_or(usize::MAX).min(largest)).min(found.len());
    let mut content = Map::new();
    if end < found.len() {
        content.set("nextToken", format!("page-{end}"));
    }
    content.set(set, found.get(start..end).unwrap_or_default());
    Ok(content.into())
}

fn instances(state: &mut State, params: &Params) -> Outcome {
    check_combination(params)?;
    let found = find(state, params, &INSTANCES)?.into_iter().map(|instance| reservation(state, instance)).collect();
    page(state, params, INSTANCES.set, found, &PAGE, params.has("InstanceId"))
}

fn check_combination(params: &Params) -> Result<(), Failure> {
    let message = "The parameter instancesSet cannot be used with the parameter maxResults";
    let is_combined = params.has("InstanceId") && params.has("MaxResults");
    require(!is_combined, || Failure::new("InvalidParameterCombination", message))
}

/// Reservation of one instance.
fn reservation(state: &State, instance: Value) -> Value {
    let id = instance["instanceId"].as_str().unwrap_or_default().replacen("i-", "r-", 1);
    json!({"reservationId": id, "ownerId": state.options.account, "groupSet": [], "instancesSet": [instance]})
}

fn topology(state: &mut State, params: &Params) -> Outcome {
    check_combination(params)?;
    let running = find(state, params, &INSTANCES)?.into_iter().filter(|instance| {
        let kind = instance["instanceType"].as_str().unwrap_or_default();
        let has_number = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
        let has_topology = TOPOLOGY_PREFIXES.iter().any(|prefix| kind.strip_prefix(prefix).is_some_and(has_number));
        has_topology && instance["instanceState"]["name"] == "running"
    });
    let items = running.map(|instance| topology_item(state, &instance)).collect();
    page(state, params, "instanceSet", items, &(1..=100), params.has("InstanceId"))
}

/// Topology of an instance: the last of its network nodes is specific to the subnet.
fn topology_item(state: &State, instance: &Value) -> Value {
    let zone = instance["placement"]["availabilityZone"].as_str().unwrap_or_default();
    let zone_id = state.records.get("zone", zone).map_or("", |zone| zone.text("zoneId"));
    let subnet = instance["subnetId"].as_str().unwrap_or_default().trim_start_matches("subnet-");
    let nodes = [format!("nn-1{zone_id}"), format!("nn-2{zone_id}"), format!("nn-3{subnet}")];
    json!({"instanceId": instance["instanceId"], "instanceType": instance["instanceType"], "networkNodeSet": nodes,
        "availabilityZone": zone, "zoneId": zone_id})
}

fn modify_instance(state: &mut State, params: &Params) -> Outcome {
    let id = params.text("InstanceId");
    let check = params.value("SourceDestCheck")["Value"].as_str().unwrap_or_default();
    let interface = single_interface(state, id)?;
    let value = check.parse::<bool>().map_err(|_| Failure::missing(crate::wire::Api::Ec2, "SourceDestCheck"))?;
    for (kind, id) in [("instance", id), ("network_interface", &interface)] {
        if let Some(record) = state.records.get_mut(kind, id) {
            record.set("sourceDestCheck", value);
        }
    }
    Ok(json!({"return": true}))
}

/// ID of the network interface of an instance that has exactly one.
fn single_interface(state: &State, id: &str) -> Result<String, Failure> {
    check_ids(state, &INSTANCES, &[id])?;
    let count = |count: &str| {
        Failure::new("InvalidInstanceID", format!("There are {count} interfaces attached to instance '{id}'"))
    };
    match state.interfaces(id).as_slice() {
        [] => Err(count("no")),
        [interface] => Ok(interface.text("id").to_owned()),
        _ => Err(count("multiple")),
    }
}

impl State {
    /// Resource as responses show it.
    pub(crate) fn view(&self, kind: &str, record: &Record) -> Value {
        match kind {
            "instance" => self.instance_view(record).into(),
            "security_group" => group_view(self, record).into(),
            "route_table" => route_table_view(self, record).into(),
            _ => record.clone().into(),
        }
    }

    /// Instance with its network interfaces.
    fn instance_view(&self, record: &Record) -> Record {
        let mut view = record.clone();
        let interfaces = self.interfaces(record.text("id")).into_iter().map(|interface| {
            let mut interface = interface.clone();
            ["tagSet", "availabilityZone", "requesterManaged"].iter().for_each(|field| drop(interface.remove(*field)));
            if let Some(attachment) = interface.get_mut("attachment").and_then(Value::as_object_mut) {
                attachment.retain(|field, _| !field.starts_with("instance"));
            }
            Value::Object(interface)
        });
        view.set("networkInterfaceSet", interfaces.collect::<Vec<_>>());
        view
    }
}
