//! Fixture of the cases about load balancers: the simulator harness's driver, which does what the service controller does, and
//! readers of the cloud's own state. Where the controller would wait, the fixture calls [`LoadBalancerBench::settle`].

mod desired;
mod verify;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bowline_cloud::layers::capability::{check_load_balancer, requested_kind};
use bowline_cloud::{
    Applied, CloudProvider, Error, ErrorKind, LoadBalancerCapabilities, LoadBalancerKind, LoadBalancers,
    Result as Answer,
};
use bowline_core::{
    Address, AddressType, ClusterName, DesiredLoadBalancer, Instance, LoadBalancerState, NodeName, Plan, Step,
    TargetNode,
};
use bowline_simulator::drive::{Desired, Driver, Pause};

use crate::bench::{BenchResult, LoadBalancerBench, WantedMachine};
use crate::capability::Capability;
use crate::context::{CaseContext, CaseFailure, CaseResult, fail, require};

pub(crate) use desired::{
    by_key, cidr, key, port, set_local_policy, with_annotations, with_settings, with_spec, without_spec,
};
pub(crate) use verify::ResourceCounts;

/// Maximum number of plans for one change.
const MAX_PLANS: usize = 60;

/// Fixture of a case about load balancers.
pub(crate) struct LoadBalancerFixture<'a> {
    context: &'a CaseContext,
    /// Kind of load balancer; `None` means the first.
    kind: Option<&'static str>,
    controls: &'a dyn LoadBalancerBench,
    provider: Arc<dyn CloudProvider>,
    /// Machine IDs by Node name.
    machines: Mutex<BTreeMap<NodeName, String>>,
}

/// Settles the cloud where the controller would requeue.
#[async_trait]
impl Pause for LoadBalancerFixture<'_> {
    async fn pause(&self, error: Error) -> Answer<()> {
        match error.kind() {
            ErrorKind::InProgress => self.controls.settle().await,
            // Another client changed the resource: observe again.
            ErrorKind::Conflict => {}
            _ => return Err(error),
        }
        Ok(())
    }

    async fn pause_unchanged(&self) {
        self.controls.settle().await;
    }
}

/// Ends the driver with the error where the controller would requeue.
pub(crate) struct NoPause;

#[async_trait]
impl Pause for NoPause {
    async fn pause(&self, error: Error) -> Answer<()> {
        Err(error)
    }
}

/// Records the annotations that steps return.
struct AnnotationRecorder {
    desired: DesiredLoadBalancer,
    annotations: BTreeMap<String, String>,
}

impl Desired for AnnotationRecorder {
    fn desired(&self) -> DesiredLoadBalancer {
        self.desired.clone()
    }

    fn annotate(&mut self, annotations: BTreeMap<String, String>) {
        self.annotations.extend(annotations);
    }
}

/// Maximum number of steps to apply.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Steps(pub(crate) usize);

impl<'a> LoadBalancerFixture<'a> {
    /// Fixture for the kind of load balancer that the case is run for.
    pub(crate) fn new(context: &'a CaseContext) -> CaseResult<LoadBalancerFixture<'a>> {
        LoadBalancerFixture::with_kind(context, context.kind())
    }

    /// Fixtures for all kinds of load balancers that the provider claims, for cases that are not run once for each kind.
    pub(crate) fn each_kind(context: &'a CaseContext) -> CaseResult<Vec<LoadBalancerFixture<'a>>> {
        let kinds = context.provider().capabilities().load_balancers.iter().flat_map(|group| &group.kinds);
        kinds.map(|kind| LoadBalancerFixture::with_kind(context, Some(kind.name))).collect()
    }

    fn with_kind(context: &'a CaseContext, kind: Option<&'static str>) -> CaseResult<LoadBalancerFixture<'a>> {
        let Some(controls) = context.bench().load_balancers() else {
            return Err(CaseFailure::BenchCannot("read load balancers".to_owned()));
        };
        Ok(LoadBalancerFixture {
            context,
            kind,
            controls,
            provider: context.bench().provider(),
            machines: Mutex::default(),
        })
    }

    /// The same fixture for another cluster in the same cloud.
    pub(crate) fn of_cluster(&self, cluster: &ClusterName) -> LoadBalancerFixture<'a> {
        let &LoadBalancerFixture { context, kind, controls, .. } = self;
        let (provider, machines) = (context.bench().of_cluster(cluster), Mutex::new(self.lock().clone()));
        LoadBalancerFixture { context, kind, controls, provider, machines }
    }

