//! Steps of security groups.

use super::super::super::groups::all_from;
use super::super::{group_users, groups};
use super::*;

fn group_texts(fixture: &Fixture) -> Vec<String> {
    let (groups, _) = groups::desired(&fixture.inputs()).unwrap();
    groups.iter().map(|group| group.text().to_owned()).collect()
}

#[test]
fn groups_come_from_the_annotation_the_configuration_or_are_created() {
    let with_config = |annotations: &[(&str, &str)]| {
        let mut fixture = annotated(Fixture::new().with_own_group(), annotations);
        fixture.config.elb_security_group = "sg-elb".to_owned();
        fixture
    };
    let own = |annotations| annotated(Fixture::new().with_own_group(), annotations);
    for (fixture, expected) in [
        (own(&[]), &[OWN][..]),
        (own(&[("security-groups", " , ")]), &[OWN]),
        (own(&[("extra-security-groups", "sg-2,sg-1,sg-2")]), &[OWN, "sg-2", "sg-1"]),
        (own(&[("security-groups", "sg-2, sg-1"), ("extra-security-groups", "sg-1,sg-0")]), &["sg-2", "sg-1", "sg-0"]),
        (with_config(&[]), &["sg-elb"]),
        (with_config(&[("security-groups", "sg-1")]), &["sg-1"]),
        (with_config(&[("extra-security-groups", "sg-1")]), &["sg-elb", "sg-1"]),
        (with_config(&[("extra-security-groups", "sg-1,sg-elb")]), &["sg-1", "sg-elb"]),
    ] {
        assert_eq!(group_texts(&fixture), expected, "{:?}", fixture.annotations);
    }
}

#[test]
fn a_replaced_own_group_is_removed_after_everything_else() {
    let before = Fixture::new().with_own_group();
    let observed = before.created_by_go();
    let after = annotated(before, &[("security-groups", "sg-1"), ("connection-idle-timeout", "90")]);
    let expected = [
        "update CLB LB [security group: sg-own (removed); security group: sg-1]",
        "update security group sg-nodes [rule: all from sg-1]",
        "update security group sg-nodes [rule: all from sg-own (removed)]",
        "update CLB LB [idle timeout: 60 -> 90]",
        "delete security group k8s-elb-LB []",
    ];
    let plan = after.plan(Some(&observed));
    assert_eq!(shown(&plan), expected);
    assert_eq!(plan.locks, ["sg-1".to_owned()].into());
    // An earlier sync was interrupted before the deletion.
    let mut detached = after.created_by_go();
    detached.load_balancer.security_groups = vec!["sg-1".to_owned()];
    let after = after.group(NODES, "nodes", vec![all_from("sg-1"), all_from(OWN)]);
    assert_eq!(after.steps(Some(&detached)), [expected[2], expected[4]]);
}

/// A Service with the group `sg-1` in place of its own.
fn with_foreign_group() -> (Fixture, Observed) {
    let fixture = annotated(Fixture::new(), &[("security-groups", "sg-1")]);
    let fixture = fixture.group(NODES, "nodes", vec![all_from("sg-1")]).group("sg-old", "old", vec![all_from("sg-1")]);
    let observed = fixture.created_by_go();
    (fixture, observed)
}

#[test]
fn the_rule_of_a_group_that_others_have_stays() {
    let (fixture, observed) = with_foreign_group();
    let revoked = "update security group sg-old [rule: all from sg-1 (removed)]";
    assert_eq!(fixture.steps(Some(&observed)), [revoked]);
    let other = annotated(fixture.clone(), &[("security-groups", "sg-2")]);
    assert_eq!(other.steps(Some(&observed)).iter().filter(|step| step.contains("sg-1 (removed)")).count(), 3);
    let shared = |mut fixture: Fixture| {
        fixture.context.shared_groups = ["sg-1".to_owned()].into();
        fixture
    };
    assert_eq!(shared(fixture).steps(Some(&observed)), [""; 0]);
    let expected = [
        "update CLB LB [security group: sg-1 (removed); security group: sg-2]",
        "update security group sg-nodes [rule: all from sg-2]",
    ];
    let plan = shared(other).plan(Some(&observed));
    assert_eq!(shown(&plan), expected);
    assert_eq!(plan.locks, ["sg-1".to_owned(), "sg-2".to_owned()].into());
}

