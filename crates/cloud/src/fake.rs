//! A cloud for tests: machines in a list, calls on record, faults on order.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bowline_core::*;
use ipnet::IpNet;

use crate::*;

/// What reached the cloud.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Call {
    Find(Vec<String>),
    List(Option<String>),
    Describe(Vec<String>),
    /// The Services of the wishes.
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
    /// How the next calls end, before anything is read.
    pub(crate) faults: Mutex<VecDeque<Option<Error>>>,
    /// How the next answers on these nodes, Services and destinations end.
    pub(crate) item_faults: Mutex<HashMap<String, VecDeque<Error>>>,
    /// How long a call takes; what it answers is as of its beginning.
    pub(crate) latency: Duration,
    write_latency: Option<Duration>,
    /// `find` and `observe` lose an answer.
    pub(crate) loses_answers: AtomicBool,
    /// `observe` fails with an answer that is too large above this many load balancers.
    pub(crate) largest_observation: AtomicUsize,
    /// `find` declines everything.
    pub(crate) declines: AtomicBool,
    /// Calls panic.
    pub(crate) panics: AtomicBool,
    /// `list` comes back to its first page.
    pub(crate) circles: AtomicBool,
    /// Names of machines that exist and are not listed.
    pub(crate) unlisted: Mutex<Vec<String>>,
    /// Number of machines on each page that cannot be read.
    pub(crate) unread: AtomicUsize,
    /// `list` shows machines in brief.
    pub(crate) lists_in_brief: AtomicBool,
    /// [`Routes::lock`].
    pub(crate) route_lock: Mutex<Option<String>>,
    /// Secrets that it needs, and the tokens that it got from them.
    secrets: Vec<SecretRef>,
    tokens: Mutex<Vec<String>>,
    facts: Facts,
    /// How the next starts end: with an error, or after a while.
    start_faults: Mutex<VecDeque<Result<Duration>>>,
    starts: AtomicUsize,
    at_once: AtomicUsize,
    pub(crate) most_at_once: AtomicUsize,
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
            loses_answers: AtomicBool::new(false),
            largest_observation: AtomicUsize::new(usize::MAX),
            declines: AtomicBool::new(false),
            panics: AtomicBool::new(false),
            circles: AtomicBool::new(false),
            unlisted: Mutex::default(),
            unread: AtomicUsize::new(0),
            lists_in_brief: AtomicBool::new(false),
            route_lock: Mutex::default(),
            secrets: Vec::new(),
            tokens: Mutex::default(),
            facts: Facts::default(),
            start_faults: Mutex::default(),
            starts: AtomicUsize::new(0),
            at_once: AtomicUsize::new(0),
            most_at_once: AtomicUsize::new(0),
        }
    }

    /// Needs the token in this Secret.
    pub(crate) fn needing(mut self, secret: &str) -> Fake {
        self.secrets.extend(SecretRef::parse(secret));
        self
    }

    pub(crate) fn tokens(&self) -> Vec<String> {
        self.tokens.lock().unwrap().clone()
    }

    /// Learns this at its start.
    pub(crate) fn knowing(mut self, facts: Facts) -> Fake {
        self.facts = facts;
        self
    }

    pub(crate) fn fail_start(&self, faults: impl IntoIterator<Item = Result<Duration>>) {
        self.start_faults.lock().unwrap().extend(faults);
    }

    pub(crate) fn starts(&self) -> usize {
        self.starts.load(Ordering::SeqCst)
    }

    /// Can be told which pod range to lead to a machine.
    pub(crate) fn assigning(self) -> Fake {
        self.limits(|limits| limits.assign_pod_ranges = true)
    }

    /// How long an assignment takes, if not as long as all else.
    pub(crate) fn write_latency(mut self, latency: Duration) -> Fake {
        self.write_latency = Some(latency);
        self
    }

    pub(crate) fn limits(mut self, change: impl FnMut(&mut InstanceCapabilities)) -> Fake {
        self.capabilities.instances.iter_mut().for_each(change);
        self
    }

    /// Observes this many balancers at once.
    pub(crate) fn batch_observe(mut self, size: usize) -> Fake {
        self.capabilities.load_balancers.iter_mut().for_each(|limits| limits.batch_observe = size);
        self
    }

    /// Owns IDs that start with this.
    pub(crate) fn prefix(mut self, prefix: &str) -> Fake {
        self.info.id_prefixes = vec![prefix.to_owned()];
        self
    }

    pub(crate) fn latency(mut self, latency: Duration) -> Fake {
        self.latency = latency;
        self
    }

    /// With machines of these names; the ID of `a` is `id-a`.
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

    /// One call: recorded, then failing or taking its time.
    async fn call<T>(&self, call: Call, answer: impl FnOnce() -> T) -> Result<T> {
        assert!(!self.panics.load(Ordering::SeqCst), "on order");
        let written = self.write_latency.filter(|_| call == Call::Other("assign"));
        self.calls.lock().unwrap().push(call);
        let at_once = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_at_once.fetch_max(at_once, Ordering::SeqCst);
        let fault = self.faults.lock().unwrap().pop_front().flatten();
        let answer = fault.map_or_else(|| Ok(answer()), Err);
        tokio::time::sleep(written.unwrap_or(self.latency)).await;
        self.at_once.fetch_sub(1, Ordering::SeqCst);
        answer
    }

    /// One call that writes routes to these destinations. Fails as a whole, or for single destinations.
    async fn write(&self, verb: &'static str, destinations: Vec<String>) -> Vec<Result<()>> {
        let written = self.call(Call::Routes(verb, destinations.clone()), || ()).await;
        let faults = &mut *self.item_faults.lock().unwrap();
        let mut fault = |destination: &String| faults.get_mut(destination).and_then(VecDeque::pop_front);
        let answers = destinations.iter().map(|destination| fault(destination).map_or(written.clone(), Err));
        answers.skip(usize::from(self.loses_answers.load(Ordering::SeqCst))).collect()
    }

    /// What there is for a wish: a thing that says whose it is and what the annotations were.
    fn look_at(&self, desired: &DesiredLoadBalancer) -> Result<Option<LoadBalancerState>> {
        let faults = &mut *self.item_faults.lock().unwrap();
        if let Some(fault) = faults.get_mut(&desired.key.service).and_then(VecDeque::pop_front) {
            return Err(fault);
        }
        let resources = Opaque::new(serde_json::json!([desired.key.service, desired.annotations]));
        Ok(Some(LoadBalancerState::new(LoadBalancerStatus::default(), resources)))
    }

    /// The truth.
    pub(crate) fn look_up(&self, asked: &InstanceRef) -> Result<InstanceState> {
        if self.declines.load(Ordering::SeqCst) {
            return Ok(InstanceState::NotMine);
        }
        let faults = &mut *self.item_faults.lock().unwrap();
        if let Some(fault) = faults.get_mut(asked.node.as_str()).and_then(VecDeque::pop_front) {
            return Err(fault);
        }
        let id = asked.provider_id.as_ref().map(|id| id.rest().unwrap_or_default().to_owned());
        let machines = self.machines.lock().unwrap();
        let found = machines.iter().find(|(instance, _)| match &id {
            Some(id) => instance.id == *id,
            None => asked.node == *instance.name,
        });
        Ok(found.map_or(InstanceState::Gone, |(instance, _)| InstanceState::Running(instance.clone().into())))
    }
}

