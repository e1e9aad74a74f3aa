//! How long it takes to bring a balancer to what is wished, for the metrics: from the first look until nothing is left to do or
//! something goes wrong. What the cloud is at work on is waited for within a pass; a plan that nobody carries out, as in a dry run,
//! is not one of a pass that goes on.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use bowline_cloud::{Error, ErrorKind, Result};
use bowline_core::{LoadBalancerKey, LoadBalancerWish, Plan, Step};
use tokio::time::Instant;

use crate::metrics::{Metrics, Operation};

/// The passes that are under way.
#[derive(Debug, Default)]
pub(crate) struct Passes(Mutex<HashMap<LoadBalancerKey, Pass>>);

#[derive(Debug)]
struct Pass {
    since: Instant,
    operation: Operation,
    /// There is a plan, and no step of it was carried out yet.
    is_mere_plan: bool,
}

impl Passes {
    /// These are looked at: where nothing is under way, something is now. One that was to be made and is to go now was given up, and
    /// so was one that was planned and not begun with.
    pub(super) fn begin(&self, wishes: &[LoadBalancerWish]) {
        let mut passes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for wish in wishes {
            let operation = if wish.spec.is_some() { Operation::Ensure } else { Operation::Delete };
            let goes = |operation| operation == Operation::Delete;
            let is_given_up = |pass: &Pass| pass.is_mere_plan || goes(pass.operation) != goes(operation);
            if passes.get(&wish.key).is_none_or(is_given_up) {
                passes.insert(wish.key.clone(), Pass { since: Instant::now(), operation, is_mere_plan: false });
            }
        }
    }

    /// This came of planning.
    pub(super) fn planned(&self, metrics: &Metrics, key: &LoadBalancerKey, outcome: &Result<Plan>) {
        match outcome {
            Ok(plan) if plan.is_empty() => self.end(metrics, key, false),
            Ok(plan) => self.with(key, |pass| {
                pass.is_mere_plan = true;
                if pass.operation == Operation::Ensure && plan.steps.iter().all(is_about_nodes) {
                    pass.operation = Operation::Update;
                }
            }),
            Err(error) => self.failed(metrics, key, error.kind()),
        }
    }

    /// A step of the plan is carried out.
    pub(super) fn applies(&self, key: &LoadBalancerKey) {
        self.with(key, |pass| pass.is_mere_plan = false);
    }

    /// It did not work, unless it is only not done yet.
    pub(super) fn failed(&self, metrics: &Metrics, key: &LoadBalancerKey, kind: ErrorKind) {
        if kind != ErrorKind::InProgress {
            self.end(metrics, key, true);
        }
    }

    /// A step did not work, unless the pass goes on without it.
    pub(super) fn step_failed(&self, metrics: &Metrics, key: &LoadBalancerKey, step: &Step, error: &Error) {
        if !error.leaves_out(step) {
            self.failed(metrics, key, error.kind());
        }
    }

    fn with(&self, key: &LoadBalancerKey, act: impl FnOnce(&mut Pass)) {
        let mut passes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pass) = passes.get_mut(key) {
            act(pass);
        }
    }

    fn end(&self, metrics: &Metrics, key: &LoadBalancerKey, failed: bool) {
        let pass = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        if let Some(Pass { since, operation, .. }) = pass {
            metrics.reconciled(operation, since.elapsed(), failed);
        }
    }
}

/// What is done when nodes come or go, by its name in a payload.
const ABOUT_NODES: [&str; 4] = ["setMembers", "createMember", "deleteMember", "joinSecurityGroup"];

/// The step is there because nodes have come or gone.
fn is_about_nodes(step: &Step) -> bool {
    let done = step.payload.pointer("/change/do").and_then(serde_json::Value::as_str);
    done.is_some_and(|done| ABOUT_NODES.contains(&done))
}

#[cfg(test)]
mod tests {
    use bowline_core::Verb;
    use bowline_core::testing::{cleanup_wish, wish};
    use prometheus::Registry;
    use serde_json::json;

    use super::*;
    use crate::load_balancers::change::{Change, GroupRef, Payload, PoolRef, SeenPort};

    fn counted(metrics: &Metrics, name: &str) -> Vec<(String, f64)> {
        let registry = Registry::new();
        metrics.register(&registry);
        let families = registry.gather().into_iter().filter(|family| family.name() == name);
        let counters = families.flat_map(|family| family.get_metric().to_vec());
        counters.map(|counter| (counter.get_label()[0].value().to_owned(), counter.get_counter().get_value())).collect()
    }

    fn planned(change: Change) -> Result<Plan> {
        let payload = json!(Payload { balancer: None, change });
        let (kind, name) = ("thing".to_owned(), "it".to_owned());
        let step = Step { verb: Verb::Update, kind, name, changes: Vec::new(), dispensable: None, payload };
        Ok(Plan::of(vec![step]))
    }

    fn error(kind: ErrorKind) -> Error {
        Error::new(kind, "change", "")
    }

