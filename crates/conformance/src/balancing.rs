//! What a case about balancers works with: a driver that does what the controller does, and looks at the cloud itself.
//!
//! ```text
//!  check what is wished ──► observe ──► plan ──► empty? ──► done
//!                              ▲         │ steps
//!                 settle ◄─────┤         ▼
//!            (InProgress)      └──── apply, one by one ──► settle (InProgress), and the same step again
//! ```

mod looks;
mod wishes;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bowline_cloud::layers::capability::{check_load_balancer, requested_kind};
use bowline_cloud::{
    Applied, CloudProvider, Error, ErrorKind, LoadBalancerCapabilities, LoadBalancerKind, LoadBalancers,
    Result as Answer,
};
use bowline_core::{
    Address, AddressType, Instance, LoadBalancerState, LoadBalancerWish, NodeName, Plan, Step, TargetNode,
};

use crate::bench::{BalancerBench, Hand, WantedMachine};
use crate::scene::{Scene, Stop, Verdict, broken, require};

pub(crate) use looks::Shape;
pub(crate) use wishes::{annotated, change, gone, key, local, port, range, set};

/// A provider that is not done after so many rounds never will be.
const ROUNDS: usize = 60;

/// A bench in use by a case about balancers.
pub(crate) struct Balancing<'a> {
    scene: &'a Scene,
    hands: &'a dyn BalancerBench,
    provider: Arc<dyn CloudProvider>,
    /// The ID of each machine, by the name of its node.
    machines: Mutex<BTreeMap<NodeName, String>>,
}

/// A cloud that is still at work on the same thing after so many looks is at work on nothing.
const LOOKS: usize = 20;

/// What a round came to.
enum Round {
    /// There was nothing to do.
    Empty(Option<LoadBalancerState>),
    /// This was done, and it has to be looked again.
    Worked(Plan),
}

/// How far a driver goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Steps(pub(crate) usize);

