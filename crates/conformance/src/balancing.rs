//! Tools of the cases about load balancers: the harness's driver, which does what the service controller does, and readers of the
//! cloud's own state. Where the controller would wait, the bench lets the cloud [settle](BalancerBench::settle).

mod looks;
mod wanted;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bowline_cloud::layers::capability::{check_load_balancer, requested_kind};
use bowline_cloud::{
    Applied, CloudProvider, Error, ErrorKind, LoadBalancerCapabilities, LoadBalancerKind, LoadBalancers,
    Result as Answer,
};
use bowline_core::{
    Address, AddressType, DesiredLoadBalancer, Instance, LoadBalancerState, NodeName, Plan, Step, TargetNode,
};
use bowline_simulator::drive::{Desired, Driver, Pause};

use crate::bench::{BenchResult, LoadBalancerBench, WantedMachine};
use crate::scene::{CaseFailure, CaseResult, Scene, broken, require};

pub(crate) use looks::Shape;
pub(crate) use wanted::{annotated, change, gone, key, local, port, range, set};

/// Maximum number of plans for one change.
const ROUNDS: usize = 60;

/// A bench in use by a case about balancers.
pub(crate) struct Balancing<'a> {
    scene: &'a Scene,
    hands: &'a dyn LoadBalancerBench,
    provider: Arc<dyn CloudProvider>,
    /// The ID of each machine, by the name of its node.
    machines: Mutex<BTreeMap<NodeName, String>>,
}

/// Lets the cloud settle where the controller would come back later.
#[async_trait]
impl Pause for Balancing<'_> {
    async fn pause(&self, error: Error) -> Answer<()> {
        match error.kind() {
            ErrorKind::InProgress => self.hands.settle().await,
            // Another client changed it meanwhile: observe again.
            ErrorKind::Conflict => {}
            _ => return Err(error),
        }
        Ok(())
    }

    async fn pause_unchanged(&self) {
        self.hands.settle().await;
    }
}

/// Ends the driver where the controller would come back later.
pub(crate) struct AtOnce;

#[async_trait]
impl Pause for AtOnce {
    async fn pause(&self, error: Error) -> Answer<()> {
        Err(error)
    }
}

/// Keeps the annotations that steps note.
struct Noting {
    desired: DesiredLoadBalancer,
    notes: BTreeMap<String, String>,
}

impl Desired for Noting {
    fn desired(&self) -> DesiredLoadBalancer {
        self.desired.clone()
    }

    fn annotate(&mut self, annotations: BTreeMap<String, String>) {
        self.notes.extend(annotations);
    }
}

/// How far a driver goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Steps(pub(crate) usize);

