//! Flaws in background loops.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bowline_cloud::{ClusterSnapshot, ErrorKind, LoopPlan, LoopTriggers, ProviderLoop, Result};
use bowline_core::{NodeName, Opaque, Step, Verb};

use crate::flaws::broken::Break::{ApplyLoop, Declared, Error, PlanLoop};
use crate::flaws::broken::{Break, Broken, Flaw, call, flaws, hook, later};

/// A loop of the broken provider.
pub(crate) struct BrokenLoop {
    pub(crate) broken: Arc<Broken>,
    pub(crate) real: Arc<dyn ProviderLoop>,
}

#[async_trait]
impl ProviderLoop for BrokenLoop {
    fn name(&self) -> &str {
        self.real.name()
    }

    fn period(&self) -> Duration {
        self.real.period()
    }

    fn triggers(&self) -> LoopTriggers {
        self.real.triggers()
    }

    async fn plan(&self, cluster: &ClusterSnapshot) -> Result<LoopPlan> {
        let broken = &*self.broken;
        broken.error(call!(broken, PlanLoop(cluster), self.real.plan(cluster)))
    }

    async fn apply(&self, step: &Step) -> Result<()> {
        let broken = &*self.broken;
        broken.error(call!(broken, ApplyLoop(step), self.real.apply(step)))
    }
}

/// Tag of the machines of the suite's cluster.
const TAG: &str = "cluster:conformance";

fn is_anything_tagged(it: &Broken) -> bool {
    it.cloud.machines().iter().any(|machine| machine.spec.tags.contains(TAG))
}

fn is_removal(step: &Step) -> bool {
    step.clone().into_removal().is_some()
}

/// Step that has no payload of the real loop.
fn empty_step() -> Step {
    Step::new(Verb::Update, "nothing", "at all", Vec::new(), Opaque::default())
}

flaws! {
    "declares a loop twice", [loops_are_declared], Declared(|_, loops| loops.extend(loops.clone()));
    "declares no loops the second time", [loops_are_declared],
        Declared(|it, loops| {
            let mut memory = it.memory();
            memory.starts += 1;
            if memory.starts > 1 {
                loops.clear();
            }
        });
    "never removes a tag", [loops_follow_the_cluster loops_survive_every_crash],
        PlanLoop(later!(|it, cluster| {
            let mut planned = it.tags().plan(cluster).await?;
            planned.plan.steps.retain(|step| !is_removal(step));
            Ok(planned)
        }));
    "untags the machine of a paused Node", [paused_nodes_stay_as_they_are],
        PlanLoop(later!(|it, cluster| {
            it.tags().plan(&ClusterSnapshot { paused: Vec::new(), ..cluster.clone() }).await
        }));
    "tags the machine of a paused Node", [paused_nodes_stay_as_they_are],
        PlanLoop(later!(|it, cluster| {
            let nodes = cluster.nodes.iter().chain(&cluster.paused).cloned().collect();
            it.tags().plan(&ClusterSnapshot { nodes, paused: Vec::new(), ..cluster.clone() }).await
        }));
    "applies its steps while it plans", [loop_plans_write_nothing],
        PlanLoop(later!(|it, cluster| {
            let planned = it.tags().plan(cluster).await?;
            for step in &planned.plan.steps {
                it.tags().apply(step).await?;
            }
            Ok(planned)
        }));
    "plans a step that changes nothing", [applied_loop_plan_is_empty],
        PlanLoop(later!(|it, cluster| {
            let mut planned = it.tags().plan(cluster).await?;
            planned.plan.steps.push(empty_step());
            Ok(planned)
        })),
        ApplyLoop(later!(|it, step| { if *step == empty_step() { Ok(()) } else { it.tags().apply(step).await } }));
    "removes in every second run what the first has added", [loops_are_repeatable applied_loop_plan_is_empty],
        PlanLoop(later!(|it, cluster| {
            let nodes = if is_anything_tagged(it) { Vec::new() } else { cluster.nodes.clone() };
            it.tags().plan(&ClusterSnapshot { nodes, ..cluster.clone() }).await
        }));
    "returns other annotations each time", [loops_are_repeatable loop_plans_write_nothing],
        PlanLoop(later!(|it, cluster| {
            let mut planned = it.tags().plan(cluster).await?;
            it.memory().starts += 1;
            let values = [("example.com/run".to_owned(), Some(it.memory().starts.to_string()))];
            planned.annotations.insert(NodeName::from("a"), values.into());
            Ok(planned)
        }));
    "removes tags of other owners", [loops_write_nothing_foreign],
        ApplyLoop(later!(|it, step| {
            for machine in it.cloud.machines() {
                it.cloud.change(&machine.spec.id, |spec| spec.tags.retain(|tag| tag == TAG)).unwrap();
            }
            it.tags().apply(step).await
        }));
    "reports a failed plan as an empty one", [loop_errors_have_a_kind],
        PlanLoop(later!(|it, cluster| { it.tags().plan(cluster).await.or(Ok(LoopPlan::default())) }));
    "reports a failed step as a success", [loop_errors_have_a_kind],
        ApplyLoop(later!(|it, step| { it.tags().apply(step).await.or(Ok(())) }));
    "returns every error of a loop as unexpected", [loop_errors_have_a_kind],
        Error(|error| bowline_cloud::Error::new(ErrorKind::Unexpected, "flaw", error.to_string()));
    "removes only the tags that this process has added", [loops_survive_every_crash],
        PlanLoop(later!(|it, cluster| {
            let mut planned = it.tags().plan(cluster).await?;
            let mut memory = it.memory();
            let added = planned.plan.steps.iter().filter(|step| !is_removal(step)).map(|step| step.name.clone());
            memory.created.extend(added);
            planned.plan.steps.retain(|step| !is_removal(step) || memory.created.contains(&step.name));
            Ok(planned)
        }));
}
