//! Network Load Balancers: target groups, health checks, attributes, and the order of the calls.

use bowline_aws_simulator::{FaultSpec, Fields as _, Options, elb_fault};
use bowline_core::{Service, TrafficPolicy};
use http::Method;

use crate::world::{NLB, World, instance, node, web};

const SHARED: &str = "ClusterServiceLoadBalancerHealthProbeMode = Shared\n";
const MANAGED: &str = "NLBSecurityGroupMode = Managed\n";

fn local(service: Service) -> Service {
    Service { traffic_policy: TrafficPolicy::Local, health_check_node_port: Some(32000), ..service }
}

/// Health check of the only target group.
fn health_check(world: &World) -> String {
    let group = world.target_group();
    let [protocol, port, interval, healthy, unhealthy] = ["Protocol", "Port", "IntervalSeconds"]
        .map(|field| group.text(&format!("HealthCheck{field}")).to_owned())
        .into_iter()
        .chain(["HealthyThresholdCount", "UnhealthyThresholdCount"].map(|field| group.text(field).to_owned()))
        .collect::<Vec<_>>()
        .try_into()
        .unwrap();
    let path = group.get("HealthCheckPath").and_then(|path| path.as_str()).unwrap_or("-");
    format!("{protocol} {port} {path} {interval} {healthy}/{unhealthy}")
}

// ---- health checks

