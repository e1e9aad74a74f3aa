//! What is done about a balancer in its cloud.
//!
//! ```text
//!  left by an earlier pass ─────────┐
//!  observe ──► plan ──► steps ──────┴─► a place to write ──► locks ──► apply, one by one ──► observe, plan ──► nothing to do: done
//!                                                              │ all applied, and the plan has problems: the sync fails
//!                                                              │ refused, and dispensable: told, and left out
//!                                                              │ InProgress: what is left is kept, and the pass ends
//!                                                              └ Started: polled before the next step, likewise
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use bowline_cloud::{Applied, Cloud, Error, ErrorKind, Moment};
use bowline_core::{DesiredLoadBalancer, LoadBalancerState, Opaque, Step};
use bowline_runtime::Priority;
use tokio::time::Instant;

use super::job::{Job, Sight};
use super::pass::Pass;

/// A plan is made and carried out so many times in one pass; a cloud that is still not as wished then never will be.
const ROUNDS: usize = 5;

/// What was seen of the cloud this long ago is looked at again before anything is written: the turn came late.
const STALE: Duration = Duration::from_secs(5);

/// Characters of a step that are logged at most.
const LONGEST_LINE: usize = 1_000;

/// What became of a plan.
#[derive(Default)]
pub(super) struct Outcome {
    /// What the cloud has now.
    pub(super) state: Option<LoadBalancerState>,
    /// Anything was written.
    pub(super) changed: bool,
    /// There is something to be done that a dry run does not do.
    pub(super) withheld: bool,
    /// Another Service has a lock that the plan needs; the Service is queued when it is released.
    pub(super) waiting: bool,
}

