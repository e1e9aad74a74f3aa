//! A fake cloud for tests, with recorded calls and injected faults.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bowline_core::*;
use ipnet::IpNet;

use crate::*;

/// A call that reached the cloud.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Call {
    Find(Vec<String>),
    List(Option<String>),
    Describe(Vec<String>),
    /// Service names.
    Observe(Vec<String>),
    /// Verb and destinations.
    Routes(&'static str, Vec<String>),
    Other(&'static str),
}

pub(crate) struct Fake {
    info: ProviderInfo,
    pub(crate) capabilities: Capabilities,
    machines: Mutex<Vec<(Instance, bool)>>,
    calls: Mutex<Vec<Call>>,
    /// Results of the next calls, before anything is read.
    pub(crate) faults: Mutex<VecDeque<Option<Error>>>,
    /// Errors of the next results for these Nodes, Services and destinations.
    pub(crate) item_faults: Mutex<HashMap<String, VecDeque<Error>>>,
    /// Duration of a call; its result is from its beginning.
    pub(crate) latency: Duration,
    write_latency: Option<Duration>,
    /// `find` and `observe` omit the last result.
    pub(crate) loses_results: AtomicBool,
    /// `observe` fails with a response that is too large for more load balancers than this.
    pub(crate) largest_observation: AtomicUsize,
    /// `find` declines everything.
    pub(crate) declines: AtomicBool,
    /// Calls panic.
    pub(crate) panics: AtomicBool,
    /// `list` returns to its first page after the last.
    pub(crate) repeats_pages: AtomicBool,
    /// Names of machines that exist and are not listed.
    pub(crate) unlisted: Mutex<Vec<String>>,
    /// Number of machines on each page that cannot be decoded.
    pub(crate) unread: AtomicUsize,
    /// `list` returns machines in brief.
    pub(crate) lists_in_brief: AtomicBool,
    /// [`Routes::lock`].
    pub(crate) route_lock: Mutex<Option<String>>,
    pub(crate) webhooks: Vec<Arc<dyn Webhook>>,
    pub(crate) endpoints: Vec<Endpoint>,
    /// Required Secrets, and the tokens received from them.
    secrets: Vec<SecretRef>,
    tokens: Mutex<Vec<String>>,
    facts: Facts,
    /// Results of the next starts: an error, or a delay.
    start_faults: Mutex<VecDeque<Result<Duration>>>,
    starts: AtomicUsize,
    /// Number of times that it was closed. Shared, because a provider that is replaced is closed when nothing else refers to it.
    pub(crate) closes: Arc<AtomicUsize>,
    concurrent: AtomicUsize,
    pub(crate) max_concurrent: AtomicUsize,
}

impl Fake {
    pub(crate) fn new(name: &str) -> Fake {
        let instances = InstanceCapabilities {
            batch_lookup: 100,
            absence: Absence::Proof,
            lookup_by_name: true,
            ..Default::default()
        };
        let families = vec![IpFamily::IPv4];
        let routes = RouteCapabilities {
            ip_families: families.clone(),
            max_routes: None,
            max_parallel: 2,
            batch: 1,
            marks_cluster_uid: false,
            knows_machines: true,
        };
        let kind = LoadBalancerKind { tcp: true, ip_families: families, ..LoadBalancerKind::default() };
        Fake {
            info: ProviderInfo { name: name.to_owned(), id_prefixes: vec![name.to_owned()] },
            capabilities: Capabilities {
                instances: Some(instances),
                load_balancers: Some(LoadBalancerCapabilities {
                    marks_uid: false,
                    ..LoadBalancerCapabilities::of(kind)
                }),
                routes: Some(routes),
            },
            machines: Mutex::default(),
            calls: Mutex::default(),
            faults: Mutex::default(),
            item_faults: Mutex::default(),
            latency: Duration::ZERO,
            write_latency: None,
            loses_results: AtomicBool::new(false),
            largest_observation: AtomicUsize::new(usize::MAX),
            declines: AtomicBool::new(false),
            panics: AtomicBool::new(false),
            repeats_pages: AtomicBool::new(false),
            unlisted: Mutex::default(),
            unread: AtomicUsize::new(0),
            lists_in_brief: AtomicBool::new(false),
            route_lock: Mutex::default(),
            webhooks: Vec::new(),
            endpoints: Vec::new(),
            secrets: Vec::new(),
            tokens: Mutex::default(),
            facts: Facts::default(),
            start_faults: Mutex::default(),
            starts: AtomicUsize::new(0),
            closes: Arc::default(),
            concurrent: AtomicUsize::new(0),
            max_concurrent: AtomicUsize::new(0),
        }
    }

    /// Requires the token in this Secret.
    pub(crate) fn with_secret(mut self, secret: &str) -> Fake {
        self.secrets.extend(SecretRef::parse(secret));
        self
    }

    pub(crate) fn tokens(&self) -> Vec<String> {
        self.tokens.lock().unwrap().clone()
    }

    /// Returns these facts at start.
    pub(crate) fn with_facts(mut self, facts: Facts) -> Fake {
        self.facts = facts;
        self
    }

    pub(crate) fn fail_start(&self, faults: impl IntoIterator<Item = Result<Duration>>) {
        self.start_faults.lock().unwrap().extend(faults);
    }

    pub(crate) fn closes(&self) -> usize {
        self.closes.load(Ordering::SeqCst)
    }

    pub(crate) fn starts(&self) -> usize {
        self.starts.load(Ordering::SeqCst)
    }

    /// Supports assigning pod CIDRs.
    pub(crate) fn with_pod_cidr_assignment(self) -> Fake {
        self.limits(|limits| limits.assign_pod_cidrs = true)
    }

    /// Duration of an assignment, if it differs from other calls.
    pub(crate) fn write_latency(mut self, latency: Duration) -> Fake {
        self.write_latency = Some(latency);
        self
    }

    pub(crate) fn limits(mut self, change: impl FnMut(&mut InstanceCapabilities)) -> Fake {
        self.capabilities.instances.iter_mut().for_each(change);
        self
    }

    /// Observes this many load balancers at once.
    pub(crate) fn batch_observe(mut self, size: usize) -> Fake {
        self.capabilities.load_balancers.iter_mut().for_each(|limits| limits.batch_observe = size);
        self
    }

    /// Owns provider IDs with this prefix.
    pub(crate) fn prefix(mut self, prefix: &str) -> Fake {
        self.info.id_prefixes = vec![prefix.to_owned()];
        self
    }

    pub(crate) fn latency(mut self, latency: Duration) -> Fake {
        self.latency = latency;
        self
    }

    /// Adds machines with these names; the ID of `a` is `id-a`.
    pub(crate) fn with<'a>(self, names: impl IntoIterator<Item = &'a str>) -> Fake {
        names.into_iter().for_each(|name| self.add(name, &format!("id-{name}")));
        self
    }

    pub(crate) fn add(&self, name: &str, id: &str) {
        self.add_as(name, id, ProviderId::of(&self.info.name, id).as_str());
    }

    pub(crate) fn add_as(&self, name: &str, id: &str, provider_id: &str) {
        let (id, name, provider_id) = (id.to_owned(), name.to_owned(), ProviderId::new(provider_id));
        let instance = Instance { id, name, provider_id, ..Instance::default() };
        self.machines.lock().unwrap().push((instance, false));
    }

    pub(crate) fn remove(&self, name: &str) {
        self.machines.lock().unwrap().retain(|(instance, _)| instance.name != name);
    }

    pub(crate) fn fail(&self, errors: impl IntoIterator<Item = Option<Error>>) {
        self.faults.lock().unwrap().extend(errors);
    }

    pub(crate) fn fail_item(&self, node: &str, errors: impl IntoIterator<Item = Error>) {
        self.item_faults.lock().unwrap().entry(node.to_owned()).or_default().extend(errors);
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }

    /// Records a call, and returns its result or an injected error after the latency.
    async fn call<T>(&self, call: Call, result: impl FnOnce() -> T) -> Result<T> {
        assert!(!self.panics.load(Ordering::SeqCst), "injected panic");
        let write_latency = self.write_latency.filter(|_| call == Call::Other("assign"));
        self.calls.lock().unwrap().push(call);
        let concurrent = self.concurrent.fetch_add(1, Ordering::SeqCst) + 1;
        self.max_concurrent.fetch_max(concurrent, Ordering::SeqCst);
        let fault = self.faults.lock().unwrap().pop_front().flatten();
        let result = fault.map_or_else(|| Ok(result()), Err);
        tokio::time::sleep(write_latency.unwrap_or(self.latency)).await;
        self.concurrent.fetch_sub(1, Ordering::SeqCst);
        result
    }

    /// Makes one call that writes routes to these destinations. It fails as a whole or for single destinations.
    async fn write(&self, verb: &'static str, destinations: Vec<String>) -> Vec<Result<()>> {
        let written = self.call(Call::Routes(verb, destinations.clone()), || ()).await;
        let faults = &mut *self.item_faults.lock().unwrap();
        let mut fault = |destination: &String| faults.get_mut(destination).and_then(VecDeque::pop_front);
        let results = destinations.iter().map(|destination| fault(destination).map_or(written.clone(), Err));
        results.skip(usize::from(self.loses_results.load(Ordering::SeqCst))).collect()
    }

    /// Returns a state with the name and the annotations of the Service.
    fn state_of(&self, desired: &DesiredLoadBalancer) -> Result<Option<LoadBalancerState>> {
        let faults = &mut *self.item_faults.lock().unwrap();
        if let Some(fault) = faults.get_mut(&desired.key.service).and_then(VecDeque::pop_front) {
            return Err(fault);
        }
        let resources = Opaque::new(serde_json::json!([desired.key.service, desired.annotations]));
        Ok(Some(LoadBalancerState::new(LoadBalancerStatus::default(), resources)))
    }

    /// Returns the actual state of a machine.
    pub(crate) fn look_up(&self, machine: &InstanceRef) -> Result<InstanceState> {
        if self.declines.load(Ordering::SeqCst) {
            return Ok(InstanceState::NotMine);
        }
        let faults = &mut *self.item_faults.lock().unwrap();
        if let Some(fault) = faults.get_mut(machine.node.as_str()).and_then(VecDeque::pop_front) {
            return Err(fault);
        }
        let id = machine.provider_id.as_ref().map(|id| id.rest().unwrap_or_default().to_owned());
        let machines = self.machines.lock().unwrap();
        let found = machines.iter().find(|(instance, _)| match &id {
            Some(id) => instance.id == *id,
            None => machine.node == *instance.name,
        });
        Ok(found.map_or(InstanceState::Gone, |(instance, _)| InstanceState::Running(instance.clone().into())))
    }
}