    pub(crate) fn controls(&self) -> &dyn LoadBalancerBench {
        self.controls
    }

    pub(crate) fn context(&self) -> &CaseContext {
        self.context
    }

    pub(crate) fn capabilities(&self) -> CaseResult<&LoadBalancerCapabilities> {
        let caps = self.provider.capabilities().load_balancers.as_ref();
        caps.map_or_else(|| fail("the provider no longer has capabilities for load balancers"), Ok)
    }

    /// Capabilities of the kind of load balancer.
    pub(crate) fn kind(&self) -> CaseResult<&LoadBalancerKind> {
        let kind = self.capabilities()?.kind(self.kind);
        kind.map_or_else(|| fail(format!("the provider no longer has load balancers of kind {:?}", self.kind)), Ok)
    }

    /// Kind that a load balancer must have from its creation on; `None` if it can change.
    pub(crate) fn fixed_kind(&self) -> CaseResult<Option<&'static str>> {
        Ok(if self.capabilities()?.fixed_kind { Some(self.kind()?.name) } else { None })
    }

    /// Whether load balancers of this kind have the capability.
    pub(crate) fn claims(&self, capability: Capability) -> CaseResult<bool> {
        Ok(capability.is_claimed_with(self.provider.capabilities(), Some(self.kind()?)))
    }

    pub(crate) fn provider(&self) -> CaseResult<&dyn LoadBalancers> {
        let balancers = self.provider.load_balancers();
        balancers.map_or_else(|| fail("the provider claims load balancers and returns no `LoadBalancers`"), Ok)
    }

    /// Restarts the manager, which keeps no state outside the cloud.
    pub(crate) async fn restart(&mut self) {
        self.provider = self.context.bench().restarted().await;
    }

    /// Creates a machine and returns its Node as a target.
    pub(crate) async fn node(&self, name: &str) -> TargetNode {
        let number = self.lock().len() + 1;
        let addresses = vec![
            Address::new(AddressType::InternalIP, format!("10.0.0.{number}")),
            Address::new(AddressType::InternalIP, format!("fd00::{number:x}")),
            Address::new(AddressType::Hostname, name),
        ];
        let instance = self
            .context
            .bench()
            .add(&WantedMachine { name: name.to_owned(), addresses, ..WantedMachine::default() })
            .await;
        self.lock().insert(name.into(), instance.id.clone());
        target(&instance)
    }

    /// ID of the machine behind this Node.
    pub(crate) fn machine(&self, node: &NodeName) -> String {
        self.lock().get(node).cloned().unwrap_or_default()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<NodeName, String>> {
        self.machines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the capability check of the layers.
    pub(crate) fn check(&self, desired: &DesiredLoadBalancer) -> CaseResult<Answer<()>> {
        let name = &self.provider.info().name;
        Ok(self.requested_kind(desired)?.and_then(|kind| check_load_balancer(name, desired, kind)))
    }

    /// Kind of load balancer that this Service requests.
    pub(crate) fn requested_kind(&self, desired: &DesiredLoadBalancer) -> CaseResult<Answer<&LoadBalancerKind>> {
        Ok(requested_kind(&self.provider.info().name, self.provider()?, desired, self.capabilities()?))
    }

    /// Observes one load balancer.
    pub(crate) async fn observe(&self, desired: &DesiredLoadBalancer) -> CaseResult<Answer<Option<LoadBalancerState>>> {
        let mut answers = self.provider()?.observe(std::slice::from_ref(desired)).await;
        require(answers.len() == 1, || format!("{} states for one desired load balancer", answers.len()))?;
        answers.pop().map_or_else(|| fail("no answer"), Ok)
    }

    /// Observes one load balancer in a healthy cloud.
    pub(crate) async fn state(&self, desired: &DesiredLoadBalancer) -> CaseResult<Option<LoadBalancerState>> {
        self.observe(desired).await?.or_else(|error| fail(format!("a healthy cloud returned an error: {error}")))
    }

    /// Driver that acts as the controller does and waits with `pause`. It keeps no state of earlier syncs, so that the framework's
    /// memory cannot hide a bug of the provider.
    pub(crate) fn driver<'d>(&'d self, pause: &'d dyn Pause) -> CaseResult<Driver<'d>> {
        Ok(Driver::new(self.provider()?).with_pause(pause).with_max_plans(MAX_PLANS))
    }

    /// Observes and plans in a healthy cloud without operations in progress.
    pub(crate) async fn plan(&self, desired: &DesiredLoadBalancer) -> CaseResult<Plan> {
        match self.driver(self)?.plan(&mut desired.clone()).await {
            Ok((_, plan)) => Ok(plan),
            Err(error) => fail(format!("planning in a healthy cloud failed: {error}")),
        }
    }

    /// Syncs as the controller does, until the plan is empty or a call fails.
    pub(crate) async fn try_sync(
        &self,
        desired: &DesiredLoadBalancer,
    ) -> CaseResult<Answer<Option<LoadBalancerState>>> {
        if let Err(error) = self.check(desired)? {
            return Ok(Err(error));
        }
        Ok(self.driver(self)?.settle(&mut desired.clone()).await.map(|settled| settled.state))
    }

    /// Syncs as the controller does, in a healthy cloud.
    pub(crate) async fn sync(&self, desired: &DesiredLoadBalancer) -> CaseResult<Option<LoadBalancerState>> {
        self.try_sync(desired).await?.or_else(|error| fail(format!("a healthy cloud returned an error: {error}")))
    }

    /// Syncs, and verifies that the cloud matches the desired state.
    pub(crate) async fn sync_and_verify(&self, desired: &DesiredLoadBalancer) -> CaseResult<LoadBalancerState> {
        let state = self.sync(desired).await?;
        self.controls.settle().await;
        let Some(state) = state else { return fail("the sync succeeded and there is no load balancer") };
        self.verify_matches(desired, &state).await?;
        Ok(state)
    }

    /// Verifies a successful sync against the cloud: a provider that ignores a failed call or operation may have read only a part.
    pub(crate) async fn verify_success(
        &self,
        desired: &DesiredLoadBalancer,
        state: Option<&LoadBalancerState>,
        after: &str,
    ) -> CaseResult {
        match (&desired.spec, state) {
            (None, _) => {
                let left = self.owned_by(&desired.key).await;
                require(left.is_empty(), || {
                    format!("after {after} the deletion succeeded, but these resources are left: {left:?}")
                })
            }
            (Some(_), Some(state)) => self.verify_matches(desired, state).await,
            (Some(_), None) => fail(format!("after {after} the sync succeeded, but there is no load balancer")),
        }
    }

    /// Deletes the load balancer, and verifies that the cloud has no resource of it.
    pub(crate) async fn delete_and_verify(&self, desired: &DesiredLoadBalancer) -> CaseResult {
        let state = self.sync(&without_spec(desired)).await?;
        self.controls.settle().await;
        require(state.is_none(), || format!("it was deleted, but is still observed: {state:?}"))?;
        let left = self.owned_by(&desired.key).await;
        require(left.is_empty(), || format!("it was deleted, but these resources are left: {left:?}"))
    }

    /// Applies at most this many steps. Returns whether no step is left.
    pub(crate) async fn apply_steps(&self, desired: &DesiredLoadBalancer, Steps(limit): Steps) -> CaseResult<bool> {
        let (mut left, mut skipped) = (limit, Vec::new());
        for _ in 0..MAX_PLANS {
            let mut plan = self.plan(desired).await?;
            plan.steps.retain(|step| !skipped.contains(step));
            if plan.steps.is_empty() || left == 0 {
                return Ok(plan.steps.is_empty());
            }
            plan.steps.truncate(left);
            plan.errors.clear();
            left -= plan.steps.len();
            let applied = self.driver(self)?.apply_all(&mut desired.clone(), &plan).await;
            skipped.extend(applied.or_else(|error| fail(format!("a healthy cloud returned an error: {error}")))?);
        }
        fail(format!("the plan is not empty after {MAX_PLANS} syncs"))
    }

    /// Applies one step, retries while an operation is in progress, and polls the operation that the step starts until it ends.
    pub(crate) async fn apply(&self, desired: &DesiredLoadBalancer, step: &Step) -> CaseResult<Answer<Applied>> {
        let driver = self.driver(self)?;
        let applied = driver.apply(&mut desired.clone(), step).await;
        if let Ok(Applied::Started(operation)) = &applied
            && let Err(error) = driver.poll(&desired.key, operation).await
        {
            return Ok(Err(error));
        }
        Ok(applied)
    }

    /// Applies one step without retries.
    pub(crate) async fn apply_once(&self, desired: &DesiredLoadBalancer, step: &Step) -> CaseResult<Answer<Applied>> {
        Ok(self.provider()?.apply(&desired.key, step, None).await)
    }

    /// Applies the whole plan in a healthy cloud, and returns the annotations that the steps returned.
    pub(crate) async fn apply_and_collect_annotations(
        &self,
        desired: &DesiredLoadBalancer,
    ) -> CaseResult<BTreeMap<String, String>> {
        let plan = self.plan(desired).await?;
        let mut recorder = AnnotationRecorder { desired: desired.clone(), annotations: BTreeMap::new() };
        let applied = self.driver(self)?.apply_all(&mut recorder, &Plan { errors: Vec::new(), ..plan }).await;
        applied.or_else(|error| fail(format!("a healthy cloud returned an error: {error}")))?;
        Ok(recorder.annotations)
    }

    /// Number of write calls so far.
    pub(crate) async fn writes(&self) -> CaseResult<u64> {
        let writes = self.controls.writes().await;
        writes.ok_or_else(|| CaseFailure::BenchCannot("count writes".to_owned()))
    }

    /// Number of calls so far.
    pub(crate) async fn calls(&self) -> CaseResult<u64> {
        let calls = self.context.calls().await;
        calls.ok_or_else(|| CaseFailure::BenchCannot("count calls".to_owned()))
    }

    /// Verifies that the plan is empty, and that observing and planning write nothing.
    pub(crate) async fn verify_no_changes(&self, desired: &DesiredLoadBalancer) -> CaseResult {
        let before = self.writes().await?;
        let plan = self.plan(desired).await?;
        require(plan.is_empty(), || format!("nothing has changed, but the plan is not empty: {plan}"))?;
        let written = self.writes().await? - before;
        require(written == 0, || format!("observing and planning made {written} write calls"))
    }
}

/// Whether the bench has induced the situation; `false` if it never occurs in its cloud.
pub(crate) fn was_induced(result: BenchResult, what: &str) -> CaseResult<bool> {
    match result {
        BenchResult::Done => Ok(true),
        BenchResult::Never => Ok(false),
        BenchResult::Cannot => Err(CaseFailure::BenchCannot(what.to_owned())),
    }
}

/// Target for the Node of this machine.
fn target(instance: &Instance) -> TargetNode {
    TargetNode {
        node: instance.name.as_str().into(),
        provider_id: instance.provider_id.clone(),
        addresses: instance.addresses.clone(),
        draining: false,
    }
}
