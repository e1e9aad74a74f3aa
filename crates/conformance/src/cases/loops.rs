//! Rules about background loops. They are not applicable to a provider without loops.

use std::collections::BTreeMap;
use std::sync::Arc;

use bowline_cloud::{CloudProvider, ClusterSnapshot, ErrorKind, LoopPlan, ProviderLoop, Result as Answer};
use bowline_core::testing::{node, service, service_port};
use bowline_core::{ClusterName, Instance, Node, Protocol, Service, ServiceType};

use super::faults::visible_faults;
use crate::bench::{InducedFault, LoopBench};
use crate::context::{CaseContext, CaseFailure, CaseResult, fail, require};
use crate::load_balancer_fixture::was_induced;

/// Maximum number of calls that all loops together make for three machines and three Services.
const MAX_CALLS: u64 = 200;

/// Plans of all loops, by loop name.
type Plans = BTreeMap<String, LoopPlan>;

/// Controls for loops, if the provider has loops.
fn controls(context: &CaseContext) -> CaseResult<&dyn LoopBench> {
    if context.provider().loops().is_empty() {
        return Err(CaseFailure::NotApplicable("no background loops"));
    }
    context.bench().loops().ok_or_else(|| CaseFailure::BenchCannot("verify the writes of loops".to_owned()))
}

// ---- snapshots

/// A Service of each type.
struct Services {
    cluster_ip: Service,
    node_port: Service,
    web: Service,
}

impl Services {
    async fn new(controls: &dyn LoopBench) -> Services {
        let of_kind = |name, kind, ports: &[(Protocol, u16)]| {
            let ports = ports.iter().map(|(protocol, port)| service_port(*protocol, *port)).collect();
            controls.add_service(Service { kind, ports, ..service(&format!("default/{name}")) })
        };
        let mut cluster_ip = of_kind("cluster-ip", ServiceType::ClusterIP, &[(Protocol::Tcp, 82)]).await;
        cluster_ip.ports.iter_mut().for_each(|port| port.node_port = None);
        let node_ports = [(Protocol::Tcp, 81), (Protocol::Udp, 53)];
        let node_port = of_kind("node-port", ServiceType::NodePort, &node_ports).await;
        Services { cluster_ip, node_port, web: of_kind("web", ServiceType::LoadBalancer, &[(Protocol::Tcp, 80)]).await }
    }

    fn all(&self) -> [&Service; 3] {
        [&self.cluster_ip, &self.node_port, &self.web]
    }
}

/// Cluster with these machines and Services.
fn cluster_of(machines: &[&Instance], services: &[&Service]) -> ClusterSnapshot {
    let services = services.iter().map(|service| Arc::new(Service::clone(service))).collect();
    let (name, nodes) = (ClusterName::from("conformance"), nodes_of(machines));
    ClusterSnapshot { name, nodes, paused: Vec::new(), services }
}

fn nodes_of(machines: &[&Instance]) -> Vec<Arc<Node>> {
    let node_of = |machine: &&Instance| {
        let (provider_id, addresses) = (machine.provider_id.clone(), machine.addresses.clone());
        Arc::new(Node { provider_id, addresses, ..node(&machine.name) })
    };
    let mut nodes: Vec<_> = machines.iter().map(node_of).collect();
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    nodes
}

/// Snapshots of a cluster that grows, changes and shrinks.
async fn changing_cluster(context: &CaseContext, controls: &dyn LoopBench) -> Vec<ClusterSnapshot> {
    let (a, b, services) = (context.add("a").await, context.add("b").await, Services::new(controls).await);
    let Services { cluster_ip, node_port, web } = &services;
    let mut fewer_ports = node_port.clone();
    fewer_ports.ports.retain(|port| port.protocol == Protocol::Udp);
    vec![
        cluster_of(&[], &[]),
        cluster_of(&[&a], &[cluster_ip, node_port]),
        cluster_of(&[&a, &b], &services.all()),
        cluster_of(&[&b], &[cluster_ip, &fewer_ports, web]),
        cluster_of(&[&b], &[cluster_ip, web]),
        cluster_of(&[], &[]),
    ]
}

// ---- runs

async fn try_plan(provider: &dyn CloudProvider, cluster: &ClusterSnapshot) -> Answer<Plans> {
    let mut plans = Plans::new();
    for one in provider.loops() {
        plans.insert(one.name().to_owned(), one.plan(cluster).await?);
    }
    Ok(plans)
}