#[async_trait]
impl Instances for Fake {
    async fn find(&self, refs: &[InstanceRef]) -> Vec<Result<InstanceState>> {
        let names = refs.iter().map(|machine| machine.node.to_string()).collect();
        let find = || refs.iter().map(|machine| self.look_up(machine)).collect::<Vec<_>>();
        let mut results = match self.call(Call::Find(names), find).await {
            Ok(results) => results,
            Err(error) => refs.iter().map(|_| Err(error.clone())).collect(),
        };
        if self.loses_results.load(Ordering::SeqCst) {
            results.pop();
        }
        results
    }

    async fn list(&self, page: Option<&PageToken>) -> Result<InstancePage> {
        let size = self.capabilities.instances.as_ref().and_then(|limits| limits.list_page).unwrap_or(1);
        let start: usize = page.map_or(0, |token| token.0.parse().unwrap());
        let list = || {
            let mut machines = self.machines.lock().unwrap().clone();
            machines.retain(|(machine, _)| !self.unlisted.lock().unwrap().contains(&machine.name));
            let next = if start + size < machines.len() {
                Some(start + size)
            } else {
                self.repeats_pages.load(Ordering::SeqCst).then_some(0)
            };
            let next = next.map(|start| PageToken(start.to_string()));
            let machines = machines.into_iter().skip(start).take(size);
            let page = match self.lists_in_brief.load(Ordering::SeqCst) {
                true => in_brief(machines, next),
                false => InstancePage::new(machines, next),
            };
            InstancePage { unread: self.unread.load(Ordering::SeqCst), ..page }
        };
        self.call(Call::List(page.map(|token| token.0.clone())), list).await
    }