impl<'a> Balancing<'a> {
    pub(crate) fn of(scene: &'a Scene) -> CaseResult<Balancing<'a>> {
        let Some(hands) = scene.bench().balancers() else {
            return Err(CaseFailure::BenchCannot("look at balancers".to_owned()));
        };
        Ok(Balancing { scene, hands, provider: scene.bench().provider(), machines: Mutex::default() })
    }

    pub(crate) fn hands(&self) -> &dyn LoadBalancerBench {
        self.hands
    }

    pub(crate) fn scene(&self) -> &Scene {
        self.scene
    }

    pub(crate) fn group(&self) -> CaseResult<&LoadBalancerCapabilities> {
        let caps = self.provider.capabilities().load_balancers.as_ref();
        caps.map_or_else(|| broken("it has no capabilities for load balancers any more"), Ok)
    }

    /// Capabilities of the kind of load balancer that the case is about.
    pub(crate) fn caps(&self) -> CaseResult<&LoadBalancerKind> {
        let kind = self.group()?.kind(self.scene.kind());
        kind.map_or_else(|| broken(format!("it has no load balancers of kind {:?} any more", self.scene.kind())), Ok)
    }

    pub(crate) fn provider(&self) -> CaseResult<&dyn LoadBalancers> {
        let balancers = self.provider.load_balancers();
        balancers.map_or_else(|| broken("it claims to balance load, and hands out no LoadBalancers"), Ok)
    }

    /// The manager starts anew: all that it knows is in the cloud.
    pub(crate) async fn restart(&mut self) {
        self.provider = self.scene.bench().restarted().await;
    }

    /// Makes a machine and the target that its Node would be.
    pub(crate) async fn node(&self, name: &str) -> TargetNode {
        let number = self.lock().len() + 1;
        let addresses = vec![
            Address::new(AddressType::InternalIP, format!("10.0.0.{number}")),
            Address::new(AddressType::InternalIP, format!("fd00::{number:x}")),
            Address::new(AddressType::Hostname, name),
        ];
        let instance = self
            .scene
            .bench()
            .add(&WantedMachine { name: name.to_owned(), addresses, ..WantedMachine::default() })
            .await;
        self.lock().insert(name.into(), instance.id.clone());
        target(&instance)
    }

    /// The ID of the machine behind this node.
    pub(crate) fn machine(&self, node: &NodeName) -> String {
        self.lock().get(node).cloned().unwrap_or_default()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<NodeName, String>> {
        self.machines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the layers let this wish through.
    pub(crate) fn check(&self, desired: &DesiredLoadBalancer) -> CaseResult<Answer<()>> {
        let name = &self.provider.info().name;
        Ok(self.requested_kind(desired)?.and_then(|kind| check_load_balancer(name, desired, kind)))
    }

    /// The kind of load balancer that this Service requests.
    pub(crate) fn requested_kind(&self, desired: &DesiredLoadBalancer) -> CaseResult<Answer<&LoadBalancerKind>> {
        Ok(requested_kind(&self.provider.info().name, self.provider()?, desired, self.group()?))
    }

    /// Looks at one.
    pub(crate) async fn observe(&self, desired: &DesiredLoadBalancer) -> CaseResult<Answer<Option<LoadBalancerState>>> {
        let mut answers = self.provider()?.observe(std::slice::from_ref(desired)).await;
        require(answers.len() == 1, || format!("{} answers to one wish", answers.len()))?;
        answers.pop().map_or_else(|| broken("no answer"), Ok)
    }

    /// Looks at one, in a sound cloud.
    pub(crate) async fn state(&self, desired: &DesiredLoadBalancer) -> CaseResult<Option<LoadBalancerState>> {
        self.observe(desired).await?.or_else(|error| broken(format!("an error from a sound cloud: {error}")))
    }

    /// Drives the load balancers of the provider as the controller does, and waits like this. It remembers nothing of earlier
    /// syncs, so that what the framework remembers for a provider hides no flaw of it.
    pub(crate) fn driver<'d>(&'d self, pause: &'d dyn Pause) -> CaseResult<Driver<'d>> {
        Ok(Driver::new(self.provider()?).pausing(pause).planning(ROUNDS))
    }

    /// Observes and plans, in a sound cloud that is at rest.
    pub(crate) async fn plan(&self, desired: &DesiredLoadBalancer) -> CaseResult<Plan> {
        match self.driver(self)?.plan(&mut desired.clone()).await {
            Ok((_, plan)) => Ok(plan),
            Err(error) => broken(format!("no plan in a sound cloud: {error}")),
        }
    }

    /// Does what the controller does until there is nothing left to do; an error ends it.
    pub(crate) async fn attempt(&self, desired: &DesiredLoadBalancer) -> CaseResult<Answer<Option<LoadBalancerState>>> {
        if let Err(error) = self.check(desired)? {
            return Ok(Err(error));
        }
        Ok(self.driver(self)?.settle(&mut desired.clone()).await.map(|settled| settled.state))
    }

    /// Does what the controller does, in a sound cloud.
    pub(crate) async fn converge(&self, desired: &DesiredLoadBalancer) -> CaseResult<Option<LoadBalancerState>> {
        self.attempt(desired).await?.or_else(|error| broken(format!("an error from a sound cloud: {error}")))
    }

    /// Makes it so, and finds it so in the cloud.
    pub(crate) async fn fulfil(&self, desired: &DesiredLoadBalancer) -> CaseResult<LoadBalancerState> {
        let state = self.converge(desired).await?;
        self.hands.settle().await;
        let Some(state) = state else { return broken("it is done, and there is nothing") };
        self.is_as_wished(desired, &state).await?;
        Ok(state)
    }

    /// Compares a success with the cloud: a provider that passes over a failed call or operation may have seen a part only.
    pub(crate) async fn is_true(
        &self,
        desired: &DesiredLoadBalancer,
        state: Option<&LoadBalancerState>,
        after: &str,
    ) -> CaseResult {
        match (&desired.spec, state) {
            (None, _) => {
                let left = self.owned(&desired.key).await;
                require(left.is_empty(), || {
                    format!("after {after} it says that nothing is left, and this is: {left:?}")
                })
            }
            (Some(_), Some(state)) => self.is_as_wished(desired, state).await,
            (Some(_), None) => broken(format!("after {after} it says that all is done, and there is nothing")),
        }
    }

    /// Removes it, and finds nothing of it in the cloud.
    pub(crate) async fn remove(&self, desired: &DesiredLoadBalancer) -> CaseResult {
        let state = self.converge(&gone(desired)).await?;
        self.hands.settle().await;
        require(state.is_none(), || format!("it is removed, and there is still {state:?}"))?;
        let left = self.owned(&desired.key).await;
        require(left.is_empty(), || format!("it is removed, and this is left: {left:?}"))
    }

    /// Applies at most this many steps; `true` if there were no more.
    pub(crate) async fn go(&self, desired: &DesiredLoadBalancer, Steps(most): Steps) -> CaseResult<bool> {
        let (mut left, mut left_out) = (most, Vec::new());
        for _ in 0..ROUNDS {
            let mut plan = self.plan(desired).await?;
            plan.steps.retain(|step| !left_out.contains(step));
            if plan.steps.is_empty() || left == 0 {
                return Ok(plan.steps.is_empty());
            }
            plan.steps.truncate(left);
            plan.errors.clear();
            left -= plan.steps.len();
            let applied = self.driver(self)?.apply_all(&mut desired.clone(), &plan).await;
            left_out.extend(applied.or_else(|error| broken(format!("an error from a sound cloud: {error}")))?);
        }
        broken(format!("after {ROUNDS} rounds there is still something to do"))
    }

    /// Applies one step, again while the cloud is at work, and polls the operation that it starts until that has ended.
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

    /// Applies one step, if the cloud does so at once.
    pub(crate) async fn apply_once(&self, desired: &DesiredLoadBalancer, step: &Step) -> CaseResult<Answer<Applied>> {
        Ok(self.provider()?.apply(&desired.key, step, None).await)
    }

    /// Applies all that is planned, in a sound cloud; the annotations that steps note.
    pub(crate) async fn noting(&self, desired: &DesiredLoadBalancer) -> CaseResult<BTreeMap<String, String>> {
        let plan = self.plan(desired).await?;
        let mut noting = Noting { desired: desired.clone(), notes: BTreeMap::new() };
        let applied = self.driver(self)?.apply_all(&mut noting, &Plan { errors: Vec::new(), ..plan }).await;
        applied.or_else(|error| broken(format!("an error from a sound cloud: {error}")))?;
        Ok(noting.notes)
    }

    /// Writing calls so far.
    pub(crate) async fn writes(&self) -> CaseResult<u64> {
        let writes = self.hands.writes().await;
        writes.ok_or_else(|| CaseFailure::BenchCannot("count writes".to_owned()))
    }

    /// Calls so far.
    pub(crate) async fn calls(&self) -> CaseResult<u64> {
        let calls = self.scene.calls().await;
        calls.ok_or_else(|| CaseFailure::BenchCannot("count calls".to_owned()))
    }

    /// Looks and plans: there is nothing to do, and nothing is written.
    pub(crate) async fn rests(&self, desired: &DesiredLoadBalancer) -> CaseResult {
        let before = self.writes().await?;
        let plan = self.plan(desired).await?;
        require(plan.is_empty(), || format!("all is done, and this is planned: {plan}"))?;
        let written = self.writes().await? - before;
        require(written == 0, || format!("{written} writes only to look and to plan"))
    }
}

/// Whether the bench has brought it about; `false` if that never happens in its cloud.
pub(crate) fn happens(hand: BenchResult, what: &str) -> CaseResult<bool> {
    match hand {
        BenchResult::Done => Ok(true),
        BenchResult::Never => Ok(false),
        BenchResult::Cannot => Err(CaseFailure::BenchCannot(what.to_owned())),
    }
}

/// The target that the Node of this machine is.
fn target(instance: &Instance) -> TargetNode {
    TargetNode {
        node: instance.name.as_str().into(),
        provider_id: instance.provider_id.clone(),
        addresses: instance.addresses.clone(),
        draining: false,
    }
}
