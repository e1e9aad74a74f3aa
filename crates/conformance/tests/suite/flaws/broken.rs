//! The local provider with one planted flaw.
//!
//! ```text
//!  case ──► Broken ──(references, specs, settings …: edited)──► LocalProvider ──► LocalCloud
//!       ◄────────────(answers, plans, errors …: edited)───────◄
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use async_trait::async_trait;
use bowline_cloud::{
    Applied, Capabilities, CloudProvider, ClusterSnapshot, Endpoint, Error, ErrorKind, Facts, Identity, InstancePage,
    Instances, LoadBalancers, LoopPlan, OneRoutePerCall, PageToken, ProviderInfo, ProviderLoop, Result, Routes,
    SecretData, SecretRef, Webhook,
};
use bowline_core::annotations::{FieldError, LoadBalancerSettings};
use bowline_core::{
    ClusterName, DesiredLoadBalancer, Instance, InstanceRef, InstanceState, IpFamily, LoadBalancerKey,
    LoadBalancerSpec, LoadBalancerState, Opaque, Operation, Plan, Progress, ProviderId, Route, RouteSpec, Step,
};
use bowline_local::{Balancer, Config, LocalCloud, LocalProvider, NewBalancer};
use futures::future::BoxFuture;
use ipnet::IpNet;

use crate::flaws::loops::BrokenLoop;
use crate::flaws::webhooks::{Hook, endpoint};

/// A planted flaw, and the cases that must catch it.
pub(crate) struct Flaw {
    pub(crate) name: &'static str,
    pub(crate) cases: &'static [&'static str],
    pub(crate) breaks: &'static [Break],
}

/// Return value of `find`.
pub(crate) type Answers = Vec<Result<InstanceState>>;

/// Return value of `create` for a batch of routes.
pub(crate) type Created = Vec<Result<Route>>;

/// Return value of `observe`.
pub(crate) type States = Vec<Result<Option<LoadBalancerState>>>;

