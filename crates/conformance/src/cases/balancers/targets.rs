//! Rules about the machines behind a balancer.

use bowline_core::{DesiredLoadBalancer, TargetNode};

use crate::balancing::{Balancing, change};
use crate::scene::{CaseResult, Scene, require};

fn to(desired: &DesiredLoadBalancer, targets: &[&TargetNode]) -> DesiredLoadBalancer {
    change(desired, |spec| spec.targets = targets.iter().map(|target| (*target).clone()).collect())
}

fn leaving(target: &TargetNode) -> TargetNode {
    TargetNode { draining: true, ..target.clone() }
}

pub(in crate::cases) async fn targets_follow_the_nodes(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let (a, b, c) = (work.node("a").await, work.node("b").await, work.node("c").await);
    let desired = work.everything("web", &[])?;
    let steps: [&[&TargetNode]; 6] = [&[&a], &[&a, &b, &c], &[&a, &c], &[&b], &[], &[&c, &a]];
    for targets in steps {
        let desired = to(&desired, targets);
        work.fulfil(&desired).await?;
        work.rests(&desired).await?;
    }
    Ok(())
}

pub(in crate::cases) async fn target_change_is_small(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let mut nodes = Vec::new();
    for number in 0..work.caps()?.max_targets.unwrap_or(6).min(6) {
        nodes.push(work.node(&format!("node-{number}")).await);
    }
    let desired = work.everything("web", nodes.get(1..).unwrap_or_default())?;
    work.fulfil(&desired).await?;
    let ports = desired.spec.as_ref().map_or(0, |spec| spec.ports.len() as u64);
    let (joined, left) = (change(&desired, |spec| spec.targets = nodes.to_vec().into()), &desired);
    for (wanted, what) in [(&joined, "joined"), (left, "left")] {
        let before = work.writes().await?;
        work.fulfil(wanted).await?;
        // A cloud that has a list of machines for each port writes each, and one that has a firewall before machines lets the
        // balancer through to this one; more is a rewrite.
        let writes = work.writes().await? - before;
        require(writes <= ports + 1, || format!("one node {what}, and that took {writes} writes for {ports} ports"))?;
    }
    Ok(())
}

pub(in crate::cases) async fn a_leaving_node_is_drained(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let (a, b) = (work.node("a").await, work.node("b").await);
    let desired = work.desired("web", &[a.clone(), b.clone()])?;
    work.fulfil(&desired).await?;
    let draining = to(&desired, &[&leaving(&a), &b]);
    work.fulfil(&draining).await?;
    work.rests(&draining).await?;
    // It stays after all; then it leaves for good.
    work.fulfil(&desired).await?;
    work.fulfil(&draining).await?;
    work.fulfil(&to(&desired, &[&b])).await.map(drop)
}

pub(in crate::cases) async fn a_leaving_node_is_not_taken_in(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let (a, b, c) = (work.node("a").await, work.node("b").await, work.node("c").await);
    let desired = work.desired("web", &[b.clone(), leaving(&a)])?;
    only(&work, &desired, &b).await?;
    let later = to(&desired, &[&leaving(&c), &b, &leaving(&a)]);
    only(&work, &later, &b).await?;
    work.remove(&desired).await
}

/// Of what is wished, this is the only target that there is, and that is all there is to do.
async fn only(work: &Balancing<'_>, desired: &DesiredLoadBalancer, target: &TargetNode) -> CaseResult {
    work.converge(desired).await?;
    work.hands().settle().await;
    let machines: Vec<_> = work.seen(&desired.key).await?.targets.into_iter().map(|target| target.machine).collect();
    require(machines == [work.machine(&target.node)], || format!("a node that is leaving was taken in: {machines:?}"))?;
    work.rests(desired).await
}

pub(in crate::cases) async fn without_draining_a_leaving_node_goes(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let (a, b) = (work.node("a").await, work.node("b").await);
    let desired = work.desired("web", &[a.clone(), b.clone()])?;
    work.fulfil(&desired).await?;
    only(&work, &to(&desired, &[&leaving(&a), &b]), &b).await
}
