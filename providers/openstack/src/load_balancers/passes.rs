//! How long it takes to bring a balancer to what is wished, for the metrics: from the first look until nothing is left to do or
//! something goes wrong. What the cloud is at work on is waited for within a pass.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use bowline_cloud::{ErrorKind, Result};
use bowline_core::{LoadBalancerKey, LoadBalancerWish, Plan, Step};
use tokio::time::Instant;

use super::change::{Change, Payload};
use crate::metrics::{Metrics, Operation};

/// The passes that are under way.
#[derive(Debug, Default)]
pub(crate) struct Passes(Mutex<HashMap<LoadBalancerKey, Pass>>);

#[derive(Debug)]
struct Pass {
    since: Instant,
    operation: Operation,
}

impl Passes {
    /// These are looked at: where nothing is under way, something is now. One that was to be made and is to go now was given up.
    pub(super) fn begin(&self, wishes: &[LoadBalancerWish]) {
        let mut passes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for wish in wishes {
            let operation = if wish.spec.is_some() { Operation::Ensure } else { Operation::Delete };
            let goes = |operation| operation == Operation::Delete;
            if passes.get(&wish.key).is_none_or(|pass| goes(pass.operation) != goes(operation)) {
                passes.insert(wish.key.clone(), Pass { since: Instant::now(), operation });
            }
        }
    }

    /// This came of planning.
    pub(super) fn planned(&self, metrics: &Metrics, key: &LoadBalancerKey, outcome: &Result<Plan>) {
        match outcome {
            Ok(plan) if plan.is_empty() => self.end(metrics, key, false),
            Ok(plan) if plan.steps.iter().all(is_about_nodes) => self.is_update(key),
            Ok(_) => {}
            Err(error) => self.failed(metrics, key, error.kind()),
        }
    }

    /// It did not work, unless it is only not done yet.
    pub(super) fn failed(&self, metrics: &Metrics, key: &LoadBalancerKey, kind: ErrorKind) {
        if kind != ErrorKind::InProgress {
            self.end(metrics, key, true);
        }
    }

    /// A step did not work. If it is dispensable, and was refused, the pass goes on without it.
    pub(super) fn step_failed(&self, metrics: &Metrics, key: &LoadBalancerKey, step: &Step, kind: ErrorKind) {
        if step.dispensable.is_none() || !kind.is_refusal() {
            self.failed(metrics, key, kind);
        }
    }

    fn is_update(&self, key: &LoadBalancerKey) {
        let mut passes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pass) = passes.get_mut(key).filter(|pass| pass.operation == Operation::Ensure) {
            pass.operation = Operation::Update;
        }
    }

    fn end(&self, metrics: &Metrics, key: &LoadBalancerKey, failed: bool) {
        let pass = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        if let Some(Pass { since, operation }) = pass {
            metrics.reconciled(operation, since.elapsed(), failed);
        }
    }
}

/// The step is there because nodes have come or gone.
fn is_about_nodes(step: &Step) -> bool {
    let payload = serde_json::from_value::<Payload>(step.payload.clone());
    payload.is_ok_and(|payload| {
        let members = matches!(
            payload.change,
            Change::SetMembers { .. } | Change::CreateMember { .. } | Change::DeleteMember { .. }
        );
        members || matches!(payload.change, Change::JoinSecurityGroup { .. })
    })
}

#[cfg(test)]
mod tests {
    use bowline_cloud::Error;
    use bowline_core::Verb;
    use bowline_core::testing::{cleanup_wish, wish};
    use prometheus::Registry;
    use serde_json::json;

    use super::*;
    use crate::load_balancers::change::PoolRef;

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
            passes.step_failed(&metrics, &web.key, step, ErrorKind::InvalidConfig);
            assert_eq!(counted(&metrics, "cloudprovider_openstack_reconcile_errors_total"), failures);
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