/// Change of behaviour. Variants that return a future replace the call, and may make the real one themselves.
pub(crate) enum Break {
    /// Changes the configuration.
    Config(fn(&mut Config)),
    /// Changes the claimed capabilities.
    Claims(fn(&mut Capabilities)),
    /// Changes every error of every call.
    Error(fn(Error) -> Error),
    Start(for<'a> fn(&'a Broken) -> BoxFuture<'a, Result<Facts>>),
    Check(for<'a> fn(&'a Broken) -> BoxFuture<'a, Result<()>>),
    /// Changes every reference to a machine.
    Reference(fn(&mut InstanceRef)),
    Identity(fn(&InstanceRef, Identity) -> Identity),
    Find(for<'a> fn(&'a Broken, &'a [InstanceRef]) -> BoxFuture<'a, Answers>),
    /// Changes every answer about a machine.
    Found(fn(&InstanceRef, Result<InstanceState>) -> Result<InstanceState>),
    /// Changes every machine that is found or listed.
    Instance(fn(&mut Instance)),
    List(for<'a> fn(&'a Broken, Option<&'a PageToken>) -> BoxFuture<'a, Result<InstancePage>>),
    Assign(for<'a> fn(&'a Broken, &'a InstanceRef, IpNet) -> BoxFuture<'a, Result<()>>),
    Secrets(fn(&mut Vec<SecretRef>)),
    OnSecret(for<'a> fn(&'a Broken, &'a SecretRef, Option<&'a SecretData>) -> BoxFuture<'a, Result<()>>),
    Webhooks(fn(&Broken, &mut Vec<Arc<dyn Webhook>>)),
    Endpoints(fn(&mut Vec<Endpoint>)),
    /// Changes the declared loops.
    Declared(fn(&Broken, &mut Vec<Arc<dyn ProviderLoop>>)),
    PlanLoop(for<'a> fn(&'a Broken, &'a ClusterSnapshot) -> BoxFuture<'a, Result<LoopPlan>>),
    ApplyLoop(for<'a> fn(&'a Broken, &'a Step) -> BoxFuture<'a, Result<()>>),
    /// Changes the key of every load balancer.
    Key(fn(&Broken, &mut LoadBalancerKey)),
    Settings(fn(&Broken, &mut LoadBalancerSettings)),
    Spec(fn(&Broken, &LoadBalancerKey, &mut LoadBalancerSpec)),
    /// Changes the kind of load balancer that a Service requests.
    Kind(fn(Option<&'static str>) -> Option<&'static str>),
    Observe(for<'a> fn(&'a Broken, &'a [DesiredLoadBalancer]) -> BoxFuture<'a, States>),
    Keys(for<'a> fn(&'a Broken, &'a ClusterName) -> BoxFuture<'a, Result<Vec<LoadBalancerKey>>>),
    Owner(fn(&LoadBalancerKey, &DesiredLoadBalancer) -> bool),
    Plan(fn(&Broken, &DesiredLoadBalancer, Option<&LoadBalancerState>, Result<Plan>) -> Result<Plan>),
    Apply(for<'a> fn(&'a Broken, &'a LoadBalancerKey, &'a Step) -> BoxFuture<'a, Result<Applied>>),
    Poll(fn(Result<Progress>) -> Result<Progress>),
    /// Changes every route that is created.
    Wanted(fn(&mut RouteSpec)),
    /// Changes every route that is returned.
    Route(fn(&Broken, &mut Route)),
    Table(for<'a> fn(&'a Broken, &'a ClusterName) -> BoxFuture<'a, Result<Vec<Route>>>),
    Create(for<'a> fn(&'a Broken, &'a ClusterName, &'a RouteSpec) -> BoxFuture<'a, Result<Route>>),
    /// Replaces the creation of a whole batch.
    CreateAll(for<'a> fn(&'a Broken, &'a ClusterName, &'a [RouteSpec]) -> BoxFuture<'a, Created>),
    Delete(for<'a> fn(&'a Broken, &'a ClusterName, &'a Route) -> BoxFuture<'a, Result<()>>),
    Lock(fn(&Broken, &ClusterName) -> Option<String>),
}

/// Hook of this kind, if the flaw has one.
macro_rules! hook {
    ($flaw:expr, $kind:ident) => {
        $flaw.breaks.iter().find_map(|broken| match broken {
            Break::$kind(hook) => Some(*hook),
            _ => None,
        })
    };
}

/// Makes the real call, unless the flaw replaces it.
macro_rules! call {
    ($broken:ident, $kind:ident($($arg:expr),*), $real:expr) => {
        match hook!($broken.flaw, $kind) {
            Some(hook) => hook($broken, $($arg),*).await,
            None => $real.await,
        }
    };
}

/// Declares flaws: name, cases that must fail, changes of behaviour.
macro_rules! flaws {
    ($($name:literal, [$($case:ident)+], $($break:expr),+;)*) => {
        pub(crate) static FLAWS: &[Flaw] =
            &[$(Flaw { name: $name, cases: &[$(stringify!($case)),+], breaks: &[$($break),+] }),*];
    };
}

/// Async hook.
macro_rules! later {
    (|$($arg:ident),*| $body:block) => { |$($arg),*| Box::pin(async move $body) };
}

pub(crate) use {call, flaws, hook, later};

/// State of a process, which a restart loses.
#[derive(Default)]
pub(crate) struct Memory {
    /// Names of created resources.
    pub(crate) created: BTreeSet<String>,
    /// The last desired state of each Service.
    pub(crate) wanted: BTreeMap<String, DesiredLoadBalancer>,
    pub(crate) in_progress: usize,
    pub(crate) starts: u64,
}

pub(crate) struct Broken {
    pub(crate) flaw: &'static Flaw,
    pub(crate) cloud: LocalCloud,
    real: LocalProvider,
    capabilities: Capabilities,
    memory: Mutex<Memory>,
    /// Reference for its loops, which outlive a borrow.
    me: Weak<Broken>,
}

impl Flaw {
    /// Configuration of the real provider.
    pub(crate) fn config(&self, mut config: Config) -> Config {
        if let Some(edit) = hook!(self, Config) {
            edit(&mut config);
        }
        config
    }
}

impl Broken {
    pub(crate) fn new(flaw: &'static Flaw, real: LocalProvider, cloud: LocalCloud) -> Arc<Broken> {
        let mut capabilities = real.capabilities().clone();
        if let Some(edit) = hook!(flaw, Claims) {
            edit(&mut capabilities);
        }
        Arc::new_cyclic(|me| Broken { flaw, cloud, real, capabilities, memory: Mutex::default(), me: me.clone() })
    }

