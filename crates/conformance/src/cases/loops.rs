//! Rules about background loops. They are not applicable to a provider without loops.

use std::collections::BTreeMap;
use std::sync::Arc;

use bowline_cloud::{CloudProvider, ClusterSnapshot, LoopOutcome, Result as Answer};
use bowline_core::testing::{node, service};
use bowline_core::{ClusterName, Instance, Node, ServiceType};

use super::faults::visible_faults;
use crate::bench::LoopBench;
use crate::context::{CaseContext, CaseFailure, CaseResult, fail, require};
use crate::load_balancer_fixture::was_induced;

/// Maximum number of calls that all loops together make for three machines.
const MAX_CALLS: u64 = 200;

/// Outcomes of one run of each loop, by loop name.
type Outcomes = BTreeMap<String, LoopOutcome>;

/// Controls for loops, if the provider has loops.
fn controls(context: &CaseContext) -> CaseResult<&dyn LoopBench> {
    if context.provider().loops().is_empty() {
        return Err(CaseFailure::NotApplicable("no background loops"));
    }
    context.bench().loops().ok_or_else(|| CaseFailure::BenchCannot("verify the writes of loops".to_owned()))
}

/// Cluster with these machines and a Service of each type.
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
async fn try_sync(provider: &dyn CloudProvider, cluster: &ClusterSnapshot) -> Answer<Outcomes> {
    let mut outcomes = Outcomes::new();
    for one in provider.loops() {
        outcomes.insert(one.name().to_owned(), one.sync(cluster).await?);
    }
    Ok(outcomes)
}

/// Runs each loop once on a healthy cloud.
async fn sync(provider: &dyn CloudProvider, cluster: &ClusterSnapshot) -> CaseResult<Outcomes> {
    try_sync(provider, cluster).await.or_else(|error| fail(format!("a run on a healthy cloud failed: {error}")))
}

async fn check(controls: &dyn LoopBench, cluster: &ClusterSnapshot) -> CaseResult {
    controls.check(cluster).await.or_else(|why| fail(format!("after a run, {why}")))
}

pub(super) async fn loops_are_declared(context: &CaseContext) -> CaseResult {
    let declared = |provider: &dyn CloudProvider| {
        provider.loops().iter().map(|one| (one.name().to_owned(), one.period())).collect::<Vec<_>>()
    };
    let first = declared(context.provider());
    if first.is_empty() {
        return Err(CaseFailure::NotApplicable("no background loops"));
    }
    for (name, period) in &first {
        require(!name.is_empty(), || "a loop has no name".to_owned())?;
        require(!period.is_zero(), || format!("the period of the loop {name} is zero"))?;
        let count = first.iter().filter(|(other, _)| other == name).count();
        require(count == 1, || format!("{count} loops have the name {name}"))?;
    }
    for again in [declared(context.provider()), declared(&*context.bench().restarted().await)] {
        require(again == first, || format!("the declared loops changed from {first:?} to {again:?}"))?;
    }
    Ok(())
}

pub(super) async fn loops_follow_the_cluster(context: &CaseContext) -> CaseResult {
    let controls = controls(context)?;
    let (a, b) = (context.add("a").await, context.add("b").await);
    for machines in [[].as_slice(), &[&a], &[&a, &b], &[&b], &[]] {
        let cluster = cluster_of(machines);
        sync(context.provider(), &cluster).await?;
        check(controls, &cluster).await?;
    }
    Ok(())
}

pub(super) async fn loops_are_repeatable(context: &CaseContext) -> CaseResult {
    let controls = controls(context)?;
    let (a, b) = (context.add("a").await, context.add("b").await);
    let cluster = cluster_of(&[&a, &b]);
    let first = sync(context.provider(), &cluster).await?;
    for provider in [context.bench().provider(), context.bench().restarted().await] {
        let before = controls.writes().await;
        let again = sync(&*provider, &cluster).await?;
        let writes = controls.writes().await - before;
        require(writes == 0, || format!("a second run made {writes} write calls"))?;
        let annotations =
            |outcomes: &Outcomes| outcomes.values().map(|one| one.annotations.clone()).collect::<Vec<_>>();
        let (first, again) = (annotations(&first), annotations(&again));
        require(first == again, || format!("the annotations changed from {first:?} to {again:?}"))?;
    }
    check(controls, &cluster).await
}

pub(super) async fn loops_write_nothing_foreign(context: &CaseContext) -> CaseResult {
    let controls = controls(context)?;
    let (ours, foreign) = (context.add("ours").await, context.add("foreign").await);
    controls.put_foreign(&ours).await;
    controls.put_foreign(&foreign).await;
    let before = controls.foreign().await;
    require(!before.is_empty(), || "the bench created no foreign resources".to_owned())?;
    for machines in [[].as_slice(), &[&ours], &[]] {
        sync(context.provider(), &cluster_of(machines)).await?;
        let after = controls.foreign().await;
        require(after == before, || format!("a run changed foreign resources from {before:?} to {after:?}"))?;
    }
    Ok(())
}

pub(super) async fn loop_errors_have_a_kind(context: &CaseContext) -> CaseResult {
    controls(context)?;
    let cluster = cluster_of(&[&context.add("a").await]);
    for (fault, kind) in visible_faults() {
        context.inject(fault).await?;
        match try_sync(context.provider(), &cluster).await {
            Ok(_) => return fail(format!("{fault:?}: the run succeeded")),
            Err(error) => require(error.kind() == kind, || {
                format!("{fault:?}: expected an error of kind {kind:?}, got {:?}: {error}", error.kind())
            })?,
        }
    }
    Ok(())
}

pub(super) async fn loops_survive_every_crash(context: &CaseContext) -> CaseResult {
    let controls = controls(context)?;
    let (a, b, c) = (context.add("a").await, context.add("b").await, context.add("c").await);
    let (before, after) = (cluster_of(&[&a, &b]), cluster_of(&[&b, &c]));
    for calls in 1..MAX_CALLS {
        sync(context.provider(), &before).await?;
        let crashed = was_induced(context.bench().crash_after(Some(calls)).await, "crash after a number of calls")?;
        let completed = try_sync(context.provider(), &after).await.is_ok();
        context.bench().crash_after(None).await;
        sync(&*context.bench().restarted().await, &after).await?;
        check(controls, &after).await?;
        if completed || !crashed {
            return Ok(());
        }
    }
    fail(format!("the loops make more than {MAX_CALLS} calls"))
}
