//! Security groups: own groups, rules of Nodes, quotas, and what deletions leave.

use std::time::Duration;

use bowline_aws_simulator::{Fields as _, NewInstance, Options};
use bowline_cloud::ErrorKind;
use bowline_core::Service;
use serde_json::json;

use crate::world::{CLUSTER_TAG, Kept, NAME, NLB, World, other, target, web};

const MANAGED: &str = "NLBSecurityGroupMode = Managed\n";

/// Name of the own group of a Classic Load Balancer.
fn own() -> String {
    format!("k8s-elb-{NAME}")
}

fn ranges(service: Service, ranges: &[&str]) -> Service {
    Service { source_ranges: ranges.iter().map(ToString::to_string).collect(), ..service }
}

/// Adds a Node whose instance has these security groups.
fn node_in(world: &World, groups: &[&str]) -> bowline_core::TargetNode {
    let groups = groups.iter().map(ToString::to_string).collect();
    let id =
        world.cloud.add_instance(NewInstance { groups, ..NewInstance::named("other") }.tagged(CLUSTER_TAG, "owned"));
    target("other", &format!("aws:///us-east-1a/{id}"))
}

/// Adds a rule for TCP port 443 from another group by hand.
fn refer(world: &World, group: &str, source: &str) {
    let rule = json!({"protocol": "tcp", "from": 443, "to": 443, "kind": "Groups", "source": source, "rule": "sgr-user", "description": null});
    world.cloud.edit("security_group", group, |group| group.set("_rules", [rule].as_slice()));
}

// ---- quotas