    pub(crate) fn machines(&self) -> &dyn Instances {
        &self.real
    }

    pub(crate) fn balancers(&self) -> &dyn LoadBalancers {
        self.real.load_balancers().unwrap()
    }

    pub(crate) fn routes(&self) -> &dyn OneRoutePerCall {
        &self.real
    }

    /// Only loop of the real provider.
    pub(crate) fn tags(&self) -> Arc<dyn ProviderLoop> {
        self.real.loops().remove(0)
    }

    /// Delivers a Secret to the real provider.
    pub(crate) async fn deliver(&self, secret: &SecretRef, data: Option<&SecretData>) -> Result<()> {
        self.real.on_secret(secret, data).await
    }

    pub(crate) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap()
    }

    /// Makes a call to the cloud without effect.
    pub(crate) async fn call(&self) -> Result<()> {
        self.real.check().await
    }

    /// Load balancer of the cloud with this key.
    pub(crate) fn balancer(&self, key: &LoadBalancerKey) -> Option<Balancer> {
        self.cloud.balancers().into_iter().find(|balancer| balancer.owner.as_ref() == Some(key))
    }

    /// Desired state of the last plan for this Service.
    pub(crate) fn last(&self, key: &LoadBalancerKey) -> Option<DesiredLoadBalancer> {
        self.memory().wanted.get(&key.uid).cloned()
    }

    /// Leaves an unmarked load balancer in the cloud.
    pub(crate) fn leave(&self) {
        let name = format!("left-{}", self.cloud.balancers().len());
        self.cloud
            .add_balancer(NewBalancer { name, families: vec![IpFamily::IPv4], ..NewBalancer::default() })
            .unwrap();
    }

    pub(crate) fn error<T>(&self, answer: Result<T>) -> Result<T> {
        answer.map_err(|error| hook!(self.flaw, Error).map_or(error.clone(), |edit| edit(error)))
    }

    /// Reference as the real provider gets it, which knows only IDs without a leading slash.
    fn reference(&self, reference: &InstanceRef) -> InstanceRef {
        let mut reference = reference.clone();
        if let Some(edit) = hook!(self.flaw, Reference) {
            edit(&mut reference);
            return reference;
        }
        let spelled = reference.provider_id.as_ref().and_then(|id| Some((id.prefix()?, id.rest()?.strip_prefix('/')?)));
        if let Some((prefix, id)) = spelled.filter(|(_, id)| !id.is_empty()) {
            reference.provider_id = Some(ProviderId::of(prefix, id));
        }
        reference
    }

    fn state(&self, state: InstanceState) -> InstanceState {
        let Some(edit) = hook!(self.flaw, Instance) else { return state };
        let edited = |instance: &Arc<Instance>| {
            let mut instance = Instance::clone(instance);
            edit(&mut instance);
            Arc::new(instance)
        };
        match &state {
            InstanceState::Running(instance) => InstanceState::Running(edited(instance)),
            InstanceState::Stopped(instance) => InstanceState::Stopped(edited(instance)),
            _ => state,
        }
    }

    fn key(&self, key: &LoadBalancerKey) -> LoadBalancerKey {
        let mut key = key.clone();
        if let Some(edit) = hook!(self.flaw, Key) {
            edit(self, &mut key);
        }
        key
    }

    /// Desired state as the real provider gets it.
    fn desired(&self, desired: &DesiredLoadBalancer) -> DesiredLoadBalancer {
        let mut desired = DesiredLoadBalancer { key: self.key(&desired.key), ..desired.clone() };
        if let Some(edit) = hook!(self.flaw, Settings) {
            edit(self, Arc::make_mut(&mut desired.settings));
        }
        if let (Some(edit), Some(spec)) = (hook!(self.flaw, Spec), &mut desired.spec) {
            edit(self, &desired.key, Arc::make_mut(spec));
        }
        desired
    }

