//! Plans and runs of a provider's background loops.

#[cfg(test)]
mod tests;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bowline_core::{Plan, Step};
use futures::FutureExt as _;

use crate::layers::Layered;
use crate::layers::operation::Operation;
use crate::{ClusterSnapshot, Error, ErrorKind, LoopOutcome, LoopPlan, ProviderLoop, Result};

impl Layered {
    /// Returns the background loops of the provider.
    pub fn loops(&self) -> Vec<Arc<dyn ProviderLoop>> {
        self.provider.loops()
    }

    /// Plans the loop of this name. Fails until the cloud has started; a panic of the loop is returned as an error.
    pub async fn plan_loop(&self, name: &str, cluster: &ClusterSnapshot) -> Result<LoopPlan> {
        self.plan_with(&*self.find_loop(name)?, cluster).await
    }

    /// Runs the loop of this name once: plans it and applies the steps in order. In a dry run, no step is applied. Fails as
    /// [`plan_loop`](Layered::plan_loop) does, with the first step that fails, and after all steps with the first error of the plan.
    pub async fn run_loop(&self, name: &str, cluster: &ClusterSnapshot) -> Result<LoopOutcome> {
        // A reload during the run has no effect on it: the same loop plans and applies.
        let found = self.find_loop(name)?;
        let LoopPlan { plan, summary, annotations, labels } = self.plan_with(&*found, cluster).await?;
        self.log_warnings(name, &plan);
        let mut applied = 0;
        for step in &plan.steps {
            match self.apply_with(&*found, step).await {
                Err(error) if error.allows_skipping(step) => {
                    let (cloud, step) = (self.metrics.provider(), &step.name);
                    tracing::warn!(cloud, name, step, %error, "the loop continues without a step that the cloud rejects");
                }
                result => result.map(|()| applied += 1)?,
            }
        }
        match plan.errors.into_iter().next() {
            Some(error) => Err(error.into()),
            None => Ok(LoopOutcome { summary: self.summarized(summary, applied), annotations, labels }),
        }
    }

    /// The provider may have been rebuilt since the last run, so its loops are looked up each time.
    fn find_loop(&self, name: &str) -> Result<Arc<dyn ProviderLoop>> {
        let gone = || {
            let message = format!("the provider no longer has a loop {name}");
            Error::new(ErrorKind::Unsupported, Operation::PlanLoop.to_string(), message)
        };
        self.loops().into_iter().find(|found| found.name() == name).ok_or_else(gone)
    }

    async fn plan_with(&self, found: &dyn ProviderLoop, cluster: &ClusterSnapshot) -> Result<LoopPlan> {
        const OPERATION: Operation = Operation::PlanLoop;
        let planned = self.limits.run(OPERATION, catch_panic(OPERATION, found.plan(cluster)));
        let mut planned = self.run(OPERATION, planned).await?;
        // Keys that come from the cloud could change where Pods run.
        planned.labels.values_mut().for_each(|labels| labels.retain(|key, _| found.labels().contains(&key.as_str())));
        Ok(planned)
    }

    async fn apply_with(&self, found: &dyn ProviderLoop, step: &Step) -> Result<()> {
        const OPERATION: Operation = Operation::ApplyLoop;
        if self.skips(OPERATION, step) {
            return Ok(());
        }
        self.run(OPERATION, self.limits.run(OPERATION, catch_panic(OPERATION, found.apply(step)))).await
    }

    fn log_warnings(&self, name: &str, plan: &Plan) {
        for warning in &plan.warnings {
            let (reason, message) = (&warning.reason, &warning.message);
            tracing::warn!(cloud = self.metrics.provider(), name, reason, "warning of a loop: {message}");
        }
    }

    fn summarized(&self, summary: String, steps: usize) -> String {
        let plural = if steps == 1 { "" } else { "s" };
        let done = match (steps, self.is_dry_run()) {
            (0, _) => "nothing to do".to_owned(),
            (_, true) => format!("dry run: {steps} step{plural} not applied"),
            (_, false) => format!("{steps} step{plural} applied"),
        };
        if summary.is_empty() { done } else { format!("{summary}; {done}") }
    }
}

async fn catch_panic<T>(operation: Operation, work: impl Future<Output = Result<T>>) -> Result<T> {
    let panicked = || Error::new(ErrorKind::Unexpected, operation.to_string(), "the loop panicked; see the log");
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| Err(panicked()))
}
