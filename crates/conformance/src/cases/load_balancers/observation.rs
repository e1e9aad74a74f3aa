//! Rules about `observe` and `list`.

use bowline_core::{DesiredLoadBalancer, LoadBalancerKey, LoadBalancerState};

use crate::context::{CaseContext, CaseFailure, CaseResult, fail, require};
use crate::load_balancer_fixture::{LoadBalancerFixture, by_key, key, without_spec};

/// Maximum number of load balancers of a case; more would only take time.
const MAX_LOAD_BALANCERS: usize = 20;

pub(in crate::cases) async fn one_state_each(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let nodes = [fixture.node("node-1").await];
    let (a, b, never) =
        (fixture.desired("a", &nodes)?, fixture.desired("b", &nodes)?, fixture.desired("never", &nodes)?);
    let (a_state, b_state) = (fixture.sync_and_verify(&a).await?, fixture.sync_and_verify(&b).await?);
    // With a duplicate, in an order that no cloud would return, and not a palindrome.
    let requested = [b.clone(), without_spec(&a), without_spec(&never), b, a, never];
    let (size, mut states) = (fixture.capabilities()?.batch_observe.max(1), Vec::new());
    for batch in requested.chunks(size) {
        let answers = fixture.provider()?.observe(batch).await;
        require(answers.len() == batch.len(), || {
            format!("{} states for {} desired load balancers", answers.len(), batch.len())
        })?;
        for answer in answers {
            states.push(answer.or_else(|error| fail(format!("a healthy cloud returned an error: {error}")))?);
        }
    }
    let unmade = states.pop().flatten();
    let wanted = [Some(&b_state), Some(&a_state), None, Some(&b_state), Some(&a_state)];
    // The status of a load balancer that is to be deleted is not used.
    let status = |state: &Option<LoadBalancerState>, desired: &DesiredLoadBalancer| {
        state.as_ref().map(|state| desired.spec.is_some().then(|| state.status.clone()))
    };
    let statuses: Vec<_> = states.iter().zip(&requested).map(|(state, desired)| status(state, desired)).collect();
    let wanted: Vec<_> =
        wanted.iter().zip(&requested).map(|(state, desired)| status(&state.cloned(), desired)).collect();
    require(statuses == wanted, || format!("observed b, a, none, b, a: expected {wanted:?}, got {statuses:?}"))?;
    // A state may have input for the plan before anything is created, but no status and no annotations.
    let is_bare = unmade.as_ref().is_none_or(|state| state.status.ingress.is_empty() && state.annotations.is_empty());
    require(is_bare, || format!("a load balancer that was never created has the state {unmade:?}"))?;
    require(fixture.provider()?.observe(&[]).await.is_empty(), || {
        "`observe` returned states for an empty list".to_owned()
    })
}

pub(in crate::cases) async fn observing_many_saves_calls(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let nodes = [fixture.node("node-1").await];
    let size = fixture.capabilities()?.batch_observe.min(MAX_LOAD_BALANCERS);
    let mut wanted: Vec<DesiredLoadBalancer> = Vec::new();
    for number in 0..size {
        wanted.push(fixture.desired(&format!("web-{number}"), &nodes)?);
    }
    for desired in &wanted {
        fixture.sync(desired).await?;
    }
    let one = calls(&fixture, wanted.get(..1).unwrap_or_default()).await?;
    let all = calls(&fixture, &wanted).await?;
    let bound = one * size as u64;
    require(all < bound, || format!("observing {size} at once takes {all} calls, and one by one {bound}"))
}

async fn calls(fixture: &LoadBalancerFixture<'_>, wanted: &[DesiredLoadBalancer]) -> CaseResult<u64> {
    let before = fixture.calls().await?;
    for (desired, answer) in wanted.iter().zip(fixture.provider()?.observe(wanted).await) {
        let found = answer.is_ok_and(|state| state.is_some_and(|state| !state.status.ingress.is_empty()));
        require(found, || format!("the load balancer of {} was not observed", desired.key.service))?;
    }
    Ok(fixture.calls().await? - before)
}

pub(in crate::cases) async fn list_returns_every_owner(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let nodes = [fixture.node("node-1").await];
    verify_listed(&fixture, &[]).await?;
    let mut owners = Vec::new();
    for name in ["a", "b", "c"] {
        let desired = fixture.full_featured(name, &nodes)?;
        fixture.sync_and_verify(&desired).await?;
        owners.push(desired);
    }
    verify_listed(&fixture, &owners).await?;
    // A half-built load balancer is listed, a deleted one is not.
    let half = fixture.full_featured("half", &nodes)?;
    let plan = fixture.plan(&half).await?;
    let Some(step) = plan.steps.first() else { return fail("the plan for a new Service is empty") };
    if let Err(error) = fixture.apply(&half, step).await? {
        return fail(format!("a healthy cloud returned an error: {error}"));
    }
    fixture.delete_and_verify(&fixture.desired("b", &nodes)?).await?;
    owners.retain(|desired| desired.key != key("b"));
    owners.extend((!fixture.owned_by(&half.key).await.is_empty()).then_some(half));
    verify_listed(&fixture, &owners).await
}

pub(in crate::cases) async fn list_reads_every_page(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    // Without pages, three load balancers are enough.
    let page = fixture.controls().list_page().unwrap_or(1);
    if page > MAX_LOAD_BALANCERS {
        return Err(CaseFailure::BenchCannot(format!("list load balancers in pages of at most {MAX_LOAD_BALANCERS}")));
    }
    let (nodes, mut owners) = ([fixture.node("node-1").await], Vec::new());
    for number in 0..2 * page + 1 {
        let desired = fixture.desired(&format!("web-{number}"), &nodes)?;
        fixture.sync(&desired).await?;
        owners.push(desired);
    }
    verify_listed(&fixture, &owners).await
}

pub(in crate::cases) async fn listed_key_is_enough_to_delete(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let nodes = [fixture.node("node-1").await];
    let before = fixture.resources().await;
    let desired = fixture.full_featured("web", &nodes)?;
    fixture.sync_and_verify(&desired).await?;
    for listed in list(&fixture).await? {
        fixture.delete_and_verify(&by_key(&listed)).await?;
    }
    fixture.verify_unchanged(&before).await
}

async fn list(fixture: &LoadBalancerFixture<'_>) -> CaseResult<Vec<LoadBalancerKey>> {
    let listed = fixture.provider()?.list(&key("").cluster).await;
    listed.or_else(|error| fail(format!("a healthy cloud returned an error: {error}")))
}

/// Verifies that one key is listed for each of these Services, in any order, and that no other Service is its owner.
async fn verify_listed(fixture: &LoadBalancerFixture<'_>, owners: &[DesiredLoadBalancer]) -> CaseResult {
    let (provider, listed) = (fixture.provider()?, list(fixture).await?);
    let owners: Vec<_> = owners.iter().map(without_spec).collect();
    let count = |owner| listed.iter().filter(|key| provider.is_owner(key, owner)).count();
    let same = listed.len() == owners.len() && owners.iter().all(|owner| count(owner) == 1);
    require(same, || {
        let expected: Vec<_> = owners.iter().map(|owner| &owner.key).collect();
        format!("expected the keys {expected:?}, got {listed:?}")
    })
}