/// Runs each loop once, as the layers do.
async fn try_run(provider: &dyn CloudProvider, cluster: &ClusterSnapshot) -> Answer<Plans> {
    let mut plans = Plans::new();
    for one in provider.loops() {
        let planned = one.plan(cluster).await?;
        apply(&*one, &planned).await?;
        if let Some(error) = planned.plan.errors.first() {
            return Err(error.clone().into());
        }
        plans.insert(one.name().to_owned(), planned);
    }
    Ok(plans)
}

async fn apply(one: &dyn ProviderLoop, planned: &LoopPlan) -> Answer<()> {
    for step in &planned.plan.steps {
        match one.apply(step).await {
            Err(error) if error.allows_skipping(step) => {}
            applied => applied?,
        }
    }
    Ok(())
}

/// Plans each loop on a healthy cloud.
async fn plan(provider: &dyn CloudProvider, cluster: &ClusterSnapshot) -> CaseResult<Plans> {
    try_plan(provider, cluster).await.or_else(|error| fail(format!("a plan on a healthy cloud failed: {error}")))
}

/// Runs each loop once on a healthy cloud.
async fn run(provider: &dyn CloudProvider, cluster: &ClusterSnapshot) -> CaseResult<Plans> {
    try_run(provider, cluster).await.or_else(|error| fail(format!("a run on a healthy cloud failed: {error}")))
}

async fn check(controls: &dyn LoopBench, cluster: &ClusterSnapshot) -> CaseResult {
    controls.check(cluster).await.or_else(|why| fail(format!("after a run, {why}")))
}

// ---- cases

pub(super) async fn loops_are_declared(context: &CaseContext) -> CaseResult {
    let declared = |provider: &dyn CloudProvider| {
        let loops = provider.loops();
        loops.iter().map(|one| (one.name().to_owned(), one.period(), one.triggers())).collect::<Vec<_>>()
    };
    let first = declared(context.provider());
    if first.is_empty() {
        return Err(CaseFailure::NotApplicable("no background loops"));
    }
    for (name, period, _) in &first {
        require(!name.is_empty(), || "a loop has no name".to_owned())?;
        require(!period.is_zero(), || format!("the period of the loop {name} is zero"))?;
        let count = first.iter().filter(|(other, ..)| other == name).count();
        require(count == 1, || format!("{count} loops have the name {name}"))?;
    }
    for again in [declared(context.provider()), declared(&*context.bench().restarted().await)] {
        require(again == first, || format!("the declared loops changed from {first:?} to {again:?}"))?;
    }
    Ok(())
}

pub(super) async fn loops_follow_the_cluster(context: &CaseContext) -> CaseResult {
    let controls = controls(context)?;
    for cluster in changing_cluster(context, controls).await {
        run(context.provider(), &cluster).await?;
        check(controls, &cluster).await?;
    }
    Ok(())
}

pub(super) async fn paused_nodes_stay_as_they_are(context: &CaseContext) -> CaseResult {
    let controls = controls(context)?;
    let (a, old, services) = (context.add("a").await, context.add("old").await, Services::new(controls).await);
    run(context.provider(), &cluster_of(&[&a, &old], &services.all())).await?;
    let new = context.add("new").await;
    let paused = nodes_of(&[&old, &new]);
    let cluster = ClusterSnapshot { paused: paused.clone(), ..cluster_of(&[&a], &services.all()) };
    for (name, LoopPlan { plan, annotations, labels, .. }) in plan(context.provider(), &cluster).await? {
        require(plan.is_empty(), || format!("while two Nodes are paused, the plan of the loop {name} is {plan}"))?;
        let is_written = |node: &&Arc<Node>| annotations.contains_key(&node.name) || labels.contains_key(&node.name);
        let written = paused.iter().find(is_written);
        require(written.is_none(), || format!("the loop {name} annotates or labels the paused Node {written:?}"))?;
    }
    let resumed = cluster_of(&[&a, &old, &new], &services.all());
    run(context.provider(), &resumed).await?;
    check(controls, &resumed).await
}

pub(super) async fn loop_plans_write_nothing(context: &CaseContext) -> CaseResult {
    let controls = controls(context)?;
    for cluster in changing_cluster(context, controls).await {
        let before = controls.writes().await;
        let first = plan(context.provider(), &cluster).await?;
        let again = plan(context.provider(), &cluster).await?;
        let writes = controls.writes().await - before;
        require(writes == 0, || format!("two plans made {writes} write calls"))?;
        require(first == again, || format!("two plans for the same state differ: {first:?} and {again:?}"))?;
        run(context.provider(), &cluster).await?;
    }
    Ok(())
}

