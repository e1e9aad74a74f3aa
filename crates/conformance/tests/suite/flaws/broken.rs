//! The local provider with one thing broken.
//!
//! ```text
//!  case ──► Broken ──(question, spec, settings …: edited on the way in)──► LocalProvider ──► LocalCloud
//!       ◄────────────(answers, plans, errors …: edited on the way out)───◄
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use async_trait::async_trait;
use bowline_cloud::{
    Applied, Capabilities, CloudProvider, ClusterSnapshot, Error, ErrorKind, Facts, Identity, InstancePage, Instances,
    LoadBalancers, LoopOutcome, OneRoutePerCall, PageToken, ProviderInfo, ProviderLoop, Result, Routes, SecretData,
    SecretRef,
};
use bowline_core::annotations::{LoadBalancerSettings, Mistake};
use bowline_core::{
    ClusterName, DesiredLoadBalancer, Instance, InstanceRef, InstanceState, IpFamily, LoadBalancerKey,
    LoadBalancerSpec, LoadBalancerState, Opaque, Operation, Plan, Progress, ProviderId, Route, RouteSpec, Step,
};
use bowline_local::{Balancer, Config, LocalCloud, LocalProvider, NewBalancer};
use futures::future::BoxFuture;
use ipnet::IpNet;

use crate::flaws::loops::BrokenLoop;

/// A way in which a provider is wrong, and the cases that must notice.
pub(crate) struct Flaw {
    pub(crate) name: &'static str,
    pub(crate) cases: &'static [&'static str],
    pub(crate) breaks: &'static [Break],
}

/// The answers that `find` returns.
pub(crate) type Answers = Vec<Result<InstanceState>>;

/// The answers that `create` returns for a batch of routes.
pub(crate) type Created = Vec<Result<Route>>;

/// The states that `observe` returns.
pub(crate) type States = Vec<Result<Option<LoadBalancerState>>>;

/// One thing that is broken. Those with a future replace the call, and may make the real one themselves.
pub(crate) enum Break {
    /// The provider is configured differently.
    Config(fn(&mut Config)),
    /// It claims something else.
    Claims(fn(&mut Capabilities)),
    /// Every error of every call.
    Error(fn(Error) -> Error),
    Start(for<'a> fn(&'a Broken) -> BoxFuture<'a, Result<Facts>>),
    Check(for<'a> fn(&'a Broken) -> BoxFuture<'a, Result<()>>),
    /// Every question about a machine.
    Asked(fn(&mut InstanceRef)),
    Identity(fn(&InstanceRef, Identity) -> Identity),
    Find(for<'a> fn(&'a Broken, &'a [InstanceRef]) -> BoxFuture<'a, Answers>),
    /// Every answer about a machine.
    Found(fn(&InstanceRef, Result<InstanceState>) -> Result<InstanceState>),
    /// Every machine that is found or listed.
    Instance(fn(&mut Instance)),
    List(for<'a> fn(&'a Broken, Option<&'a PageToken>) -> BoxFuture<'a, Result<InstancePage>>),
    Assign(for<'a> fn(&'a Broken, &'a InstanceRef, IpNet) -> BoxFuture<'a, Result<()>>),
    Secrets(fn(&mut Vec<SecretRef>)),
    OnSecret(for<'a> fn(&'a Broken, &'a SecretRef, Option<&'a SecretData>) -> BoxFuture<'a, Result<()>>),
    /// Every declaration of the loops.
    Declared(fn(&Broken, &mut Vec<Arc<dyn ProviderLoop>>)),
    Sync(for<'a> fn(&'a Broken, &'a ClusterSnapshot) -> BoxFuture<'a, Result<LoopOutcome>>),
    /// The key of every load balancer.
    Key(fn(&Broken, &mut LoadBalancerKey)),
    Settings(fn(&Broken, &mut LoadBalancerSettings)),
    Spec(fn(&Broken, &LoadBalancerKey, &mut LoadBalancerSpec)),
    /// The kind of load balancer that a Service requests.
    Kind(fn(Option<&'static str>) -> Option<&'static str>),
    Observe(for<'a> fn(&'a Broken, &'a [DesiredLoadBalancer]) -> BoxFuture<'a, States>),
    Keys(for<'a> fn(&'a Broken, &'a ClusterName) -> BoxFuture<'a, Result<Vec<LoadBalancerKey>>>),
    Plan(fn(&Broken, &DesiredLoadBalancer, Option<&LoadBalancerState>, Result<Plan>) -> Result<Plan>),
    Apply(for<'a> fn(&'a Broken, &'a LoadBalancerKey, &'a Step) -> BoxFuture<'a, Result<Applied>>),
    Poll(fn(Result<Progress>) -> Result<Progress>),
    /// Every route that is wanted.
    Wanted(fn(&mut RouteSpec)),
    /// Every route that is listed or created.
    Route(fn(&Broken, &mut Route)),
    Table(for<'a> fn(&'a Broken, &'a ClusterName) -> BoxFuture<'a, Result<Vec<Route>>>),
    Create(for<'a> fn(&'a Broken, &'a ClusterName, &'a RouteSpec) -> BoxFuture<'a, Result<Route>>),
    /// A batch as a whole.
    CreateAll(for<'a> fn(&'a Broken, &'a ClusterName, &'a [RouteSpec]) -> BoxFuture<'a, Created>),
    Delete(for<'a> fn(&'a Broken, &'a ClusterName, &'a Route) -> BoxFuture<'a, Result<()>>),
    Lock(fn(&Broken, &ClusterName) -> Option<String>),
}

/// The function of this kind that the flaw has.
macro_rules! hook {
    ($flaw:expr, $kind:ident) => {
        $flaw.breaks.iter().find_map(|broken| match broken {
            Break::$kind(hook) => Some(*hook),
            _ => None,
        })
    };
}

/// The real call, unless the flaw replaces it.
macro_rules! call {
    ($broken:ident, $kind:ident($($arg:expr),*), $real:expr) => {
        match hook!($broken.flaw, $kind) {
            Some(hook) => hook($broken, $($arg),*).await,
            None => $real.await,
        }
    };
}

/// A table of flaws: name, cases that must fail, breaks.
macro_rules! flaws {
    ($($name:literal, [$($case:ident)+], $($break:expr),+;)*) => {
        pub(crate) static FLAWS: &[Flaw] =
            &[$(Flaw { name: $name, cases: &[$(stringify!($case)),+], breaks: &[$($break),+] }),*];
    };
}

/// A hook that waits.
macro_rules! later {
    (|$($arg:ident),*| $body:block) => { |$($arg),*| Box::pin(async move $body) };
}

pub(crate) use {call, flaws, hook, later};

/// State of a process, which a restart loses.
#[derive(Default)]
pub(crate) struct Memory {
    /// Names of what it has made.
    pub(crate) made: BTreeSet<String>,
    /// The last desired state of each Service.
    pub(crate) wanted: BTreeMap<String, DesiredLoadBalancer>,
    pub(crate) under_way: usize,
    pub(crate) starts: u64,
}

pub(crate) struct Broken {
    pub(crate) flaw: &'static Flaw,
    pub(crate) cloud: LocalCloud,
    real: LocalProvider,
    capabilities: Capabilities,
    memory: Mutex<Memory>,
    /// For its loops, which outlive the borrow of it.
    me: Weak<Broken>,
}

impl Flaw {
    /// The configuration of the real provider.
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
        &self.real
    }

