//! Load balancers that another process, or the Go manager, has created or left half done.

use super::super::super::names;
use super::super::{Change, mappings, target_groups};
use super::model::target_group;
use super::*;
use crate::api::elbv2::{GroupHealthCheck, TargetGroup};

/// Returns the target group that the Go manager creates for a node port.
fn group_of(case: &Case, node_port: u16) -> TargetGroup {
    let mapping = mappings::Mapping { port: 80, protocol: "TCP", node_port, traffic_protocol: "TCP" };
    let check = GroupHealthCheck {
        protocol: "TCP".to_owned(),
        port: "traffic-port".to_owned(),
        path: None,
        interval: 30,
        healthy_threshold: 3,
        unhealthy_threshold: 3,
    };
    target_group(&target_groups::desired(&case.inputs(), &mapping, &check, "vpc-1"))
}

#[test]
fn what_the_go_manager_has_created_needs_no_step() {
    let mut case = Case::new(&[]);
    let (_, mut observed) = case.sync(None);
    // AWS reports more than either manager sets.
    for (key, value) in [
        ("access_logs.s3.enabled", "false"),
        ("access_logs.s3.bucket", ""),
        ("deletion_protection.enabled", "false"),
        ("load_balancing.cross_zone.enabled", "false"),
    ] {
        observed.attributes.insert(key.to_owned(), value.to_owned());
    }
    assert_eq!(observed.target_groups[0].group.name, group_of(&case, 30080).name);
    assert_eq!(case.text(Some(&observed)), "nothing to do");
    assert_eq!(case.warnings(Some(&observed)), [""; 0]);
}

#[test]
fn after_a_crash_at_any_step_the_end_state_is_the_same() {
    let mut case = Case::new(&[(super::super::super::annotations::CROSS_ZONE.key, "true")]);
    case.config.nlb_security_group_mode = "Managed".to_owned();
    let plan = case.plan(None).unwrap();
    let context = case.context.clone();
    let (_, complete) = case.sync(None);
    for steps in 0..plan.steps.len() {
        case.context = context.clone();
        let cut = Plan::of(plan.steps[..steps].to_vec());
        let observed = model::apply(&mut case.context, None, &cut);
        let observed = (!observed.load_balancer.arn.is_empty()).then_some(observed);
        let (_, recovered) = case.sync(observed);
        assert_eq!(recovered, complete, "after {steps} steps");
    }
}

#[test]
fn a_group_that_an_interrupted_update_has_left_is_deleted() {
    let mut case = Case::new(&[]);
    let (_, observed) = case.sync(None);
    case.context.leftover_target_groups = vec![group_of(&case, 30081)];
    let name = group_of(&case, 30081).name;
    assert_eq!(case.steps(Some(&observed)), [format!("delete target group {name}")]);
}

#[test]
fn a_group_that_an_interrupted_creation_has_left_is_used() {
    let mut case = Case::new(&[]);
    let (_, mut observed) = case.sync(None);
    observed.listeners.clear();
    observed.target_groups.clear();
    case.context.leftover_target_groups = vec![group_of(&case, 30080)];
    let steps = case.steps(Some(&observed));
    assert!(steps[0].starts_with("create target group"), "{steps:?}");
    assert!(!steps.iter().any(|step| step.starts_with("delete")), "{steps:?}");
}

#[test]
fn a_group_of_the_right_name_with_another_kind_of_check_is_changed() {
    let mut case = Case::new(&[]);
    let (_, mut observed) = case.sync(None);
    observed.target_groups[0].group.health_check_interval = 10;
    observed.target_groups[0].group.health_check_protocol = "HTTP".to_owned();
    let plan = case.plan(Some(&observed)).unwrap();
    let AnyChange::Network(Change::ModifyTargetGroup(_, change)) = &plan.steps[0].payload else { panic!("{plan}") };
    assert_eq!((change.interval, change.protocol.as_deref(), plan.steps.len()), (Some(30), Some("TCP"), 1));
    case.sync(Some(observed));
}

#[test]
fn a_listener_of_the_user_is_removed_but_its_group_stays() {
    let mut case = Case::new(&[]);
    let (_, mut observed) = case.sync(None);
    let mut listener = observed.listeners[0].clone();
    listener.arn = "arn:listener/mine".to_owned();
    listener.port = 9000;
    listener.default_actions[0].target_group_arn = "arn:mine".to_owned();
    observed.listeners.push(listener);
    let (name, arn, arns) = ("mine".to_owned(), "arn:mine".to_owned(), vec![ARN.to_owned()]);
    let group = TargetGroup { name, arn, load_balancer_arns: arns, ..TargetGroup::default() };
    observed.target_groups.push(target_groups::Observed { group, ..target_groups::Observed::default() });
    assert_eq!(case.steps(Some(&observed)), ["delete listener TCP 9000"]);
}

#[test]
fn the_prefix_of_group_names_is_that_of_the_service() {
    let case = Case::new(&[]);
    assert!(group_of(&case, 1).name.starts_with(&names::target_group_prefix(case.inputs().key)));
}

#[test]
fn a_name_that_the_load_balancer_of_an_earlier_service_has_gets_the_uid() {
    let mut case = Case::new(&[]);
    let taken = group_of(&case, 30080).name;
    case.context.taken_target_groups = [taken.clone()].into();
    let (_, observed) = case.sync(None);
    assert_ne!(observed.target_groups[0].group.name, taken);
    // Once the other one is deleted, nothing is renamed.
    case.context.taken_target_groups.clear();
    assert_eq!(case.text(Some(&observed)), "nothing to do");
}