impl<'a> Balancing<'a> {
    pub(crate) fn of(scene: &'a Scene) -> Verdict<Balancing<'a>> {
        let Some(hands) = scene.bench().balancers() else {
            return Err(Stop::BenchCannot("look at balancers".to_owned()));
        };
        Ok(Balancing { scene, hands, provider: scene.bench().provider(), machines: Mutex::default() })
    }

    pub(crate) fn hands(&self) -> &dyn BalancerBench {
        self.hands
    }

    pub(crate) fn scene(&self) -> &Scene {
        self.scene
    }

    pub(crate) fn group(&self) -> Verdict<&LoadBalancerCapabilities> {
        let caps = self.provider.capabilities().load_balancers.as_ref();
        caps.map_or_else(|| broken("it has no capabilities for load balancers any more"), Ok)
    }

    /// Capabilities of the kind of load balancer that the case is about.
    pub(crate) fn caps(&self) -> Verdict<&LoadBalancerKind> {
        let kind = self.group()?.kind(self.scene.kind());
        kind.map_or_else(|| broken(format!("it has no load balancers of kind {:?} any more", self.scene.kind())), Ok)
    }

    pub(crate) fn provider(&self) -> Verdict<&dyn LoadBalancers> {
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
    pub(crate) fn check(&self, wish: &LoadBalancerWish) -> Verdict<Answer<()>> {
        let name = &self.provider.info().name;
        Ok(self.requested_kind(wish)?.and_then(|kind| check_load_balancer(name, wish, kind)))
    }

    /// The kind of load balancer that this Service requests.
    pub(crate) fn requested_kind(&self, wish: &LoadBalancerWish) -> Verdict<Answer<&LoadBalancerKind>> {
        Ok(requested_kind(&self.provider.info().name, self.provider()?, wish, self.group()?))
    }

    /// Looks at one.
    pub(crate) async fn observe(&self, wish: &LoadBalancerWish) -> Verdict<Answer<Option<LoadBalancerState>>> {
        let mut answers = self.provider()?.observe(std::slice::from_ref(wish)).await;
        require(answers.len() == 1, || format!("{} answers to one wish", answers.len()))?;
        answers.pop().map_or_else(|| broken("no answer"), Ok)
    }

    /// Looks at one, in a sound cloud.
    pub(crate) async fn state(&self, wish: &LoadBalancerWish) -> Verdict<Option<LoadBalancerState>> {
        self.observe(wish).await?.or_else(|error| broken(format!("an error from a sound cloud: {error}")))
    }

    /// Looks and plans, in a sound cloud that is at rest.
    pub(crate) async fn plan(&self, wish: &LoadBalancerWish) -> Verdict<Plan> {
        let mut last = None;
        for _ in 0..LOOKS {
            let state = self.state(wish).await?;
            match self.provider()?.plan(wish, state.as_ref()) {
                Ok(plan) => return Ok(plan),
                Err(error) if error.kind() == ErrorKind::InProgress => self.hands.settle().await,
                Err(error) => return broken(format!("no plan in a sound cloud: {error}")),
            }
            last = Some(state);
        }
        broken(format!("after {LOOKS} looks the cloud is still at work: {last:?}"))
    }

    /// Does what the controller does until there is nothing left to do; an error ends it.
    pub(crate) async fn attempt(&self, wish: &LoadBalancerWish) -> Verdict<Answer<Option<LoadBalancerState>>> {
        if let Err(error) = self.check(wish)? {
            return Ok(Err(error));
        }
        let (mut last, mut refused) = (Plan::default(), Vec::new());
        for _ in 0..ROUNDS {
            match self.round(wish, &mut refused).await? {
                Ok(Round::Empty(state)) => return Ok(Ok(state)),
                // The same again: what was done is not shown yet, and the controller would come back later.
                Ok(Round::Worked(plan)) if plan == last => self.hands.settle().await,
                Ok(Round::Worked(plan)) => last = plan,
                Err(error) if error.kind() == ErrorKind::InProgress => self.hands.settle().await,
                // Somebody changed it meanwhile: look again.
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                Err(error) => return Ok(Err(error)),
            }
        }
        broken(format!("after {ROUNDS} rounds there is still something to do: {last}"))
    }

    async fn round(&self, wish: &LoadBalancerWish, refused: &mut Vec<Step>) -> Verdict<Answer<Round>> {
        let state = match self.observe(wish).await? {
            Ok(state) => state,
            Err(error) => return Ok(Err(error)),
        };
        let mut plan = match self.provider()?.plan(wish, state.as_ref()) {
            Ok(plan) => plan,
            Err(error) => return Ok(Err(error)),
        };
        plan.steps.retain(|step| !refused.contains(step));
        if plan.is_empty() {
            return Ok(Ok(Round::Empty(state)));
        }
        for step in &plan.steps {
            match self.apply(wish, step).await {
                Ok(_) => {}
                Err(error) if error.leaves_out(step) => refused.push(step.clone()),
                Err(error) => return Ok(Err(error)),
            }
        }
        if let Some(problem) = plan.problems.first() {
            return Ok(Err(problem.clone().into()));
        }
        Ok(Ok(Round::Worked(plan)))
    }

    /// Does what the controller does, in a sound cloud.
    pub(crate) async fn converge(&self, wish: &LoadBalancerWish) -> Verdict<Option<LoadBalancerState>> {
        self.attempt(wish).await?.or_else(|error| broken(format!("an error from a sound cloud: {error}")))
    }

    /// Makes it so, and finds it so in the cloud.
    pub(crate) async fn fulfil(&self, wish: &LoadBalancerWish) -> Verdict<LoadBalancerState> {
        let state = self.converge(wish).await?;
        self.hands.settle().await;
        let Some(state) = state else { return broken("it is done, and there is nothing") };
        self.is_as_wished(wish, &state).await?;
        Ok(state)
    }

    /// Removes it, and finds nothing of it in the cloud.
    pub(crate) async fn remove(&self, wish: &LoadBalancerWish) -> Verdict {
        let state = self.converge(&gone(wish)).await?;
        self.hands.settle().await;
        require(state.is_none(), || format!("it is removed, and there is still {state:?}"))?;
        let left = self.owned(&wish.key).await;
        require(left.is_empty(), || format!("it is removed, and this is left: {left:?}"))
    }

    /// Carries out at most so many steps; `true` if there were no more.
    pub(crate) async fn go(&self, wish: &LoadBalancerWish, Steps(most): Steps) -> Verdict<bool> {
        let (mut done, mut refused) = (0, Vec::new());
        for _ in 0..ROUNDS {
            let mut plan = self.plan(wish).await?;
            plan.steps.retain(|step| !refused.contains(step));
            if plan.is_empty() {
                return Ok(true);
            }
            for step in plan.steps {
                if done == most {
                    return Ok(false);
                }
                done += 1;
                match self.apply(wish, &step).await {
                    Err(error) if error.leaves_out(&step) => refused.push(step),
                    Err(error) => return broken(format!("an error from a sound cloud: {error}")),
                    Ok(_) => {}
                }
            }
        }
        broken(format!("after {ROUNDS} rounds there is still something to do"))
    }

    /// Carries out one step; while the cloud is at work, it comes again, as it does from the controller.
    pub(crate) async fn apply(&self, wish: &LoadBalancerWish, step: &Step) -> Answer<Applied> {
        for _ in 1..LOOKS {
            match self.apply_once(wish, step).await {
                Err(error) if error.kind() == ErrorKind::InProgress => self.hands.settle().await,
                applied => return applied,
            }
        }
        self.apply_once(wish, step).await
    }

    /// Carries out one step, if the cloud does so at once.
    pub(crate) async fn apply_once(&self, wish: &LoadBalancerWish, step: &Step) -> Answer<Applied> {
        let missing = || Error::new(ErrorKind::Unsupported, "apply", "it hands out no LoadBalancers");
        self.provider.load_balancers().ok_or_else(missing)?.apply(&wish.key, step, None).await
    }

    /// Carries out all that is planned, in a sound cloud; what is noted on the way.
    pub(crate) async fn noting(&self, wish: &LoadBalancerWish) -> Verdict<BTreeMap<String, String>> {
        let mut notes = BTreeMap::new();
        for step in self.plan(wish).await?.steps {
            match self.apply(wish, &step).await {
                Ok(Applied::Noted(annotations)) => notes.extend(annotations),
                Ok(_) => {}
                Err(error) if error.leaves_out(&step) => {}
                Err(error) => return broken(format!("an error from a sound cloud: {error}")),
            }
        }
        Ok(notes)
    }

    /// Writing calls so far.
    pub(crate) async fn writes(&self) -> Verdict<u64> {
        let writes = self.hands.writes().await;
        writes.ok_or_else(|| Stop::BenchCannot("count writes".to_owned()))
    }

    /// Calls so far.
    pub(crate) async fn calls(&self) -> Verdict<u64> {
        let calls = self.scene.calls().await;
        calls.ok_or_else(|| Stop::BenchCannot("count calls".to_owned()))
    }

    /// Looks and plans: there is nothing to do, and nothing is written.
    pub(crate) async fn rests(&self, wish: &LoadBalancerWish) -> Verdict {
        let before = self.writes().await?;
        let plan = self.plan(wish).await?;
        require(plan.is_empty(), || format!("all is done, and this is planned: {plan}"))?;
        let written = self.writes().await? - before;
        require(written == 0, || format!("{written} writes only to look and to plan"))
    }
}

/// Whether the bench has brought it about; `false` if that never happens in its cloud.
pub(crate) fn happens(hand: Hand, what: &str) -> Verdict<bool> {
    match hand {
        Hand::Done => Ok(true),
        Hand::Never => Ok(false),
        Hand::Cannot => Err(Stop::BenchCannot(what.to_owned())),
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
