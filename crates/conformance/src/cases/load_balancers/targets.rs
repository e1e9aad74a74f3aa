//! Rules about targets.

use bowline_cloud::Retry;
use bowline_core::{DesiredLoadBalancer, TargetNode};

use crate::context::{CaseContext, CaseResult, fail, require};
use crate::load_balancer_fixture::{LoadBalancerFixture, with_spec};

fn with_targets(desired: &DesiredLoadBalancer, targets: &[&TargetNode]) -> DesiredLoadBalancer {
    with_spec(desired, |spec| spec.targets = targets.iter().map(|target| (*target).clone()).collect())
}

fn draining(target: &TargetNode) -> TargetNode {
    TargetNode { draining: true, ..target.clone() }
}

pub(in crate::cases) async fn targets_follow_the_nodes(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let (a, b, c) = (fixture.node("a").await, fixture.node("b").await, fixture.node("c").await);
    let desired = fixture.full_featured("web", &[])?;
    let steps: [&[&TargetNode]; 6] = [&[&a], &[&a, &b, &c], &[&a, &c], &[&b], &[], &[&c, &a]];
    for targets in steps {
        let desired = with_targets(&desired, targets);
        if targets.is_empty() && fixture.kind()?.needs_targets {
            verify_waits(&fixture, &desired).await?;
            continue;
        }
        fixture.sync_and_verify(&desired).await?;
        fixture.verify_no_changes(&desired).await?;
    }
    Ok(())
}

/// Verifies that nothing changes without a target, and that the error is not permanent.
async fn verify_waits(fixture: &LoadBalancerFixture<'_>, desired: &DesiredLoadBalancer) -> CaseResult {
    let before = fixture.resources().await;
    match fixture.try_sync(desired).await? {
        Ok(_) => return fail("a sync without targets succeeded, although the provider needs a target"),
        Err(error) => require(error.retry_advice() != Retry::Never, || {
            format!("a Node may come, but the error is final: {error}")
        })?,
    }
    fixture.verify_unchanged(&before).await
}

pub(in crate::cases) async fn target_change_is_small(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let mut nodes = Vec::new();
    for number in 0..fixture.kind()?.max_targets.unwrap_or(6).min(6) {
        nodes.push(fixture.node(&format!("node-{number}")).await);
    }
    let desired = fixture.full_featured("web", nodes.get(1..).unwrap_or_default())?;
    fixture.sync_and_verify(&desired).await?;
    let ports = desired.spec.as_ref().map_or(0, |spec| spec.ports.len() as u64);
    let (joined, left) = (with_spec(&desired, |spec| spec.targets = nodes.to_vec().into()), &desired);
    for (wanted, what) in [(&joined, "joined"), (left, "left")] {
        let before = fixture.writes().await?;
        fixture.sync_and_verify(wanted).await?;
        // A cloud with a member list for each port writes each list, and one with a firewall in front of machines opens it for this
        // machine. More writes mean that everything is rewritten.
        let writes = fixture.writes().await? - before;
        require(writes <= ports + 1, || format!("one Node {what}: {writes} write calls for {ports} ports"))?;
    }
    Ok(())
}

pub(in crate::cases) async fn a_leaving_node_is_drained(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let (a, b) = (fixture.node("a").await, fixture.node("b").await);
    let desired = fixture.desired("web", &[a.clone(), b.clone()])?;
    fixture.sync_and_verify(&desired).await?;
    let with_draining = with_targets(&desired, &[&draining(&a), &b]);
    fixture.sync_and_verify(&with_draining).await?;
    fixture.verify_no_changes(&with_draining).await?;
    // The Node comes back, and then leaves for good.
    fixture.sync_and_verify(&desired).await?;
    fixture.sync_and_verify(&with_draining).await?;
    fixture.sync_and_verify(&with_targets(&desired, &[&b])).await.map(drop)
}

pub(in crate::cases) async fn a_leaving_node_is_not_added(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let (a, b, c) = (fixture.node("a").await, fixture.node("b").await, fixture.node("c").await);
    let desired = fixture.desired("web", &[b.clone(), draining(&a)])?;
    verify_only_target(&fixture, &desired, &b).await?;
    let later = with_targets(&desired, &[&draining(&c), &b, &draining(&a)]);
    verify_only_target(&fixture, &later, &b).await?;
    fixture.delete_and_verify(&desired).await
}

/// Syncs, and verifies that this is the only target and that the next plan is empty.
async fn verify_only_target(
    fixture: &LoadBalancerFixture<'_>,
    desired: &DesiredLoadBalancer,
    target: &TargetNode,
) -> CaseResult {
    fixture.sync(desired).await?;
    fixture.controls().settle().await;
    let machines: Vec<_> =
        fixture.load_balancer(&desired.key).await?.targets.into_iter().map(|target| target.machine).collect();
    require(machines == [fixture.machine(&target.node)], || format!("unexpected targets: {machines:?}"))?;
    fixture.verify_no_changes(desired).await
}

pub(in crate::cases) async fn without_draining_a_leaving_node_is_removed(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let (a, b) = (fixture.node("a").await, fixture.node("b").await);
    let desired = fixture.desired("web", &[a.clone(), b.clone()])?;
    fixture.sync_and_verify(&desired).await?;
    verify_only_target(&fixture, &with_targets(&desired, &[&draining(&a), &b]), &b).await
}
