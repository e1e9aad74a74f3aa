//! Deletion, and load balancers that do not work.

use super::super::{Change, leftover_steps, removal};
use super::*;

#[test]
fn a_deletion_removes_the_load_balancer_and_its_groups_but_no_shared_one() {
    let mut case = Case::new(&[]);
    let (_, mut observed) = case.sync(None);
    let mut shared = observed.target_groups[0].clone();
    shared.group.load_balancer_arns.push("arn:other".to_owned());
    observed.target_groups.push(shared);
    let steps = removal(&observed);
    let changes: Vec<_> = steps.iter().map(|step| &step.payload).collect();
    let [AnyChange::Network(Change::Delete(arn)), AnyChange::Network(Change::DeleteTargetGroup { .. })] =
        changes.as_slice()
    else {
        panic!("{steps:?}");
    };
    assert_eq!(arn, ARN);
    let groups = [observed.target_groups[0].group.clone()];
    assert_eq!(leftover_steps(&groups), steps[1..]);
}

#[test]
fn a_failed_load_balancer_has_no_address_and_an_error_with_the_remedy() {
    let mut case = Case::new(&[]);
    let (_, mut observed) = case.sync(None);
    observed.load_balancer.state.code = "failed".to_owned();
    observed.load_balancer.state.reason = "no capacity".to_owned();
    assert_eq!(observed.hostname(), "");
    let plan = case.plan(Some(&observed)).unwrap();
    let [error] = plan.errors.as_slice() else { panic!("{plan}") };
    assert!(error.message.contains("has failed: \"no capacity\"; fix: "), "{error}");
    assert!(plan.steps.is_empty());
}

#[test]
fn a_load_balancer_without_subnets_is_an_error() {
    let mut case = Case::new(&[]);
    let (_, mut observed) = case.sync(None);
    observed.subnets.clear();
    let plan = case.plan(Some(&observed)).unwrap();
    let text = format!("did not find ensured subnets on LB {}", case.inputs().name);
    assert_eq!(plan.errors.iter().map(|error| error.message.as_str()).collect::<Vec<_>>(), [text]);
}
