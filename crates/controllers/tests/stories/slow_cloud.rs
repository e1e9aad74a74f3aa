//! Slow cloud: each change keeps the load balancer busy for a while, and calls return a retry delay meanwhile. The cloud identifies
//! load balancers by name, returns annotations and warnings, and may reject best-effort steps.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use bowline_cloud::{
    Applied, Capabilities, CloudProvider, Error, ErrorKind, Instances, LoadBalancers, ProviderInfo, Result, Retry,
};
use bowline_core::annotations::{FieldError, LoadBalancerSettings, NodeSelector};
use bowline_core::{
    ClusterName, DesiredLoadBalancer, Ingress, LoadBalancerKey, LoadBalancerState, LoadBalancerStatus, Opaque, Plan,
    Step, Verb, Warning,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::world::World;

/// Annotation with the ID of the Service's load balancer, written by the cloud.
pub(crate) const ID: &str = "shipyard.example/id";
/// Annotation with a node selector.
pub(crate) const NODES: &str = "shipyard.example/nodes";
/// Annotation with a warning for the plan.
pub(crate) const WARNING: &str = "shipyard.example/warning";
/// Annotation with a lock of the plan: Services with the same value share a resource.
pub(crate) const BERTH: &str = "shipyard.example/berth";
/// Retry delay while a change is in progress.
const RETRY: Duration = Duration::from_secs(2);

/// The cloud, which outlives the managers of a story.
#[derive(Default)]
pub(crate) struct SlowCloud(Mutex<Inner>);

#[derive(Default)]
pub(crate) struct Inner {
    /// By namespace and name.
    pub(crate) ships: BTreeMap<(String, String), Ship>,
    launched: u32,
    /// Duration of a change.
    pub(crate) takes: Duration,
    /// Annotations are returned by observations only, not by the create step.
    pub(crate) notes_late: bool,
    /// Duration of a call.
    pub(crate) call_takes: Duration,
    /// Errors by kind of step.
    pub(crate) errors: BTreeMap<&'static str, Error>,
    pub(crate) observed: usize,
    pub(crate) applied: Vec<String>,
    pub(crate) written: Vec<String>,
}

/// Load balancer.
#[derive(Default)]
pub(crate) struct Ship {
    pub(crate) id: String,
    has: Vec<String>,
    pub(crate) crew: String,
    busy_until: Option<Instant>,
}

/// Provider for one manager.
struct Provider {
    inner: Arc<dyn CloudProvider>,
    capabilities: Capabilities,
    cloud: Arc<SlowCloud>,
}

fn place(key: &LoadBalancerKey) -> (String, String) {
    (key.namespace.clone(), key.service.clone())
}

fn step(verb: Verb, kind: &str, name: &str) -> Step {
    let best_effort = (kind == "flag").then(|| "FlagRefused".to_owned());
    Step { best_effort, ..Step::new(verb, kind, name, Vec::new(), Opaque::default()) }
}

impl SlowCloud {
    /// World whose load balancers are in this cloud, with this duration of a change.
    pub(crate) async fn world(nodes: &[&str], takes: Duration) -> (World, Arc<SlowCloud>) {
        let mut world = World::with_nodes(nodes).await;
        let cloud = Arc::new(SlowCloud::default());
        cloud.inside().takes = takes;
        let shared = cloud.clone();
        world.wrap = Box::new(move |inner| {
            let mut capabilities = inner.capabilities().clone();
            if let Some(balancers) = &mut capabilities.load_balancers {
                (balancers.marks_uid, balancers.batch_observe) = (false, 1);
            }
            Arc::new(Provider { inner, capabilities, cloud: shared.clone() })
        });
        (world, cloud)
    }

    pub(crate) fn inside(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    /// Number of observations and of writes so far.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let inside = self.inside();
        (inside.observed, inside.written.len())
    }

    /// ID of each load balancer.
    pub(crate) fn ids(&self) -> Vec<String> {
        self.inside().ships.values().map(|ship| ship.id.clone()).collect()
    }
}

impl Inner {
    fn state(&self, desired: &DesiredLoadBalancer) -> Option<LoadBalancerState> {
        let ship = self.ships.get(&place(&desired.key));
        let busy = ship.is_some_and(|ship| ship.busy_until.is_some_and(|until| until > Instant::now()));
        let has = ship.map(|ship| ship.has.clone()).unwrap_or_default();
        let resources = json!({
            "id": ship.map(|ship| &ship.id), "has": has, "busy": busy, "crew": ship.map(|ship| &ship.crew),
        });
        let ip = has.contains(&"address".to_owned()).then(|| "192.0.2.7".to_owned());
        let ingress = ip.map(|ip| Ingress { ip: Some(ip), ..Ingress::default() }).into_iter().collect();
        let annotations = ship.map(|ship| (ID.to_owned(), ship.id.clone())).into_iter().collect();
        let status = LoadBalancerStatus { ingress };
        // A plan may need state before anything is created.
        let is_current = ship.is_some() || desired.spec.is_some();
        let state = LoadBalancerState::new(status, Opaque::new(resources));
        is_current.then_some(LoadBalancerState { annotations, ..state })
    }

    fn change(&mut self, key: &LoadBalancerKey, step: &Step) -> Result<Applied> {
        if let Some(error) = self.errors.get(step.kind.as_str()) {
            return Err(error.clone());
        }
        self.written.push(format!("{} {}", step.verb, step.kind));
        let busy_until = Some(Instant::now() + self.takes);
        if step.verb == Verb::Delete && step.kind == "ship" {
            self.ships.remove(&place(key));
            return Ok(Applied::Done);
        }
        if step.kind == "ship" {
            self.launched += 1;
            let ship = Ship { id: format!("ship-{}", self.launched), busy_until, ..Ship::default() };
            let id = ship.id.clone();
            self.ships.insert(place(key), ship);
            let notes = [(ID.to_owned(), id)].into();
            return Ok(if self.notes_late { Applied::Done } else { Applied::Annotated(notes) });
        }
        let ship = self.ships.get_mut(&place(key)).expect("the create step comes first");
        ship.busy_until = busy_until;
        match (step.verb, step.kind.as_str()) {
            (Verb::Delete, kind) => ship.has.retain(|has| has != kind),
            (_, "crew") => ship.crew.clone_from(&step.name),
            (_, kind) => ship.has.push(kind.to_owned()),
        }
        Ok(Applied::Done)
    }
}

#[async_trait]
impl CloudProvider for Provider {
    fn info(&self) -> &ProviderInfo {
        self.inner.info()
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn instances(&self) -> Option<&dyn Instances> {
        self.inner.instances()
    }

    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        Some(self)
    }

    fn event_component(&self) -> Option<&'static str> {
        Some("shipyard")
    }

    async fn check(&self) -> Result<()> {
        Ok(())
    }
}

