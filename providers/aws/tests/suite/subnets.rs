//! Subnets of load balancers: tags, zones, route tables and the annotation.

use bowline_aws_simulator::Fields as _;
use serde_json::{Value, json};

use crate::world::{NLB, World, web};

/// Sets the tags of a subnet.
fn tag(world: &World, subnet: &str, tags: &[(&str, &str)]) {
    let tags: Vec<_> = tags.iter().map(|(key, value)| json!({"key": key, "value": value})).collect();
    assert!(world.cloud.edit("subnet", subnet, |record| record.set("tagSet", tags)));
}

/// Removes the tags of all subnets.
fn untag(world: &World) {
    world.cloud.records("subnet").iter().for_each(|subnet| tag(world, subnet.text("subnetId"), &[]));
}

/// Adds a subnet with the route table of the public ones.
fn add_public(world: &World, id: &str, zone: &str, tags: &[(&str, &str)]) {
    let fixture = world.cloud.fixture();
    let fields = json!({"subnetId": id, "vpcId": fixture.vpc, "cidrBlock": "10.20.48.0/24", "availabilityZone": zone});
    world.cloud.put("subnet", fields);
    tag(world, id, tags);
    world.cloud.edit("route_table", &fixture.public_table, |table| {
        let associations = table.get_mut("associationSet").and_then(Value::as_array_mut).unwrap();
        associations.push(json!({"routeTableAssociationId": format!("rtbassoc-{id}"), "routeTableId": "x", "subnetId": id, "main": false}));
    });
}

/// Creates a load balancer of this kind, and returns its subnets, sorted.
async fn subnets(world: &World, annotations: &[(&str, &str)]) -> Vec<String> {
    world.create(annotations).await;
    let mut ids: Vec<_> = match annotations.contains(&NLB) {
        true => {
            let zones = world.network()["AvailabilityZones"].as_array().unwrap().clone();
            zones.iter().map(|zone| zone["SubnetId"].as_str().unwrap().to_owned()).collect()
        }
        false => world.classic().texts("Subnets").into_iter().map(str::to_owned).collect(),
    };
    ids.sort();
    ids
}

fn sorted(ids: &[impl AsRef<str>]) -> Vec<String> {
    let mut ids: Vec<_> = ids.iter().map(|id| id.as_ref().to_owned()).collect();
    ids.sort();
    ids
}

#[tokio::test(start_paused = true)]
async fn aws_8_the_main_table_decides_for_a_subnet_without_association() {
    let world = World::new().await;
    let fixture = world.cloud.fixture();
    world
        .cloud
        .edit("route_table", &fixture.public_table, |table| table.set("associationSet", Value::Array(Vec::new())));
    let error = world.error(web(&[])).await;
    assert!(error.contains("could not find any suitable subnets for creating the ELB"), "{error}");
    let gateway = json!({"destinationCidrBlock": "0.0.0.0/0", "gatewayId": fixture.internet_gateway, "origin": "CreateRoute", "state": "active"});
    world.cloud.edit("route_table", &fixture.main_table, |table| {
        table.get_mut("_routes").and_then(Value::as_array_mut).unwrap().push(gateway);
    });
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    assert_eq!(subnets(&world, &[]).await, sorted(&fixture.public_subnets));
}

#[tokio::test(start_paused = true)]
async fn aws_31_and_32_a_subnet_of_another_cluster_is_not_used_and_one_without_cluster_is() {
    for kind in [None, Some(NLB)] {
        let world = World::new().await;
        let annotations: Vec<_> = kind.into_iter().collect();
        let [a, b, c] = world.cloud.fixture().public_subnets;
        tag(&world, &a, &[("kubernetes.io/cluster/other", "shared"), ("kubernetes.io/role/elb", "1")]);
        tag(&world, &b, &[("Name", "plain")]);
        assert_eq!(subnets(&world, &annotations).await, sorted(&[b, c]));
    }
}

#[tokio::test(start_paused = true)]
async fn subnets_without_tags_are_used_one_in_each_zone() {
    let world = World::new().await;
    untag(&world);
    assert_eq!(subnets(&world, &[]).await, sorted(&world.cloud.fixture().public_subnets));
}