    #[test]
    fn a_refusal_of_what_is_dispensable_is_no_failure() {
        let (passes, metrics) = (Passes::default(), Metrics::new());
        let web = wish("default/web", &[]);
        let plan = planned(Change::DeletePool { id: "p1".to_owned() }).unwrap();
        let dispensable = Step { dispensable: Some("Unknown".to_owned()), ..plan.steps[0].clone() };
        for (step, failures) in
            [(&dispensable, vec![]), (&plan.steps[0], vec![("loadbalancer_ensure".to_owned(), 1.0)])]
        {
            passes.begin(std::slice::from_ref(&web));
            passes.step_failed(&metrics, &web.key, step, &error(ErrorKind::InvalidConfig));
            assert_eq!(counted(&metrics, "cloudprovider_openstack_reconcile_errors_total"), failures);
        }
    }

    #[test]
    fn steps_that_are_there_because_of_nodes_are_known_by_their_names() {
        let (pool, group) = (|| PoolRef::Id("p1".to_owned()), || GroupRef::Id("g1".to_owned()));
        let port = SeenPort { id: "p1".to_owned(), groups: Vec::new(), revision: None };
        let about_nodes = [
            Change::SetMembers { pool: pool(), members: Vec::new() },
            Change::CreateMember { pool: pool(), body: json!({}) },
            Change::DeleteMember { pool: "p1".to_owned(), id: "m1".to_owned() },
            Change::JoinSecurityGroup { port, group: group() },
        ];
        for change in about_nodes {
            assert!(planned(change.clone()).unwrap().steps.iter().all(is_about_nodes), "{change:?}");
        }
        let other = planned(Change::DeletePool { id: "p1".to_owned() }).unwrap();
        assert!(!other.steps.iter().any(is_about_nodes));
    }

    #[tokio::test(start_paused = true)]
    async fn a_plan_that_nobody_carries_out_does_not_lengthen_the_next_pass() {
        for (applies, lasted) in [(false, 0.0), (true, 60.0)] {
            let (passes, metrics) = (Passes::default(), Metrics::new());
            let web = wish("default/web", &[]);
            passes.begin(std::slice::from_ref(&web));
            passes.planned(&metrics, &web.key, &planned(Change::DeletePool { id: "p1".to_owned() }));
            if applies {
                passes.applies(&web.key);
            }
            tokio::time::advance(std::time::Duration::from_secs(60)).await;
            passes.begin(std::slice::from_ref(&web));
            passes.planned(&metrics, &web.key, &Ok(Plan::default()));
            let registry = Registry::new();
            metrics.register(&registry);
            let families = registry.gather();
            let name = "cloudprovider_openstack_reconcile_duration_seconds";
            let family = families.iter().find(|family| family.name() == name).unwrap();
            assert_eq!(family.get_metric()[0].get_histogram().get_sample_sum(), lasted);
        }
    }

    #[test]
    fn a_service_that_goes_before_its_balancer_is_made_is_counted_as_deleted() {
        let (passes, metrics) = (Passes::default(), Metrics::new());
        let (made, gone) = (wish("default/web", &[]), cleanup_wish("default/web"));
        passes.begin(std::slice::from_ref(&made));
        passes.planned(&metrics, &made.key, &Err(error(ErrorKind::InProgress)));
        passes.begin(&[LoadBalancerWish { key: made.key.clone(), ..gone }]);
        passes.planned(&metrics, &made.key, &Ok(Plan::default()));
        let counted = counted(&metrics, "cloudprovider_openstack_reconcile_total");
        assert_eq!(counted, [("loadbalancer_delete".to_owned(), 1.0)]);
    }

    #[test]
    fn a_pass_is_counted_once_when_nothing_is_left_to_do_or_it_fails() {
        let (passes, metrics) = (Passes::default(), Metrics::new());
        let (web, gone) = (wish("default/web", &[]), cleanup_wish("default/gone"));
        let members = || Change::SetMembers { pool: PoolRef::Id("p1".to_owned()), members: Vec::new() };
        for change in [members(), Change::DeletePool { id: "p1".to_owned() }] {
            passes.begin(std::slice::from_ref(&web));
            passes.planned(&metrics, &web.key, &planned(change));
            passes.applies(&web.key);
            passes.failed(&metrics, &web.key, ErrorKind::InProgress);
            passes.begin(std::slice::from_ref(&web));
            passes.planned(&metrics, &web.key, &Ok(Plan::default()));
        }
        passes.begin(std::slice::from_ref(&gone));
        passes.planned(&metrics, &gone.key, &Err(error(ErrorKind::InProgress)));
        passes.planned(&metrics, &gone.key, &Err(error(ErrorKind::Unavailable)));
        let all = [("loadbalancer_delete", 1.0), ("loadbalancer_ensure", 1.0), ("loadbalancer_update", 1.0)];
        let all = all.map(|(operation, count)| (operation.to_owned(), count));
        assert_eq!(counted(&metrics, "cloudprovider_openstack_reconcile_total"), all);
        let failed = counted(&metrics, "cloudprovider_openstack_reconcile_errors_total");
        assert_eq!(failed, [("loadbalancer_delete".to_owned(), 1.0)]);
    }
}