#[async_trait]
impl LoadBalancers for Provider {
    fn settings(
        &self,
        annotations: &BTreeMap<String, String>,
        mut common: LoadBalancerSettings,
    ) -> std::result::Result<LoadBalancerSettings, Vec<FieldError>> {
        let Some(nodes) = annotations.get(NODES) else { return Ok(common) };
        let invalid = |message: String| vec![FieldError { field: NODES.to_owned(), message }];
        common.target_nodes = Some(NodeSelector::parse(nodes).map_err(invalid)?);
        Ok(common)
    }

    async fn observe(&self, wanted: &[DesiredLoadBalancer]) -> Vec<Result<Option<LoadBalancerState>>> {
        let mut inside = self.cloud.inside();
        inside.observed += wanted.len();
        wanted.iter().map(|desired| Ok(inside.state(desired))).collect()
    }

    async fn list(&self, _: &ClusterName) -> Result<Vec<LoadBalancerKey>> {
        Ok(Vec::new())
    }

    fn plan(&self, desired: &DesiredLoadBalancer, state: Option<&LoadBalancerState>) -> Result<Plan> {
        let Some(state) = state else { return Ok(Plan::default()) };
        let seen: &Value = state.resources.get().expect("its own state");
        if seen["busy"] == true {
            return Err(at_work());
        }
        let locks = desired.annotations.get(BERTH).cloned().into_iter().collect();
        let (id, noted) = (seen["id"].as_str(), desired.annotations.get(ID));
        let has = |kind: &str| seen["has"].as_array().unwrap().iter().any(|has| has == kind);
        let Some(spec) = &desired.spec else {
            let parts = ["flag", "address"].into_iter().filter(|kind| has(kind)).chain(id.map(|_| "ship"));
            return Ok(Plan { locks, ..Plan::of(parts.map(|kind| step(Verb::Delete, kind, "it")).collect()) });
        };
        if noted.is_some_and(|noted| Some(noted.as_str()) != id) {
            return Err(Error::new(ErrorKind::InvalidConfig, "plan", format!("there is no {noted:?}")));
        }
        let mut crew: Vec<String> = spec.targets.iter().map(|target| target.node.to_string()).collect();
        crew.sort();
        let (crew, ports) = (crew.join("+"), spec.ports.len());
        let mut steps: Vec<Step> = id.is_none().then(|| step(Verb::Create, "ship", "it")).into_iter().collect();
        steps.extend(
            (seen["crew"] != format!("{crew}:{ports}").as_str())
                .then(|| step(Verb::Update, "crew", &format!("{crew}:{ports}"))),
        );
        steps.extend(
            ["address", "flag"].into_iter().filter(|kind| !has(kind)).map(|kind| step(Verb::Create, kind, "it")),
        );
        let warning = |message: &String| Warning { reason: "ShipWarning".to_owned(), message: message.clone() };
        let warnings = desired.annotations.get(WARNING).map(warning).into_iter().collect();
        Ok(Plan { warnings, locks, ..Plan::of(steps) })
    }

    async fn apply(&self, key: &LoadBalancerKey, step: &Step, _: Option<&Opaque>) -> Result<Applied> {
        let call_takes = self.cloud.inside().call_takes;
        tokio::time::sleep(call_takes).await;
        let mut inside = self.cloud.inside();
        inside.applied.push(step.kind.clone());
        let busy = inside.ships.get(&place(key)).and_then(|ship| ship.busy_until);
        if busy.is_some_and(|until| until > Instant::now()) {
            return Err(at_work());
        }
        inside.change(key, step)
    }
}

fn at_work() -> Error {
    Error::new(ErrorKind::InProgress, "change", "a change is in progress").retry(Retry::After(RETRY))
}