#[tokio::test(start_paused = true)]
async fn of_two_subnets_in_one_zone_the_one_with_role_cluster_or_lower_id_is_used() {
    let (role, cluster) = (("kubernetes.io/role/elb", ""), ("kubernetes.io/cluster/demo", "shared"));
    for (first, second, is_second, case) in [
        (&[][..], &[role][..], true, "the role"),
        (&[role], &[role, cluster], true, "the cluster"),
        (&[cluster], &[cluster], false, "the lower ID"),
        (&[role], &[cluster], false, "the role wins over the cluster"),
    ] {
        let world = World::new().await;
        let [a, b, c] = world.cloud.fixture().public_subnets;
        tag(&world, &a, first);
        add_public(&world, "subnet-fffffffffffffffff", "us-east-1a", second);
        let used = if is_second { "subnet-fffffffffffffffff".to_owned() } else { a };
        assert_eq!(subnets(&world, &[NLB]).await, sorted(&[used, b, c]), "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn local_zones_are_not_used_and_internal_load_balancers_take_any_subnet() {
    let world = World::new().await;
    let fixture = world.cloud.fixture();
    world.cloud.edit("zone", "us-east-1a", |zone| zone.set("zoneType", "local-zone"));
    assert_eq!(subnets(&world, &[]).await, sorted(&fixture.public_subnets[1..]));
    let world = World::new().await;
    assert_eq!(subnets(&world, &[("internal", "true")]).await, sorted(&world.cloud.fixture().private_subnets));
}

#[tokio::test(start_paused = true)]
async fn the_annotation_names_subnets_by_id_or_name() {
    let world = World::new().await;
    let fixture = world.cloud.fixture();
    let text = format!(" private-b, {} ,", fixture.public_subnets[0]);
    let expected = sorted(&[&fixture.private_subnets[1], &fixture.public_subnets[0]]);
    assert_eq!(subnets(&world, &[NLB, ("subnets", &text)]).await, expected);
    let world = World::new().await;
    let error = world.error(web(&[("subnets", "private-b,none")])).await;
    assert!(error.contains("expected to find 2, but found 1 subnets"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn without_a_suitable_subnet_the_service_fails_until_one_is_tagged() {
    let world = World::new().await;
    let fixture = world.cloud.fixture();
    for subnet in world.cloud.records("subnet") {
        tag(&world, subnet.text("subnetId"), &[("kubernetes.io/cluster/other", "shared")]);
    }
    let mut service = world.kept(web(&[]));
    let error = world.sync(&mut service).await.unwrap_err();
    assert_eq!(error.retry_advice(), bowline_cloud::Retry::Backoff, "{error}");
    assert_eq!(world.writes(), Vec::<String>::new());
    tag(&world, &fixture.public_subnets[1], &[]);
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    world.synced(&mut service).await;
    assert_eq!(world.classic().texts("Subnets"), [fixture.public_subnets[1].as_str()]);
}

#[tokio::test(start_paused = true)]
async fn changed_subnets_of_a_classic_load_balancer_are_swapped_so_that_it_always_has_one() {
    let (detach, attach) = ("DetachLoadBalancerFromSubnets", "AttachLoadBalancerToSubnets");
    for (to, expected) in [("public-b,public-c", [detach, attach]), ("public-c", [attach, detach])] {
        let world = World::new().await;
        let mut service = world.create(&[("subnets", "public-a,public-b")]).await;
        service.service = web(&[("subnets", to)]);
        world.synced(&mut service).await;
        assert_eq!(world.writes(), expected, "{to}");
        assert_eq!(world.classic().texts("Subnets").len(), to.split(',').count());
    }
}

#[tokio::test(start_paused = true)]
async fn changed_subnets_of_a_network_load_balancer_are_a_warning() {
    let world = World::new().await;
    let mut service = world.create(&[NLB, ("subnets", "public-a")]).await;
    service.service = web(&[NLB, ("subnets", "public-b")]);
    let plan = world.planned(&mut service).await.unwrap();
    assert!(plan.steps.is_empty() && !plan.warnings.is_empty(), "{plan}");
}