#[tokio::test(start_paused = true)]
async fn aws_41_to_44_service_annotations_and_mode_decide_the_health_check() {
    let (protocol, port) = (|value| ("healthcheck-protocol", value), |value| ("healthcheck-port", value));
    for (service, lines, expected, case) in [
        (web(&[NLB, protocol("Http")]), "", "HTTP traffic-port / 30 3/3", "AWS-41"),
        (local(web(&[NLB, protocol("TCP"), port("8001")])), "", "TCP 8001 - 10 2/2", "AWS-42"),
        (web(&[NLB, port("8001")]), SHARED, "HTTP 10256 /healthz 30 3/3", "AWS-43"),
        (web(&[NLB, ("healthcheck-interval", "23")]), "", "TCP traffic-port - 23 3/3", "AWS-44"),
        (web(&[NLB]), "", "TCP traffic-port - 30 3/3", "default"),
        (local(web(&[NLB])), "", "HTTP 32000 /healthz 10 2/2", "Local"),
    ] {
        let world = World::with(Options::default(), lines).await;
        world.synced(&mut world.kept(service)).await;
        assert_eq!(health_check(&world), expected, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn aws_6_a_changed_health_check_gets_a_new_target_group_and_the_old_one_is_deleted() {
    let world = World::new().await;
    let mut service = world.create(&[NLB]).await;
    let before = world.target_group().text("TargetGroupArn").to_owned();
    service.service = web(&[NLB, ("healthcheck-protocol", "HTTP")]);
    world.synced(&mut service).await;
    assert_eq!(world.writes(), ["CreateTargetGroup", "RegisterTargets", "ModifyListener", "DeleteTargetGroup"]);
    assert_ne!(world.target_group().text("TargetGroupArn"), before);
}

#[tokio::test(start_paused = true)]
async fn aws_6_an_old_target_group_that_is_still_in_use_is_deleted_later() {
    let world = World::new().await;
    let mut service = world.create(&[NLB]).await;
    let in_use = elb_fault(400, "ResourceInUse", "Target group is currently in use by a listener or a rule");
    world.cloud.inject(FaultSpec::always(in_use).on(Method::POST, "elbv2 DeleteTargetGroup").times(3));
    service.service = web(&[NLB, ("healthcheck-protocol", "HTTP")]);
    world.synced(&mut service).await;
    assert_eq!(world.cloud.target_groups().len(), 1);
    // The process ends before the deletion succeeds, and another one continues.
    world.cloud.inject(
        FaultSpec::always(elb_fault(503, "ServiceUnavailable", "later")).on(Method::POST, "elbv2 DeleteTargetGroup"),
    );
    service.service = web(&[NLB, ("healthcheck-interval", "10")]);
    world.sync(&mut service).await.unwrap_err();
    assert_eq!(world.cloud.target_groups().len(), 2);
    world.cloud.repair_all();
    world.synced(&mut service).await;
    assert_eq!(world.cloud.target_groups().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_changed_threshold_is_one_call_and_the_group_stays() {
    let world = World::new().await;
    let mut service = world.create(&[NLB]).await;
    service.service = web(&[NLB, ("healthcheck-unhealthy-threshold", "5")]);
    world.synced(&mut service).await;
    assert_eq!(world.writes(), ["ModifyTargetGroup"]);
    assert_eq!(health_check(&world), "TCP traffic-port - 30 3/5");
}

// ---- attributes and addresses

#[tokio::test(start_paused = true)]
async fn aws_26_blanks_around_attributes_of_target_groups_are_trimmed() {
    let world = World::new().await;
    world
        .create(&[
            NLB,
            ("target-group-attributes", " preserve_client_ip.enabled=false , proxy_protocol_v2.enabled=true "),
        ])
        .await;
    let group = world.target_group();
    let attributes = &group["_attributes"];
    assert_eq!(
        (&attributes["preserve_client_ip.enabled"], &attributes["proxy_protocol_v2.enabled"]),
        (&"false".into(), &"true".into())
    );
}

#[tokio::test(start_paused = true)]
async fn aws_33_too_few_elastic_ips_are_an_error_before_anything_is_created() {
    for lines in ["", MANAGED] {
        let world = World::with(Options::default(), lines).await;
        let allocation = world.cloud.fixture().allocation;
        let error = world.error(web(&[NLB, ("eip-allocations", &allocation)])).await;
        let expected = "error creating load balancer: Must have same number of EIP AllocationIDs (1) and SubnetIDs (3)";
        assert!(error.starts_with(expected), "{error}");
        let error = world.error(web(&[NLB, ("private-ipv4-addresses", "10.20.0.9,")])).await;
        let expected =
            "error creating load balancer: Must have same number of Private IPv4Addresses (2) and SubnetIDs (3)";
        assert!(error.starts_with(expected), "{error}");
        assert_eq!(world.writes(), Vec::<String>::new(), "not even a security group");
    }
}

#[tokio::test(start_paused = true)]
async fn an_elastic_ip_goes_to_the_subnet_at_its_place() {
    let world = World::new().await;
    let (allocation, subnet) = (world.cloud.fixture().allocation, world.cloud.fixture().public_subnets[1].clone());
    world.create(&[NLB, ("eip-allocations", &allocation), ("subnets", "public-b")]).await;
    let zones = world.network()["AvailabilityZones"].as_array().unwrap().clone();
    assert_eq!(zones.len(), 1);
    assert_eq!(zones[0]["SubnetId"], subnet.as_str());
    assert_eq!(zones[0]["LoadBalancerAddresses"][0]["AllocationId"], allocation.as_str());
}

#[tokio::test(start_paused = true)]
async fn aws_34_a_failed_load_balancer_has_no_host_name() {
    let world = World::new().await;
    let mut service = world.create(&[NLB]).await;
    let arn = world.network().text("id").to_owned();
    for (state, count) in [("provisioning", 1), ("active_impaired", 0), ("failed", 0), ("active", 1)] {
        world.cloud.edit("load_balancer", &arn, |record| record.set("State", serde_json::json!({"Code": state})));
        let (observed, plan) = world.driver().plan(&mut service).await.unwrap();
        assert_eq!(observed.unwrap().status.ingress.len(), count, "{state}");
        assert_eq!(plan.errors.len(), usize::from(state == "failed"), "{state}");
    }
}

// ---- targets

#[tokio::test(start_paused = true)]
async fn aws_35_a_network_load_balancer_deregisters_targets_before_it_registers_others() {
    let world = World::new().await;
    let mut service = world.create(&[NLB]).await;
    service.nodes = vec![world.nodes[1].clone(), node(&world.cloud, "node-3")];
    world.cloud.configure(|options| options.limits.targets = 2);
    world.synced(&mut service).await;
    assert_eq!(world.writes(), ["DeregisterTargets", "RegisterTargets"]);
    let targets = world.target_group()["_targets"].as_array().unwrap().clone();
    let mut found: Vec<_> = targets.iter().map(|one| one["Id"].as_str().unwrap().to_owned()).collect();
    let mut expected: Vec<_> = service.nodes.iter().map(instance).collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}

#[tokio::test(start_paused = true)]
async fn more_targets_than_allowed_are_a_quota_error_and_a_deletion_leaves_nothing() {
    let world = World::new().await;
    world.cloud.configure(|options| options.limits.targets = 1);
    let mut service = world.kept(web(&[NLB]));
    let error = world.sync(&mut service).await.unwrap_err();
    assert_eq!(error.kind(), bowline_cloud::ErrorKind::QuotaExceeded, "{error}");
    assert!(error.to_string().contains("TooManyTargets"), "{error}");
    world.delete(&mut service).await.unwrap();
    assert_eq!(world.leftovers(), Vec::<String>::new());
}
