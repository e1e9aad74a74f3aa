//! The account: its load balancers with everything that belongs to them, and its routes.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::moto::{Moto, list, text};

/// A load balancer of either type.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) hostname: String,
    /// Instances that get traffic.
    pub(crate) targets: Vec<String>,
    /// Ports with the node ports that they lead to.
    pub(crate) ports: Vec<(u64, u64)>,
}

fn sorted<T: Ord>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut all: Vec<_> = all.collect();
    all.sort();
    all
}

/// Returns the only Classic Load Balancer, if there is one.
pub(crate) async fn classic(moto: &Moto) -> Option<Seen> {
    let all = moto.call("elb", "describe_load_balancers", json!({})).await;
    let all = list(&all["LoadBalancerDescriptions"]);
    assert!(all.len() < 2, "{all:#?}");
    let own = all.first()?;
    let number = |one: &Value, field: &str| one["Listener"][field].as_u64().unwrap();
    let port = |one: &Value| (number(one, "LoadBalancerPort"), number(one, "InstancePort"));
    Some(Seen {
        hostname: text(&own["DNSName"]),
        targets: sorted(list(&own["Instances"]).iter().map(|one| text(&one["InstanceId"]))),
        ports: sorted(list(&own["ListenerDescriptions"]).iter().map(port)),
    })
}

/// Returns the only Network Load Balancer, if there is one.
pub(crate) async fn network(moto: &Moto) -> Option<Seen> {
    let all = moto.call("elbv2", "describe_load_balancers", json!({})).await;
    let all = list(&all["LoadBalancers"]);
    assert!(all.len() < 2, "{all:#?}");
    let own = all.first()?;
    let of_own = json!({"LoadBalancerArn": own["LoadBalancerArn"]});
    let listeners = moto.call_if_exists("elbv2", "describe_listeners", of_own).await;
    let (mut targets, mut ports) = (Vec::new(), Vec::new());
    for listener in list(&listeners["Listeners"]) {
        let group = text(&listener["DefaultActions"][0]["TargetGroupArn"]);
        let found = moto.call_if_exists("elbv2", "describe_target_groups", json!({"TargetGroupArns": [group]})).await;
        ports.push((listener["Port"].as_u64().unwrap(), found["TargetGroups"][0]["Port"].as_u64().unwrap_or_default()));
        let health = moto.call_if_exists("elbv2", "describe_target_health", json!({"TargetGroupArn": group})).await;
        let is_registered = |one: &&Value| one["TargetHealth"]["State"] != "draining";
        let registered = list(&health["TargetHealthDescriptions"]).iter().filter(is_registered);
        targets.extend(registered.map(|one| text(&one["Target"]["Id"])));
    }
    targets.sort();
    targets.dedup();
    ports.sort_unstable();
    Some(Seen { hostname: text(&own["DNSName"]), targets, ports })
}

/// Returns the rules of a security group: `tcp 30080-30080 0.0.0.0/0`.
pub(crate) async fn rules(moto: &Moto, group: &str) -> Vec<String> {
    let groups = moto.call("ec2", "describe_security_groups", json!({"GroupIds": [group]})).await;
    let permissions = list(&groups["SecurityGroups"][0]["IpPermissions"]).iter();
    let of_permission = |one: &Value| {
        let ports = format!("{} {}-{}", text(&one["IpProtocol"]), one["FromPort"], one["ToPort"]);
        let ranges = list(&one["IpRanges"]).iter().map(|range| text(&range["CidrIp"]));
        let groups = list(&one["UserIdGroupPairs"]).iter().map(|pair| text(&pair["GroupId"]));
        ranges.chain(groups).map(|source| format!("{ports} {source}")).collect::<Vec<_>>()
    };
    sorted(permissions.flat_map(of_permission))
}

/// Returns the routes to instances in a table: destination and instance.
pub(crate) async fn routes(moto: &Moto, table: &str) -> Vec<(String, String)> {
    let tables = moto.call("ec2", "describe_route_tables", json!({"RouteTableIds": [table]})).await;
    let routes = list(&tables["RouteTables"][0]["Routes"]).iter().filter(|one| one["GatewayId"] != "local");
    sorted(routes.map(|one| (text(&one["DestinationCidrBlock"]), text(&one["InstanceId"]))))
}

/// Returns everything that a Service or a Node may leave.
pub(crate) async fn everything(moto: &Moto) -> BTreeMap<&'static str, Vec<String>> {
    let mut all = BTreeMap::new();
    for (api, operation, field, id) in [
        ("elb", "describe_load_balancers", "LoadBalancerDescriptions", "LoadBalancerName"),
        ("elbv2", "describe_load_balancers", "LoadBalancers", "LoadBalancerArn"),
        ("elbv2", "describe_target_groups", "TargetGroups", "TargetGroupArn"),
        ("ec2", "describe_security_groups", "SecurityGroups", "GroupId"),
    ] {
        let found = moto.call(api, operation, json!({})).await;
        all.insert(field, sorted(list(&found[field]).iter().map(|one| text(&one[id]))));
    }
    let groups = moto.call("ec2", "describe_security_groups", json!({})).await;
    let rules = list(&groups["SecurityGroups"]).iter();
    all.insert("rules", sorted(rules.map(|one| format!("{} {}", one["GroupId"], one["IpPermissions"]))));
    let tables = moto.call("ec2", "describe_route_tables", json!({})).await;
    let tables = list(&tables["RouteTables"]).iter();
    all.insert("routes", sorted(tables.map(|one| format!("{} {}", one["RouteTableId"], one["Routes"]))));
    all
}