    pub(crate) async fn create_each(&self, cluster: &ClusterName, specs: &[RouteSpec]) -> Vec<Result<Route>> {
        let mut answers = Vec::new();
        for spec in specs {
            let mut spec = spec.clone();
            if let Some(edit) = hook!(self.flaw, Wanted) {
                edit(&mut spec);
            }
            answers.push(call!(self, Create(cluster, &spec), self.routes().create_route(cluster, &spec)));
        }
        answers
    }

    fn route(&self, mut route: Route) -> Route {
        if let Some(edit) = hook!(self.flaw, Route) {
            edit(self, &mut route);
        }
        route
    }
}

#[async_trait]
impl CloudProvider for Broken {
    fn info(&self) -> &ProviderInfo {
        self.real.info()
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn instances(&self) -> Option<&dyn Instances> {
        self.real.instances().map(|_| self as &dyn Instances)
    }

    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        self.real.load_balancers().map(|_| self as &dyn LoadBalancers)
    }

    fn routes(&self) -> Option<&dyn Routes> {
        self.real.routes().map(|_| self as &dyn Routes)
    }

    fn secrets(&self) -> Vec<SecretRef> {
        let mut secrets = self.real.secrets();
        if let Some(edit) = hook!(self.flaw, Secrets) {
            edit(&mut secrets);
        }
        secrets
    }

    async fn on_secret(&self, secret: &SecretRef, data: Option<&SecretData>) -> Result<()> {
        call!(self, OnSecret(secret, data), self.deliver(secret, data))
    }

    fn webhooks(&self) -> Vec<Arc<dyn Webhook>> {
        let mut webhooks = vec![Hook::correct()];
        hook!(self.flaw, Webhooks).inspect(|edit| edit(self, &mut webhooks));
        webhooks
    }

    fn endpoints(&self) -> Vec<Endpoint> {
        let mut endpoints = vec![endpoint()];
        hook!(self.flaw, Endpoints).inspect(|edit| edit(&mut endpoints));
        endpoints
    }

    fn loops(&self) -> Vec<Arc<dyn ProviderLoop>> {
        let around = |real| Arc::new(BrokenLoop { broken: self.me.upgrade().unwrap(), real }) as Arc<dyn ProviderLoop>;
        let mut loops = self.real.loops().into_iter().map(around).collect();
        if let Some(edit) = hook!(self.flaw, Declared) {
            edit(self, &mut loops);
        }
        loops
    }

    async fn start(&self) -> Result<Facts> {
        call!(self, Start(), self.real.start())
    }

    async fn check(&self) -> Result<()> {
        let checked = call!(self, Check(), self.call());
        self.error(checked)
    }
}

#[async_trait]
impl Instances for Broken {
    async fn find(&self, reference: &[InstanceRef]) -> Vec<Result<InstanceState>> {
        let reference: Vec<_> = reference.iter().map(|reference| self.reference(reference)).collect();
        let answers = call!(self, Find(&reference), self.machines().find(&reference));
        let mut reference = reference.into_iter();
        let edited = |answer| {
            let answer = match (hook!(self.flaw, Found), reference.next()) {
                (Some(edit), Some(reference)) => edit(&reference, answer),
                _ => answer,
            };
            self.error(answer).map(|state| self.state(state))
        };
        answers.into_iter().map(edited).collect()
    }

    async fn list(&self, page: Option<&PageToken>) -> Result<InstancePage> {
        let listed = call!(self, List(page), self.machines().list(page));
        let mut page = self.error(listed)?;
        page.instances = page.instances.into_iter().map(|state| self.state(state)).collect();
        Ok(page)
    }

    async fn assign_pod_cidrs(&self, reference: &InstanceRef, range: IpNet) -> Result<()> {
        let assigned = call!(self, Assign(reference, range), self.machines().assign_pod_cidrs(reference, range));
        self.error(assigned)
    }