impl Pass<'_> {
    /// Makes the cloud what is wished; `again` says what is wished by now, if the turn to write comes late.
    pub(super) async fn bring_about(
        &self,
        cloud: &Cloud,
        desired: DesiredLoadBalancer,
        again: impl Fn() -> Option<DesiredLoadBalancer>,
        job: &mut Job,
    ) -> Result<Outcome, Error> {
        let sight = match job.rest(&desired) {
            Some(sight) => sight,
            None => self.look(cloud, desired, job).await?,
        };
        self.fulfil(cloud, sight, again, job).await
    }

    /// Observes and plans.
    pub(super) async fn look(
        &self,
        cloud: &Cloud,
        desired: DesiredLoadBalancer,
        job: &mut Job,
    ) -> Result<Sight, Error> {
        let asked = (Instant::now(), cloud.layers().locks().now());
        let observed = self.shutdown.or(cloud.layers().observe_load_balancer(&desired)).await;
        let state = observed.ok_or_else(stopping)??;
        self.shared.queue.made_progress();
        plan(cloud, desired, state, asked, job)
    }

    /// A plan has failed in the middle. What is there by now leads to what was made, and is noted all the same.
    pub(super) async fn look_for_notes(&self, cloud: &Cloud, desired: &DesiredLoadBalancer, job: &mut Job) {
        let observed = self.shutdown.or(cloud.layers().observe_load_balancer(desired)).await;
        if let Some(Ok(Some(state))) = observed {
            job.note(desired, &state.annotations);
        }
    }

    /// Does what is to be done about what was seen, once there is a place among those who write; not in a dry run. `again`
    /// says what is wished by now, if the place comes late.
    pub(super) async fn fulfil(
        &self,
        cloud: &Cloud,
        mut sight: Sight,
        again: impl Fn() -> Option<DesiredLoadBalancer>,
        job: &mut Job,
    ) -> Result<Outcome, Error> {
        if sight.is_done() || cloud.layers().is_dry_run() {
            let withheld = !sight.plan.is_empty();
            return Ok(Outcome { state: sight.state, changed: job.changed, withheld, waiting: false });
        }
        let somebody_waits = self.shared.memory.is_news(self.key);
        let priority = if somebody_waits { Priority::High } else { Priority::Low };
        let _slot = self.shutdown.or(self.shared.slots.take(priority)).await.ok_or_else(stopping)?;
        if sight.at.elapsed() > STALE {
            let desired = again().unwrap_or(sight.desired);
            sight = self.look(cloud, desired, job).await?;
        }
        self.carry_out(cloud, sight, job).await
    }

    /// Carries the plan out, and a further one for what has come up meanwhile, until nothing is left to do.
    async fn carry_out(&self, cloud: &Cloud, mut sight: Sight, job: &mut Job) -> Result<Outcome, Error> {
        for _ in 0..ROUNDS {
            if sight.is_done() {
                return Ok(Outcome { state: sight.state, changed: job.changed, ..Outcome::default() });
            }
            let Some(locked) = self.lock(cloud, sight, job).await? else {
                return Ok(Outcome { changed: job.changed, waiting: true, ..Outcome::default() });
            };
            sight = locked;
            let applied = self.apply(cloud, &mut sight, job).await?;
            if let Some(problem) = sight.plan.errors.into_iter().next() {
                return Err(problem.into());
            }
            sight = match applied {
                Applied::Observed(state) => {
                    let asked = (Instant::now(), cloud.layers().locks().now());
                    plan(cloud, sight.desired, state, asked, job)?
                }
                Applied::Done | Applied::Noted(_) | Applied::Started(_) => {
                    self.look(cloud, job.noted(sight.desired), job).await?
                }
            };
        }
        let left = format!("after {ROUNDS} rounds there is still something to do:\n{}", sight.plan);
        Err(Error::new(ErrorKind::Unexpected, "apply load balancer", left))
    }

    /// Takes the locks of the plan, and observes again if another Service has had one of them since the observation. `None` if
    /// another Service has one now.
    async fn lock(&self, cloud: &Cloud, mut sight: Sight, job: &mut Job) -> Result<Option<Sight>, Error> {
        while job.lock(&sight.plan, self.key, &self.shared.queue) {
            if !job.is_outdated(&sight) {
                return Ok(Some(sight));
            }
            sight = self.look(cloud, job.noted(sight.desired), job).await?;
        }
        Ok(None)
    }

    /// Applies all steps; returns what the last one returned.
    async fn apply(&self, cloud: &Cloud, sight: &mut Sight, job: &mut Job) -> Result<Applied, Error> {
        let mut last = Applied::Done;
        let mut steps = VecDeque::from(std::mem::take(&mut sight.plan.steps));
        while let Some(step) = steps.pop_front() {
            // A step is at most one call, so between two of them is a good place to stop.
            if self.shutdown.is_requested() {
                return Err(stopping());
            }
            let polled = match step.independent {
                true => None,
                false => match poll(cloud, sight).await {
                    Ok(polled) => polled,
                    Err(error) => {
                        steps.push_front(step);
                        return Err(leave(sight, steps, error, job));
                    }
                },
            };
            tell(cloud, &step, std::mem::take(&mut sight.is_rest));
            match cloud.layers().apply_load_balancer(&sight.desired.key, &step, polled.as_ref()).await {
                Ok(applied) => last = applied_one(sight, applied, job),
                Err(error) if error.leaves_out(&step) => job.refuse(step, &error),
                Err(error) if job.observes_after(&step, &error) => {
                    tracing::debug!(cloud = %cloud.name(), %error, "looking for what may have been created");
                    sight.plan.errors.clear();
                    return Ok(Applied::Done);
                }
                Err(error) => {
                    steps.push_front(step);
                    return Err(leave(sight, steps, error, job));
                }
            }
            self.shared.queue.made_progress();
        }
        sight.pending.retain(|operation| !operation.observable);
        if !sight.pending.is_empty() {
            poll(cloud, sight).await.map_err(|error| leave(sight, steps, error, job))?;
        }
        Ok(last)
    }
}