    async fn describe(&self, brief: &[Opaque], refs: &[InstanceRef]) -> Vec<Result<InstanceState>> {
        let brief = brief.iter().map(|machine| named(machine.get::<String>().unwrap()));
        let refs: Vec<_> = brief.chain(refs.iter().cloned()).collect();
        let names: Vec<_> = refs.iter().map(|machine| machine.node.to_string()).collect();
        let describe = || refs.iter().map(|machine| self.look_up(machine)).collect();
        let results: Result<Vec<_>> = self.call(Call::Describe(names.clone()), describe).await;
        results.unwrap_or_else(|error| names.iter().map(|_| Err(error.clone())).collect())
    }

    async fn assign_pod_cidrs(&self, machine: &InstanceRef, cidr: IpNet) -> Result<()> {
        let assign = || {
            let found = self.look_up(machine)?;
            let mut machines = self.machines.lock().unwrap();
            let id = found.instance().map(|instance| &instance.id);
            let machine = machines.iter_mut().find(|(machine, _)| Some(&machine.id) == id);
            let gone = || Error::new(ErrorKind::NotFound, "assign pod CIDR", "no such machine");
            machine.ok_or_else(gone)?.0.pod_cidrs.push(cidr);
            Ok(())
        };
        self.call(Call::Other("assign"), assign).await?
    }
}

#[async_trait]
impl LoadBalancers for Fake {
    async fn observe(&self, desired: &[DesiredLoadBalancer]) -> Vec<Result<Option<LoadBalancerState>>> {
        let services = desired.iter().map(|desired| desired.key.service.clone()).collect();
        let observe = || desired.iter().map(|desired| self.state_of(desired)).collect::<Vec<_>>();
        let mut results = match self.call(Call::Observe(services), observe).await {
            Ok(results) => results,
            Err(error) => desired.iter().map(|_| Err(error.clone())).collect(),
        };
        if self.loses_results.load(Ordering::SeqCst) {
            results.pop();
        }
        if desired.len() > self.largest_observation.load(Ordering::SeqCst) {
            let error = Error::new(ErrorKind::Unexpected, "observe", "the response is too large").too_large();
            results.fill(Err(error));
        }
        results
    }