pub(super) async fn applied_loop_plan_is_empty(context: &CaseContext) -> CaseResult {
    let controls = controls(context)?;
    for cluster in changing_cluster(context, controls).await {
        run(context.provider(), &cluster).await?;
        for provider in [context.bench().provider(), context.bench().restarted().await] {
            for (name, LoopPlan { plan, .. }) in plan(&*provider, &cluster).await? {
                require(plan.is_empty(), || format!("after a run, the plan of the loop {name} is {plan}"))?;
            }
        }
    }
    Ok(())
}

pub(super) async fn loops_are_repeatable(context: &CaseContext) -> CaseResult {
    let controls = controls(context)?;
    let (a, b, services) = (context.add("a").await, context.add("b").await, Services::new(controls).await);
    let cluster = cluster_of(&[&a, &b], &services.all());
    let first = run(context.provider(), &cluster).await?;
    for provider in [context.bench().provider(), context.bench().restarted().await] {
        let before = controls.writes().await;
        let again = run(&*provider, &cluster).await?;
        let writes = controls.writes().await - before;
        require(writes == 0, || format!("a second run made {writes} write calls"))?;
        let metadata = |one: &LoopPlan| (one.annotations.clone(), one.labels.clone());
        let metadata = |plans: &Plans| plans.values().map(metadata).collect::<Vec<_>>();
        let (first, again) = (metadata(&first), metadata(&again));
        require(first == again, || format!("the annotations and labels changed from {first:?} to {again:?}"))?;
    }
    check(controls, &cluster).await
}

pub(super) async fn loops_write_nothing_foreign(context: &CaseContext) -> CaseResult {
    let controls = controls(context)?;
    let (ours, foreign) = (context.add("ours").await, context.add("foreign").await);
    let services = Services::new(controls).await;
    controls.put_foreign(&ours).await;
    controls.put_foreign(&foreign).await;
    let before = controls.foreign().await;
    require(!before.is_empty(), || "the bench created no foreign resources".to_owned())?;
    for cluster in [cluster_of(&[], &[]), cluster_of(&[&ours], &services.all()), cluster_of(&[], &[])] {
        run(context.provider(), &cluster).await?;
        let after = controls.foreign().await;
        require(after == before, || format!("a run changed foreign resources from {before:?} to {after:?}"))?;
    }
    Ok(())
}

pub(super) async fn loop_errors_have_a_kind(context: &CaseContext) -> CaseResult {
    let controls = controls(context)?;
    let cluster = cluster_of(&[&context.add("a").await], &Services::new(controls).await.all());
    for (fault, kind) in visible_faults(context) {
        context.inject(fault).await?;
        expect_kind(fault, kind, "run", try_run(context.provider(), &cluster).await)?;
        context.clear_faults().await;
        for one in context.provider().loops() {
            let planned = one.plan(&cluster).await.or_else(|error| fail(format!("a plan failed: {error}")))?;
            let Some(step) = planned.plan.steps.first() else { continue };
            context.inject(fault).await?;
            expect_kind(fault, kind, "step", one.apply(step).await)?;
            context.clear_faults().await;
        }
    }
    Ok(())
}

fn expect_kind<T>(fault: InducedFault, kind: ErrorKind, what: &str, answer: Answer<T>) -> CaseResult {
    match answer {
        Ok(_) => fail(format!("{fault:?}: the {what} succeeded")),
        Err(error) => require(error.kind() == kind, || {
            format!("{fault:?}: expected a {what} to fail with {kind:?}, got {:?}: {error}", error.kind())
        }),
    }
}

pub(super) async fn loops_survive_every_crash(context: &CaseContext) -> CaseResult {
    let controls = controls(context)?;
    let (a, b, c) = (context.add("a").await, context.add("b").await, context.add("c").await);
    let Services { cluster_ip, node_port, web } = &Services::new(controls).await;
    let before = cluster_of(&[&a, &b], &[cluster_ip, node_port]);
    let after = cluster_of(&[&b, &c], &[cluster_ip, web]);
    for calls in 1..MAX_CALLS {
        run(context.provider(), &before).await?;
        let crashed = was_induced(context.bench().crash_after(Some(calls)).await, "crash after a number of calls")?;
        let completed = try_run(context.provider(), &after).await.is_ok();
        context.bench().crash_after(None).await;
        run(&*context.bench().restarted().await, &after).await?;
        check(controls, &after).await?;
        if completed || !crashed {
            return Ok(());
        }
    }
    fail(format!("the loops make more than {MAX_CALLS} calls"))
}