/// Succeeds if no operation of an earlier step is under way any more, with what the last poll returned.
async fn poll(cloud: &Cloud, sight: &mut Sight) -> Result<Option<Opaque>, Error> {
    let mut polled = None;
    while let Some(operation) = sight.pending.first() {
        polled = Some(cloud.layers().poll_load_balancer(&sight.desired.key, operation).await?);
        sight.pending.remove(0);
    }
    Ok(polled)
}

/// Records what came of a step.
fn applied_one(sight: &mut Sight, applied: Applied, job: &mut Job) -> Applied {
    job.changed = true;
    match &applied {
        Applied::Noted(annotations) => job.note(&sight.desired, annotations),
        Applied::Started(operation) => {
            // A later operation on the same thing ends after the earlier one.
            sight.pending.retain(|earlier| earlier.id != operation.id);
            sight.pending.push(operation.clone());
        }
        Applied::Done | Applied::Observed(_) => {}
    }
    applied
}

/// These steps are left; a later pass goes on with them if the cloud is only at work. If it may have created something without an
/// answer, only an observation shows what is left.
fn leave(sight: &Sight, steps: VecDeque<Step>, error: Error, job: &mut Job) -> Error {
    if error.kind() == ErrorKind::InProgress && !error.is_outcome_unknown() {
        job.leave(sight, steps.into());
    }
    error
}

/// What is to be done about what the cloud had when it was asked, which may be a while before it answered.
fn plan(
    cloud: &Cloud,
    desired: DesiredLoadBalancer,
    state: Option<LoadBalancerState>,
    (at, observed): (Instant, Moment),
    job: &mut Job,
) -> Result<Sight, Error> {
    if let Some(state) = &state {
        job.note(&desired, &state.annotations);
    }
    let plan = job.take_in(cloud.layers().plan_load_balancer(&desired, state.as_ref())?);
    Ok(Sight { desired, state, plan, pending: Vec::new(), at, observed, planned: at, is_rest: false })
}

/// A step that the cloud was too busy for before is told once.
fn tell(cloud: &Cloud, step: &Step, again: bool) {
    let cloud = cloud.name();
    if again {
        tracing::debug!(%cloud, step = in_one_line(step), "trying again to change the load balancer");
    } else {
        let (head, fields) = (format!("{} {} {}", step.verb, step.kind, step.name), step.changes.len());
        tracing::info!(%cloud, step = head, fields, "changing the load balancer");
        tracing::debug!(%cloud, step = in_one_line(step), "all changes of the load balancer");
    }
}

/// For the log, whose readers look for lines.
fn in_one_line(step: &Step) -> String {
    let text = step.to_string();
    let mut lines = text.lines().map(str::trim);
    let head = lines.next().unwrap_or_default().to_owned();
    let changes: Vec<&str> = lines.collect();
    let line = if changes.is_empty() { head } else { format!("{head}: {}", changes.join("; ")) };
    match line.char_indices().nth(LONGEST_LINE) {
        Some((end, _)) => format!("{}… (cut)", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

fn stopping() -> Error {
    Error::new(ErrorKind::Cancelled, "sync load balancer", "the manager is stopping")
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_core::{FieldChange, Opaque, Verb};

    #[test]
    fn a_step_is_one_line_in_the_log() {
        let change = |field: &str, to: &str| FieldChange { field: field.into(), from: None, to: Some(to.into()) };
        let step = |changes| Step::new(Verb::Create, "balancer", "b1", changes, Opaque::default());
        assert_eq!(in_one_line(&step(vec![])), "create balancer b1");
        let changes = vec![change("owner", "default/web"), change("target a", "10.0.0.1")];
        assert_eq!(in_one_line(&step(changes)), "create balancer b1: owner: default/web; target a: 10.0.0.1");
        let many = (0..5_000).map(|number| change(&format!("target n{number}"), "10.0.0.1")).collect();
        let line = in_one_line(&step(many));
        assert!(line.ends_with("… (cut)") && line.chars().count() < LONGEST_LINE + 10, "{line}");
    }
}
