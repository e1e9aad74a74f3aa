//! Rules about background loops. They do not apply to a provider without loops.

use std::collections::BTreeMap;
use std::sync::Arc;

use bowline_cloud::{CloudProvider, ClusterSnapshot, LoopOutcome, Result as Answer};
use bowline_core::testing::{node, service};
use bowline_core::{ClusterName, Instance, Node, ServiceType};

use super::trouble::visible_troubles;
use crate::balancing::happens;
use crate::bench::LoopBench;
use crate::scene::{CaseFailure, CaseResult, Scene, broken, require};

/// No set of loops makes more calls for three machines.
const MANY_CALLS: u64 = 200;

/// Outcomes of one run of each loop, by name.
type Outcomes = BTreeMap<String, LoopOutcome>;

/// Controls for loops, if the provider has loops.
fn controls(scene: &Scene) -> CaseResult<&dyn LoopBench> {
    if scene.provider().loops().is_empty() {
        return Err(CaseFailure::NotApplicable("no background loops"));
    }
    scene.bench().loops().ok_or_else(|| CaseFailure::BenchCannot("read what loops write".to_owned()))
}

/// A cluster of these machines, with a Service of each type.
fn cluster_of(machines: &[&Instance]) -> ClusterSnapshot {
    let node_of = |machine: &&Instance| {
        let (provider_id, addresses) = (machine.provider_id.clone(), machine.addresses.clone());
        Arc::new(Node { provider_id, addresses, ..node(&machine.name) })
    };
    let mut nodes: Vec<_> = machines.iter().map(node_of).collect();
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    let kinds = [("cluster-ip", ServiceType::ClusterIP), ("node-port", ServiceType::NodePort)];
    let services = kinds.into_iter().chain([("web", ServiceType::LoadBalancer)]).map(|(name, kind)| {
        let mut service = service(&format!("default/{name}"));
        service.kind = kind;
        Arc::new(service)
    });
    ClusterSnapshot { name: ClusterName::from("conformance"), nodes, services: services.collect(), dry_run: false }
}

/// Runs each loop once.
async fn attempt(provider: &dyn CloudProvider, cluster: &ClusterSnapshot) -> Answer<Outcomes> {
    let mut outcomes = Outcomes::new();
    for one in provider.loops() {
        outcomes.insert(one.name().to_owned(), one.sync(cluster).await?);
    }
    Ok(outcomes)
}

/// Runs each loop once, on a sound cloud.
async fn sync(provider: &dyn CloudProvider, cluster: &ClusterSnapshot) -> CaseResult<Outcomes> {
    attempt(provider, cluster).await.or_else(|error| broken(format!("a run on a sound cloud fails: {error}")))
}

async fn check(controls: &dyn LoopBench, cluster: &ClusterSnapshot) -> CaseResult {
    controls.check(cluster).await.or_else(|why| broken(format!("after a run, {why}")))
}

pub(super) async fn loops_are_declared(scene: &Scene) -> CaseResult {
    let declared = |provider: &dyn CloudProvider| {
        provider.loops().iter().map(|one| (one.name().to_owned(), one.period())).collect::<Vec<_>>()
    };
    let first = declared(scene.provider());
    if first.is_empty() {
        return Err(CaseFailure::NotApplicable("no background loops"));
    }
    for (name, period) in &first {
        require(!name.is_empty(), || "a loop has no name".to_owned())?;
        require(!period.is_zero(), || format!("the period of the loop {name} is zero"))?;
        let count = first.iter().filter(|(other, _)| other == name).count();
        require(count == 1, || format!("{count} loops have the name {name}"))?;
    }
    for again in [declared(scene.provider()), declared(&*scene.bench().restarted().await)] {
        require(again == first, || format!("the loops were {first:?}, and are {again:?}"))?;
    }
    Ok(())
}

pub(super) async fn loops_follow_the_cluster(scene: &Scene) -> CaseResult {
    let controls = controls(scene)?;
    let (a, b) = (scene.add("a").await, scene.add("b").await);
    for machines in [[].as_slice(), &[&a], &[&a, &b], &[&b], &[]] {
        let cluster = cluster_of(machines);
        sync(scene.provider(), &cluster).await?;
        check(controls, &cluster).await?;
    }
    Ok(())
}

pub(super) async fn loops_are_repeatable(scene: &Scene) -> CaseResult {
    let controls = controls(scene)?;
    let (a, b) = (scene.add("a").await, scene.add("b").await);
    let cluster = cluster_of(&[&a, &b]);
    let first = sync(scene.provider(), &cluster).await?;
    for provider in [scene.bench().provider(), scene.bench().restarted().await] {
        let before = controls.writes().await;
        let again = sync(&*provider, &cluster).await?;
        let writes = controls.writes().await - before;
        require(writes == 0, || format!("another run made {writes} writing calls"))?;
        let annotations =
            |outcomes: &Outcomes| outcomes.values().map(|one| one.annotations.clone()).collect::<Vec<_>>();
        let (first, again) = (annotations(&first), annotations(&again));
        require(first == again, || format!("the annotations were {first:?}, and are {again:?}"))?;
    }
    check(controls, &cluster).await
}

pub(super) async fn loops_write_nothing_foreign(scene: &Scene) -> CaseResult {
    let controls = controls(scene)?;
    let (ours, others) = (scene.add("ours").await, scene.add("others").await);
    controls.put_foreign(&ours).await;
    controls.put_foreign(&others).await;
    let before = controls.foreign().await;
    require(!before.is_empty(), || "the bench put nothing foreign into the cloud".to_owned())?;
    for machines in [[].as_slice(), &[&ours], &[]] {
        sync(scene.provider(), &cluster_of(machines)).await?;
        let after = controls.foreign().await;
        require(after == before, || format!("what was {before:?} is {after:?} after a run"))?;
    }
    Ok(())
}

pub(super) async fn loop_errors_have_a_kind(scene: &Scene) -> CaseResult {
    controls(scene)?;
    let cluster = cluster_of(&[&scene.add("a").await]);
    for (trouble, kind) in visible_troubles() {
        scene.trouble(trouble).await?;
        match attempt(scene.provider(), &cluster).await {
            Ok(_) => return broken(format!("the runs succeed in spite of {trouble:?}")),
            Err(error) => require(error.kind() == kind, || {
                format!("{trouble:?} is {:?} instead of {kind:?}: {error}", error.kind())
            })?,
        }
    }
    Ok(())
}

pub(super) async fn loops_survive_every_crash(scene: &Scene) -> CaseResult {
    let controls = controls(scene)?;
    let (a, b, c) = (scene.add("a").await, scene.add("b").await, scene.add("c").await);
    let (before, after) = (cluster_of(&[&a, &b]), cluster_of(&[&b, &c]));
    for calls in 1..MANY_CALLS {
        sync(scene.provider(), &before).await?;
        let crashed = happens(scene.bench().crash_after(Some(calls)).await, "crash after a number of calls")?;
        let completed = attempt(scene.provider(), &after).await.is_ok();
        scene.bench().crash_after(None).await;
        sync(&*scene.bench().restarted().await, &after).await?;
        check(controls, &after).await?;
        if completed || !crashed {
            return Ok(());
        }
    }
    broken(format!("the loops make more than {MANY_CALLS} calls"))
}