#[test]
fn a_deletion_removes_the_rule_of_its_source_group_first() {
    let (mut fixture, observed) = with_foreign_group();
    let revoked = |group| format!("update security group {group} [rule: all from sg-1 (removed)]");
    let plan = fixture.removal(&observed);
    assert_eq!(shown(&plan), [revoked("sg-nodes"), revoked("sg-old"), "delete CLB LB []".to_owned()]);
    assert_eq!(plan.locks, ["sg-1".to_owned()].into());
    fixture.context.shared_groups = ["sg-1".to_owned()].into();
    assert_eq!(shown(&fixture.removal(&observed)), ["delete CLB LB []"]);
    fixture.context.shared_groups.clear();
    fixture.config.disable_security_group_ingress = true;
    assert_eq!(shown(&fixture.removal(&observed)), ["delete CLB LB []"]);
}

#[test]
fn a_deletion_leaves_the_own_group_to_the_common_steps() {
    let fixture = annotated(Fixture::new().with_own_group(), &[("extra-security-groups", "sg-1")]);
    let plan = fixture.removal(&fixture.created_by_go());
    assert_eq!(shown(&plan), ["delete CLB LB []"]);
    assert!(plan.locks.is_empty());
}

#[test]
fn the_source_group_is_the_first_in_the_order_of_upstream() {
    let fixture = Fixture::new().with_own_group();
    let source = |annotations: &[(&str, &str)], attached: &[&str]| {
        let fixture = annotated(fixture.clone(), annotations);
        let security_groups = attached.iter().map(|id| (*id).to_owned()).collect();
        let load_balancer = LoadBalancer { security_groups, ..LoadBalancer::default() };
        let (identity, groups) = (&fixture.identity, &fixture.context.groups);
        groups::source(&fixture.config, identity, Values(&fixture.annotations), groups, &load_balancer)
    };
    assert_eq!(source(&[], &["sg-1", OWN]).as_deref(), Some(OWN));
    assert_eq!(source(&[("security-groups", "sg-2,sg-1")], &[OWN, "sg-1", "sg-2"]).as_deref(), Some("sg-2"));
    assert_eq!(source(&[("extra-security-groups", "sg-1")], &["sg-1", "sg-9"]).as_deref(), Some("sg-9"));
    assert_eq!(source(&[("extra-security-groups", "sg-2,sg-1")], &["sg-1", "sg-2"]).as_deref(), Some("sg-2"));
    assert_eq!(source(&[], &[]), None);
}

#[test]
fn only_groups_that_are_given_up_need_a_listing() {
    let (fixture, observed) = with_foreign_group();
    let desired = |fixture: &Fixture, is_desired: bool| bowline_core::DesiredLoadBalancer {
        key: fixture.key.clone(),
        annotations: Arc::new(fixture.annotations.clone()),
        settings: Arc::new(fixture.settings.clone()),
        spec: is_desired.then(|| Arc::new(fixture.spec.clone())),
    };
    let given_up = |fixture: &Fixture, is_desired: bool, observed: Option<&Observed>| -> BTreeSet<String> {
        let instances = BTreeMap::new();
        let lists = (&fixture.context.groups, &instances);
        let desired = desired(fixture, is_desired);
        let observed = observed.map(|it| &it.load_balancer);
        group_users::given_up(&fixture.config, &fixture.identity, (&desired, Fixture::NAME), observed, lists)
    };
    let one: BTreeSet<String> = ["sg-1".to_owned()].into();
    assert_eq!(given_up(&fixture, false, Some(&observed)), one, "deletion");
    assert_eq!(given_up(&fixture, true, None), one, "a group that is no longer a node group has the rule");
    let quiet = fixture.clone().group("sg-old", "old", vec![]).group(NODES, "nodes", vec![]);
    assert!(given_up(&quiet, true, Some(&observed)).is_empty(), "no change");
    let other = annotated(quiet, &[("security-groups", "sg-2")]);
    assert_eq!(given_up(&other, true, Some(&observed)), one, "another group");
    let own = Fixture::new().with_own_group();
    let observed = own.created_by_go();
    for is_desired in [true, false] {
        assert!(given_up(&own, is_desired, Some(&observed)).is_empty(), "own group");
    }
}

#[test]
fn node_groups_are_left_alone_if_the_configuration_says_so() {
    let mut fixture = Fixture::new();
    fixture.config.disable_security_group_ingress = true;
    assert!(!fixture.steps(None).iter().any(|step| step.contains(NODES)));
    let mut fixture = Fixture::new();
    fixture.config.elb_security_group = "sg-elb".to_owned();
    let plan = fixture.plan(None);
    assert!(shown(&plan).contains(&format!("update security group {NODES} [rule: all from sg-elb]")), "{plan}");
    assert_eq!(plan.locks, ["sg-elb".to_owned()].into());
}