    async fn list(&self, _: &ClusterName) -> Result<Vec<LoadBalancerKey>> {
        self.call(Call::Other("list"), Vec::new).await
    }

    fn plan(&self, _: &DesiredLoadBalancer, _: Option<&LoadBalancerState>) -> Result<Plan> {
        Ok(Plan::of(vec![Step::new(Verb::Create, "pool", "p", vec![], Opaque::default())]))
    }

    async fn apply(&self, _: &LoadBalancerKey, _: &Step, _: Option<&Opaque>) -> Result<Applied> {
        self.call(Call::Other("apply"), || Applied::Done).await
    }
}

#[async_trait]
impl Routes for Fake {
    async fn list(&self, _: &ClusterName) -> Result<Vec<Route>> {
        self.call(Call::Other("list routes"), Vec::new).await
    }

    async fn create(&self, _: &ClusterName, routes: &[RouteSpec]) -> Vec<Result<Route>> {
        let named = |route: &RouteSpec| Route { id: "cloud-route-id".to_owned(), ..Route::of(route) };
        let destinations: Vec<_> = routes.iter().map(|route| route.destination.to_string()).collect();
        let created = self.write("create", destinations).await;
        created.into_iter().zip(routes).map(|(written, route)| written.map(|()| named(route))).collect()
    }

    async fn delete(&self, _: &ClusterName, routes: &[Route]) -> Vec<Result<()>> {
        self.write("delete", routes.iter().map(|route| route.destination.to_string()).collect()).await
    }

    fn lock(&self, _: &ClusterName) -> Option<String> {
        self.route_lock.lock().unwrap().clone()
    }
}

#[async_trait]
impl CloudProvider for Fake {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn instances(&self) -> Option<&dyn Instances> {
        self.capabilities.instances.is_some().then_some(self)
    }

    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        self.capabilities.load_balancers.is_some().then_some(self)
    }

    fn routes(&self) -> Option<&dyn Routes> {
        self.capabilities.routes.is_some().then_some(self)
    }

    fn webhooks(&self) -> Vec<Arc<dyn Webhook>> {
        self.webhooks.clone()
    }

    fn endpoints(&self) -> Vec<Endpoint> {
        self.endpoints.clone()
    }

    fn secrets(&self) -> Vec<SecretRef> {
        self.secrets.clone()
    }

    async fn on_secret(&self, _: &SecretRef, data: Option<&SecretData>) -> Result<()> {
        let token = SecretData::required(data)?.text("token")?;
        self.tokens.lock().unwrap().push(token.reveal().to_owned());
        Ok(())
    }

    async fn start(&self) -> Result<Facts> {
        self.starts.fetch_add(1, Ordering::SeqCst);
        let fault = self.start_faults.lock().unwrap().pop_front();
        tokio::time::sleep(fault.unwrap_or(Ok(Duration::ZERO))?).await;
        Ok(self.facts.clone())
    }

    async fn close(&self) {
        tokio::time::sleep(self.latency).await;
        self.closes.fetch_add(1, Ordering::SeqCst);
    }

    async fn check(&self) -> Result<()> {
        self.call(Call::Other("check"), || ()).await
    }
}

/// Reference to a Node without a provider ID.
pub(crate) fn named(node: &str) -> InstanceRef {
    InstanceRef { node: node.into(), provider_id: None, system_uuid: None }
}

/// Reference to a Node with a provider ID.
pub(crate) fn with_id(node: &str, id: &str) -> InstanceRef {
    InstanceRef { provider_id: ProviderId::new(id), ..named(node) }
}

/// Returns the name of the machine, or its state, or the kind of the error.
pub(crate) fn summary(result: &Result<InstanceState>) -> String {
    match result {
        Ok(InstanceState::Running(instance)) => instance.name.clone(),
        Ok(state) => format!("{state:?}"),
        Err(error) => error.kind().as_str().to_owned(),
    }
}

/// Creates a page with only the IDs and names of these machines.
fn in_brief(machines: impl Iterator<Item = (Instance, bool)>, next: Option<PageToken>) -> InstancePage {
    let machines: Vec<_> = machines.collect();
    let brief = machines.iter().map(|(machine, _)| (machine.id.clone(), Opaque::new(machine.name.clone()))).collect();
    let bare = |machine: Instance| Instance { id: machine.id, name: machine.name, ..Instance::default() };
    let machines = machines.into_iter().map(|(machine, stopped)| (bare(machine), stopped));
    InstancePage { brief, ..InstancePage::new(machines, next) }
}