    fn identify(&self, reference: &InstanceRef) -> Result<Identity> {
        let identity = self.machines().identify(&self.reference(reference));
        identity.map(|identity| hook!(self.flaw, Identity).map_or(identity.clone(), |edit| edit(reference, identity)))
    }
}

#[async_trait]
impl LoadBalancers for Broken {
    fn settings(
        &self,
        annotations: &BTreeMap<String, String>,
        common: LoadBalancerSettings,
    ) -> std::result::Result<LoadBalancerSettings, Vec<FieldError>> {
        self.balancers().settings(annotations, common)
    }

    fn kind(&self, desired: &DesiredLoadBalancer) -> Option<&'static str> {
        let kind = self.balancers().kind(desired);
        hook!(self.flaw, Kind).map_or(kind, |edit| edit(kind))
    }

    async fn observe(&self, wanted: &[DesiredLoadBalancer]) -> Vec<Result<Option<LoadBalancerState>>> {
        let wanted: Vec<_> = wanted.iter().map(|desired| self.desired(desired)).collect();
        let states = call!(self, Observe(&wanted), self.balancers().observe(&wanted));
        states.into_iter().map(|state| self.error(state)).collect()
    }

    async fn list(&self, cluster: &ClusterName) -> Result<Vec<LoadBalancerKey>> {
        self.error(call!(self, Keys(cluster), self.balancers().list(cluster)))
    }

    fn is_owner(&self, listed: &LoadBalancerKey, desired: &DesiredLoadBalancer) -> bool {
        hook!(self.flaw, Owner)
            .map_or_else(|| self.balancers().is_owner(listed, desired), |is_owner| is_owner(listed, desired))
    }

    fn plan(&self, desired: &DesiredLoadBalancer, state: Option<&LoadBalancerState>) -> Result<Plan> {
        let desired = self.desired(desired);
        let plan = self.balancers().plan(&desired, state);
        let plan = match hook!(self.flaw, Plan) {
            Some(edit) => edit(self, &desired, state, plan),
            None => plan,
        };
        if desired.spec.is_some() {
            self.memory().wanted.insert(desired.key.uid.clone(), desired);
        }
        self.error(plan)
    }

    async fn apply(&self, key: &LoadBalancerKey, step: &Step, polled: Option<&Opaque>) -> Result<Applied> {
        let key = self.key(key);
        self.error(call!(self, Apply(&key, step), self.balancers().apply(&key, step, polled)))
    }

    async fn poll(&self, key: &LoadBalancerKey, operation: &Operation) -> Result<Progress> {
        let progress = self.balancers().poll(&self.key(key), operation).await;
        self.error(match hook!(self.flaw, Poll) {
            Some(edit) => edit(progress),
            None => progress,
        })
    }
}

#[async_trait]
impl Routes for Broken {
    async fn list(&self, cluster: &ClusterName) -> Result<Vec<Route>> {
        let listed = self.error(call!(self, Table(cluster), self.routes().list_routes(cluster)));
        Ok(listed?.into_iter().map(|route| self.route(route)).collect())
    }

    async fn create(&self, cluster: &ClusterName, specs: &[RouteSpec]) -> Vec<Result<Route>> {
        let created = call!(self, CreateAll(cluster, specs), self.create_each(cluster, specs));
        created.into_iter().map(|route| self.error(route).map(|route| self.route(route))).collect()
    }

    async fn delete(&self, cluster: &ClusterName, routes: &[Route]) -> Vec<Result<()>> {
        let mut answers = Vec::new();
        for route in routes {
            answers.push(self.error(call!(self, Delete(cluster, route), self.routes().delete_route(cluster, route))));
        }
        answers
    }

    fn lock(&self, cluster: &ClusterName) -> Option<String> {
        hook!(self.flaw, Lock).map_or_else(|| self.routes().route_lock(cluster), |lock| lock(self, cluster))
    }
}

/// Error of the broken provider.
pub(crate) fn fails<T>(kind: ErrorKind) -> Result<T> {
    Err(Error::new(kind, "flaw", "broken on purpose"))
}
