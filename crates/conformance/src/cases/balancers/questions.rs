//! Rules about asking what balancers there are.

use bowline_core::{DesiredLoadBalancer, LoadBalancerKey, LoadBalancerState};

use crate::balancing::{Balancing, gone, key};
use crate::scene::{CaseFailure, CaseResult, Scene, broken, require};

/// More for one case would only take time.
const MANY: usize = 20;

pub(in crate::cases) async fn one_state_each(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let nodes = [work.node("node-1").await];
    let (a, b, never) = (work.desired("a", &nodes)?, work.desired("b", &nodes)?, work.desired("never", &nodes)?);
    let (a_state, b_state) = (work.fulfil(&a).await?, work.fulfil(&b).await?);
    // Not the same when read backwards, in no order that a cloud would have, one of them twice.
    let asked = [b.clone(), gone(&a), gone(&never), b, a, never];
    let (size, mut states) = (work.group()?.batch_observe.max(1), Vec::new());
    for batch in asked.chunks(size) {
        let answers = work.provider()?.observe(batch).await;
        require(answers.len() == batch.len(), || format!("{} answers to {} wishes", answers.len(), batch.len()))?;
        for answer in answers {
            states.push(answer.or_else(|error| broken(format!("an error from a sound cloud: {error}")))?);
        }
    }
    let unmade = states.pop().flatten();
    let wanted = [Some(&b_state), Some(&a_state), None, Some(&b_state), Some(&a_state)];
    // What the status would say of a balancer that is to go, nobody asks.
    let told = |state: &Option<LoadBalancerState>, desired: &DesiredLoadBalancer| {
        state.as_ref().map(|state| desired.spec.is_some().then(|| state.status.clone()))
    };
    let statuses: Vec<_> = states.iter().zip(&asked).map(|(state, desired)| told(state, desired)).collect();
    let wanted: Vec<_> = wanted.iter().zip(&asked).map(|(state, desired)| told(&state.cloned(), desired)).collect();
    require(statuses == wanted, || format!("it was asked about b, a, none, b, a: {statuses:?}, not {wanted:?}"))?;
    // What a plan has to know may be told before anything is made; of a balancer there is nothing to tell.
    let is_bare = unmade.as_ref().is_none_or(|state| state.status.ingress.is_empty() && state.annotations.is_empty());
    require(is_bare, || format!("of a balancer that was never made it says {unmade:?}"))?;
    require(work.provider()?.observe(&[]).await.is_empty(), || "answers to no question".to_owned())
}

pub(in crate::cases) async fn observing_many_saves_calls(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let nodes = [work.node("node-1").await];
    let size = work.group()?.batch_observe.min(MANY);
    let mut wanted: Vec<DesiredLoadBalancer> = Vec::new();
    for number in 0..size {
        wanted.push(work.desired(&format!("web-{number}"), &nodes)?);
    }
    for desired in &wanted {
        work.converge(desired).await?;
    }
    let one = calls(&work, wanted.get(..1).unwrap_or_default()).await?;
    let all = calls(&work, &wanted).await?;
    let bound = one * size as u64;
    require(all < bound, || format!("{size} at once take {all} calls, and one by one {bound}"))
}

async fn calls(work: &Balancing<'_>, wanted: &[DesiredLoadBalancer]) -> CaseResult<u64> {
    let before = work.calls().await?;
    for (desired, answer) in wanted.iter().zip(work.provider()?.observe(wanted).await) {
        let found = answer.is_ok_and(|state| state.is_some_and(|state| !state.status.ingress.is_empty()));
        require(found, || format!("{} has a balancer, and it was not found", desired.key.service))?;
    }
    Ok(work.calls().await? - before)
}

pub(in crate::cases) async fn list_names_what_is_ours(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let nodes = [work.node("node-1").await];
    listed(&work, &[]).await?;
    let mut keys = Vec::new();
    for name in ["a", "b", "c"] {
        let desired = work.everything(name, &nodes)?;
        work.fulfil(&desired).await?;
        keys.push(desired.key);
    }
    listed(&work, &keys).await?;
    // Half-built counts, whole or not, and what is gone does not.
    let half = work.everything("half", &nodes)?;
    let plan = work.plan(&half).await?;
    let Some(step) = plan.steps.first() else { return broken("nothing is planned for a new Service") };
    if let Err(error) = work.apply(&half, step).await? {
        return broken(format!("an error from a sound cloud: {error}"));
    }
    work.remove(&work.desired("b", &nodes)?).await?;
    let mut expected = vec![key("a"), key("c")];
    expected.extend((!work.owned(&half.key).await.is_empty()).then(|| half.key.clone()));
    listed(&work, &expected).await
}

pub(in crate::cases) async fn list_reads_every_page(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    // Without pages, a few are as good as many.
    let page = work.hands().list_page().unwrap_or(1);
    if page > MANY {
        return Err(CaseFailure::BenchCannot(format!("list load balancers in pages of at most {MANY}")));
    }
    let (nodes, mut keys) = ([work.node("node-1").await], Vec::new());
    for number in 0..2 * page + 1 {
        let desired = work.desired(&format!("web-{number}"), &nodes)?;
        work.converge(&desired).await?;
        keys.push(desired.key);
    }
    listed(&work, &keys).await
}

/// These are listed, each once, in whatever order.
async fn listed(work: &Balancing<'_>, expected: &[LoadBalancerKey]) -> CaseResult {
    let cluster = key("").cluster;
    let found = work.provider()?.list(&cluster).await;
    let found = found.or_else(|error| broken(format!("an error from a sound cloud: {error}")))?;
    let same = found.len() == expected.len() && expected.iter().all(|key| found.iter().any(|mark| mark.marks(key)));
    require(same, || format!("{expected:?} have balancers, and these are listed: {found:?}"))
}