    pub(crate) fn routes(&self) -> &dyn OneRoutePerCall {
        &self.real
    }

    /// The only loop of the real provider.
    pub(crate) fn tags(&self) -> Arc<dyn ProviderLoop> {
        self.real.loops().remove(0)
    }

    /// Gives a Secret to the real provider.
    pub(crate) async fn deliver(&self, secret: &SecretRef, data: Option<&SecretData>) -> Result<()> {
        self.real.on_secret(secret, data).await
    }

    pub(crate) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap()
    }

    /// One call to the cloud that does nothing.
    pub(crate) async fn call(&self) -> Result<()> {
        self.real.check().await
    }

    /// The load balancer that the cloud has for this key.
    pub(crate) fn balancer(&self, key: &LoadBalancerKey) -> Option<Balancer> {
        self.cloud.balancers().into_iter().find(|balancer| balancer.owner.as_ref() == Some(key))
    }

    /// The desired state that was last planned for, of the Service with this key.
    pub(crate) fn last(&self, key: &LoadBalancerKey) -> Option<DesiredLoadBalancer> {
        self.memory().wanted.get(&key.uid).cloned()
    }

    /// Leaves something in the cloud that the provider does not know as its own.
    pub(crate) fn leave(&self) {
        let name = format!("left-{}", self.cloud.balancers().len());
        self.cloud
            .add_balancer(NewBalancer { name, families: vec![IpFamily::IPv4], ..NewBalancer::default() })
            .unwrap();
    }

    pub(crate) fn error<T>(&self, answer: Result<T>) -> Result<T> {
        answer.map_err(|error| hook!(self.flaw, Error).map_or(error.clone(), |edit| edit(error)))
    }

    /// The question as the real provider gets it, which knows its IDs without a slash in front only.
    fn asked(&self, asked: &InstanceRef) -> InstanceRef {
        let mut asked = asked.clone();
        if let Some(edit) = hook!(self.flaw, Asked) {
            edit(&mut asked);
            return asked;
        }
        let spelled = asked.provider_id.as_ref().and_then(|id| Some((id.prefix()?, id.rest()?.strip_prefix('/')?)));
        if let Some((prefix, id)) = spelled.filter(|(_, id)| !id.is_empty()) {
            asked.provider_id = Some(ProviderId::of(prefix, id));
        }
        asked
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

    /// The desired state as the real provider gets it.
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
    async fn find(&self, asked: &[InstanceRef]) -> Vec<Result<InstanceState>> {
        let asked: Vec<_> = asked.iter().map(|asked| self.asked(asked)).collect();
        let answers = call!(self, Find(&asked), self.machines().find(&asked));
        let mut asked = asked.into_iter();
        let edited = |answer| {
            let answer = match (hook!(self.flaw, Found), asked.next()) {
                (Some(edit), Some(asked)) => edit(&asked, answer),
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

    async fn assign_pod_cidrs(&self, asked: &InstanceRef, range: IpNet) -> Result<()> {
        let assigned = call!(self, Assign(asked, range), self.machines().assign_pod_cidrs(asked, range));
        self.error(assigned)
    }

    fn identify(&self, asked: &InstanceRef) -> Result<Identity> {
        let identity = self.machines().identify(&self.asked(asked));
        identity.map(|identity| hook!(self.flaw, Identity).map_or(identity.clone(), |edit| edit(asked, identity)))
    }
}

#[async_trait]
impl LoadBalancers for Broken {
    fn settings(
        &self,
        annotations: &BTreeMap<String, String>,
        common: LoadBalancerSettings,
    ) -> std::result::Result<LoadBalancerSettings, Vec<Mistake>> {
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

/// An error of the broken provider.
pub(crate) fn fails<T>(kind: ErrorKind) -> Result<T> {
    Err(Error::new(kind, "flaw", "broken on purpose"))
}