#[async_trait]
impl Instances for Fake {
    async fn find(&self, asked: &[InstanceRef]) -> Vec<Result<InstanceState>> {
        let names = asked.iter().map(|asked| asked.node.to_string()).collect();
        let find = || asked.iter().map(|asked| self.look_up(asked)).collect::<Vec<_>>();
        let mut answers = match self.call(Call::Find(names), find).await {
            Ok(answers) => answers,
            Err(error) => asked.iter().map(|_| Err(error.clone())).collect(),
        };
        if self.loses_answers.load(Ordering::SeqCst) {
            answers.pop();
        }
        answers
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
                self.circles.load(Ordering::SeqCst).then_some(0)
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

    async fn describe(&self, brief: &[Opaque], asked: &[InstanceRef]) -> Vec<Result<InstanceState>> {
        let brief = brief.iter().map(|machine| named(machine.get::<String>().unwrap()));
        let asked: Vec<_> = brief.chain(asked.iter().cloned()).collect();
        let names: Vec<_> = asked.iter().map(|asked| asked.node.to_string()).collect();
        let describe = || asked.iter().map(|asked| self.look_up(asked)).collect();
        let answers: Result<Vec<_>> = self.call(Call::Describe(names.clone()), describe).await;
        answers.unwrap_or_else(|error| names.iter().map(|_| Err(error.clone())).collect())
    }

    async fn assign_pod_cidrs(&self, asked: &InstanceRef, range: IpNet) -> Result<()> {
        let assign = || {
            let found = self.look_up(asked)?;
            let mut machines = self.machines.lock().unwrap();
            let id = found.instance().map(|instance| &instance.id);
            let machine = machines.iter_mut().find(|(machine, _)| Some(&machine.id) == id);
            let gone = || Error::new(ErrorKind::NotFound, "assign pod range", "no such machine");
            machine.ok_or_else(gone)?.0.pod_ranges.push(range);
            Ok(())
        };
        self.call(Call::Other("assign"), assign).await?
    }
}

#[async_trait]
impl LoadBalancers for Fake {
    async fn observe(&self, wanted: &[DesiredLoadBalancer]) -> Vec<Result<Option<LoadBalancerState>>> {
        let services = wanted.iter().map(|desired| desired.key.service.clone()).collect();
        let observe = || wanted.iter().map(|desired| self.look_at(desired)).collect::<Vec<_>>();
        let mut answers = match self.call(Call::Observe(services), observe).await {
            Ok(answers) => answers,
            Err(error) => wanted.iter().map(|_| Err(error.clone())).collect(),
        };
        if self.loses_answers.load(Ordering::SeqCst) {
            answers.pop();
        }
        if wanted.len() > self.largest_observation.load(Ordering::SeqCst) {
            let error = Error::new(ErrorKind::Unexpected, "observe", "the answer is too large").too_large();
            answers.fill(Err(error));
        }
        answers
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
        let named = |route: &RouteSpec| Route { id: "as the cloud calls it".to_owned(), ..Route::of(route) };
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

    async fn check(&self) -> Result<()> {
        self.call(Call::Other("check"), || ()).await
    }
}

/// A node without an ID.
pub(crate) fn named(node: &str) -> InstanceRef {
    InstanceRef { node: node.into(), provider_id: None, system_uuid: None }
}

/// A node with an ID.
pub(crate) fn with_id(node: &str, id: &str) -> InstanceRef {
    InstanceRef { provider_id: ProviderId::new(id), ..named(node) }
}

/// The name of the machine, or how it is not there.
pub(crate) fn told(answer: &Result<InstanceState>) -> String {
    match answer {
        Ok(InstanceState::Running(instance)) => instance.name.clone(),
        Ok(state) => format!("{state:?}"),
        Err(error) => error.kind().as_str().to_owned(),
    }
}

/// Page with no more than the IDs and names of these machines.
fn in_brief(machines: impl Iterator<Item = (Instance, bool)>, next: Option<PageToken>) -> InstancePage {
    let machines: Vec<_> = machines.collect();
    let brief = machines.iter().map(|(it, _)| (it.id.clone(), Opaque::new(it.name.clone()))).collect();
    let bare = |it: Instance| Instance { id: it.id, name: it.name, ..Instance::default() };
    let machines = machines.into_iter().map(|(it, stopped)| (bare(it), stopped));
    InstancePage { brief, ..InstancePage::new(machines, next) }
}