#[tokio::test(start_paused = true)]
async fn aws_5_the_quota_of_rules_is_reported_and_a_deletion_leaves_nothing() {
    for (kind, lines) in [(None, ""), (Some(NLB), ""), (Some(NLB), MANAGED)] {
        let world = World::with(Options::default(), lines).await;
        world.cloud.configure(|options| options.limits.rules = 5);
        let annotations: Vec<_> = kind.into_iter().collect();
        let many: Vec<_> = (0..9).map(|at| format!("10.{at}.0.0/16")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        let mut service = world.kept(ranges(web(&annotations), &many));
        let error = world.sync(&mut service).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::QuotaExceeded, "{error}");
        assert!(error.to_string().contains("api error RulesPerSecurityGroupLimitExceeded: "), "{error}");
        // Nothing is created twice.
        world.sync(&mut service).await.unwrap_err();
        world.delete(&mut service).await.unwrap();
        assert_eq!(world.leftovers(), Vec::<String>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn errors_of_own_groups_have_the_prefixes_of_the_go_manager() {
    let world = World::new().await;
    world.cloud.configure(|options| options.limits.rules = 1);
    let error = world.error(web(&[])).await;
    let id = world.group(&own()).unwrap().text("groupId").to_owned();
    let expected =
        format!("creating ingress rules for security group \"{id}\": error authorizing security group ingress: ");
    assert!(error.starts_with(&expected), "{error}");
    let world = World::with(Options::default(), MANAGED).await;
    world.cloud.configure(|options| options.limits.rules = 1);
    let error = world.error(web(&[NLB])).await;
    assert!(error.starts_with("error ensuring NLB security group rules: "), "{error}");
}

#[tokio::test(start_paused = true)]
async fn errors_while_a_replaced_group_is_removed_have_the_prefix_of_the_go_manager() {
    for action in ["ec2:RevokeSecurityGroupIngress", "ec2:DeleteSecurityGroup"] {
        let world = World::new().await;
        let mut service = world.create(&[]).await;
        let other = world.cloud.put_security_group("mine", &[]);
        world.cloud.deny(action);
        service.service = web(&[("security-groups", &other)]);
        let error = world.sync(&mut service).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert!(error.to_string().starts_with("error removing owned security groups: "), "{action}: {error}");
        world.cloud.allow(action);
        world.synced(&mut service).await;
        assert!(world.group(&own()).is_none());
        assert_eq!(world.rules("nodes"), [format!("-1 from {other}")]);
    }
}

// ---- groups of Nodes

#[tokio::test(start_paused = true)]
async fn aws_9_two_tagged_groups_on_an_instance_are_an_error_that_names_both() {
    for kind in [None, Some(NLB)] {
        let world = World::new().await;
        let second = world.cloud.put_security_group("second", &[(CLUSTER_TAG, "owned")]);
        let node = node_in(&world, &[&world.cloud.fixture().node_group, &second]);
        let annotations: Vec<_> = kind.into_iter().collect();
        let mut service = world.kept(web(&annotations));
        service.nodes.push(node);
        let error = world.sync(&mut service).await.unwrap_err().to_string();
        let expected = "ensure only the k8s security group is tagged; the tagged groups were ";
        assert!(error.contains("Multiple tagged security groups found for instance i-"), "{error}");
        assert!(error.contains(expected) && error.contains("(nodes)") && error.contains("(second)"), "{error}");
        assert_eq!(world.writes(), Vec::<String>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn of_untagged_groups_an_instance_may_have_one() {
    let world = World::new().await;
    let (first, second) = (world.cloud.put_security_group("one", &[]), world.cloud.put_security_group("two", &[]));
    let mut service = world.kept(web(&[]));
    service.nodes = vec![node_in(&world, &[&first])];
    world.synced(&mut service).await;
    assert_eq!(world.rules("one").len(), 1);
    assert_eq!(world.rules("nodes"), Vec::<String>::new());
    service.nodes = vec![node_in(&world, &[&first, &second])];
    let error = world.sync(&mut service).await.unwrap_err().to_string();
    assert!(error.contains("Multiple untagged security groups found for instance i-"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn aws_45_a_rule_of_the_user_is_neither_added_again_nor_revoked() {
    let world = World::new().await;
    let nodes = world.cloud.fixture().node_group;
    assert!(world.cloud.put_rule(&nodes, "0.0.0.0/0", 30080, 30080, Some("by hand")));
    let mut service = world.create(&[NLB]).await;
    let expected = ["tcp 30080 from 0.0.0.0/0 [by hand]"];
    assert_eq!(world.rules("nodes"), expected);
    world.delete(&mut service).await.unwrap();
    assert_eq!(world.rules("nodes"), expected);
}

#[tokio::test(start_paused = true)]
async fn load_balancers_share_the_rules_for_path_mtu_discovery() {
    let world = World::new().await;
    let mut first = world.create(&[NLB]).await;
    let mut second = world.kept(other(&[NLB]));
    world.synced(&mut second).await;
    assert_eq!(world.rules("nodes").len(), 3);
    world.delete(&mut first).await.unwrap();
    assert_eq!(world.rules("nodes").len(), 2, "the other one needs path MTU discovery");
    world.delete(&mut second).await.unwrap();
    assert_eq!(world.leftovers(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn health_checks_from_the_subnets_are_allowed_if_clients_are_restricted() {
    let world = World::new().await;
    world.synced(&mut world.kept(ranges(web(&[NLB]), &["192.0.2.7/24"]))).await;
    let health = |subnet: u8| format!("tcp 30080 from 10.20.{subnet}.0/20 [kubernetes.io/rule/nlb/health={NAME}]");
    let mut expected = vec![
        "icmp 3-4 from 192.0.2.0/24 [kubernetes.io/rule/nlb/mtu]".to_owned(),
        format!("tcp 30080 from 192.0.2.0/24 [kubernetes.io/rule/nlb/client={NAME}]"),
    ];
    expected.extend([0, 16, 32].map(health));
    expected.sort();
    assert_eq!(world.rules("nodes"), expected);
}

#[tokio::test(start_paused = true)]
async fn the_configuration_can_exclude_the_groups_of_nodes() {
    for kind in [None, Some(NLB)] {
        let world = World::with(Options::default(), "DisableSecurityGroupIngress = true\n").await;
        let annotations: Vec<_> = kind.into_iter().collect();
        let mut service = world.create(&annotations).await;
        assert_eq!(world.rules("nodes"), Vec::<String>::new());
        world.delete(&mut service).await.unwrap();
        assert_eq!(world.leftovers(), Vec::<String>::new());
    }
}

// ---- own groups

#[tokio::test(start_paused = true)]
async fn the_own_group_has_exactly_the_rules_of_the_service() {
    let world = World::new().await;
    let mut service = world.create(&[]).await;
    let group = world.group(&own()).unwrap().text("groupId").to_owned();
    world.cloud.put_rule(&group, "10.0.0.0/8", 22, 22, Some("by hand"));
    service.service = ranges(web(&[]), &["192.0.2.0/24"]);
    world.synced(&mut service).await;
    assert_eq!(world.rules(&own()), ["icmp 3-4 from 192.0.2.0/24", "tcp 80 from 192.0.2.0/24"]);
    assert_eq!(world.writes(), ["AuthorizeSecurityGroupIngress", "RevokeSecurityGroupIngress"], "one call each");
}

#[tokio::test(start_paused = true)]
async fn a_group_of_another_cluster_is_not_taken_over() {
    let world = World::new().await;
    world.cloud.put_security_group(&own(), &[(CLUSTER_TAG, "shared")]);
    let error = world.error(web(&[])).await;
    assert!(
        error.contains(
            "has tag belonging to another cluster: \"kubernetes.io/cluster/demo\"=\"shared\" (expected \"owned\")"
        ),
        "{error}"
    );
    assert_eq!(world.writes(), Vec::<String>::new());
}

// ---- deletion

/// Deletes with back-off, as the controller does, and returns the texts of the errors.
async fn delete_patiently(world: &World, service: &mut Kept) -> Vec<String> {
    let mut errors = Vec::new();
    for _ in 0..40 {
        match world.delete(service).await {
            Ok(_) => return errors,
            Err(error) => errors.push(error.to_string()),
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    panic!("never deleted: {errors:?}");
}

#[tokio::test(start_paused = true)]
async fn aws_27_a_group_that_a_group_of_the_user_references_is_deleted_once_the_reference_is_gone() {
    let world = World::new().await;
    let mut service = world.create(&[]).await;
    let group = world.group(&own()).unwrap().text("groupId").to_owned();
    let user = world.cloud.put_security_group("user", &[]);
    refer(&world, &user, &group);
    let error = world.delete(&mut service).await.unwrap_err();
    assert!(error.to_string().contains(&group), "the Event names the group: {error}");
    assert_eq!(world.cloud.classic_load_balancers().len(), 0);
    assert_eq!(world.rules("user"), [format!("tcp 443 from {group}")], "the reference stays");
    world.cloud.remove("security_group", &user);
    delete_patiently(&world, &mut service).await;
    assert_eq!(world.leftovers(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn aws_27_a_replaced_group_is_deleted_once_the_reference_of_the_user_is_gone() {
    let world = World::new().await;
    let mut service = world.create(&[]).await;
    let group = world.group(&own()).unwrap().text("groupId").to_owned();
    let (user, other) = (world.cloud.put_security_group("user", &[]), world.cloud.put_security_group("other", &[]));
    refer(&world, &user, &group);
    service.service = web(&[("security-groups", &other)]);
    world.sync(&mut service).await.unwrap_err();
    assert_eq!(world.classic().texts("SecurityGroups"), [other.as_str()], "only the deletion waits");
    assert_eq!(world.rules("nodes"), [format!("-1 from {other}")]);
    assert_eq!(world.rules("user"), [format!("tcp 443 from {group}")], "the reference stays");
    world.cloud.remove("security_group", &user);
    world.synced(&mut service).await;
    assert!(world.group(&own()).is_none());
}

#[tokio::test(start_paused = true)]
async fn aws_47_a_group_that_is_still_in_use_is_deleted_by_a_later_sync() {
    for (kind, lines) in [(None, ""), (Some(NLB), MANAGED)] {
        let world = World::with(Options::default(), lines).await;
        world.cloud.configure(|options| options.lingering = Duration::from_secs(900));
        let annotations: Vec<_> = kind.into_iter().collect();
        let mut service = world.create(&annotations).await;
        let errors = delete_patiently(&world, &mut service).await;
        assert!(!errors.is_empty(), "it takes longer than one attempt");
        assert_eq!(world.leftovers(), Vec::<String>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn aws_47_a_new_process_finds_what_an_interrupted_deletion_has_left() {
    for (kind, lines) in [(None, ""), (Some(NLB), ""), (Some(NLB), MANAGED)] {
        let world = World::with(Options::default(), lines).await;
        let annotations: Vec<_> = kind.into_iter().collect();
        let mut service = world.create(&annotations).await;
        service.is_deleted = true;
        for calls in 1.. {
            let (_, crashed) = world.cloud.crashing(calls, world.sync(&mut service)).await;
            if !crashed {
                break;
            }
        }
        delete_patiently(&world, &mut service).await;
        assert_eq!(world.leftovers(), Vec::<String>::new(), "{annotations:?}");
    }
}
