//! What a case about routes works with: calls that fail the case in plain words, and looks at the cloud's own table.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use bowline_cloud::layers::{LayerOptions, Layered};
use bowline_cloud::{CloudProvider, Error, ErrorKind, Result as Answer, RouteCapabilities, Routes};
use bowline_core::{Address, AddressType, ClusterName, Instance, IpFamily, Route, RouteSpec};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::bench::{ForeignRoute, RouteBench, SeenRoute, WantedMachine};
use crate::scene::{CaseFailure, CaseResult, Scene, broken, require};

/// A bench in use by a case about routes.
pub(crate) struct Routing<'a> {
    scene: &'a Scene,
    hands: &'a dyn RouteBench,
    provider: Arc<dyn CloudProvider>,
    /// The cluster that is asked for.
    pub(crate) cluster: ClusterName,
}

impl<'a> Routing<'a> {
    pub(crate) fn of(scene: &'a Scene) -> CaseResult<Routing<'a>> {
        let Some(hands) = scene.bench().routes() else {
            return Err(CaseFailure::BenchCannot("look at routes".to_owned()));
        };
        Ok(Routing { scene, hands, provider: scene.bench().provider(), cluster: ClusterName::from("our-cluster") })
    }

    /// The same cloud, as the manager of another cluster sees it.
    pub(crate) fn elsewhere(&self) -> Routing<'a> {
        let cluster = ClusterName::from("somebody-elses-cluster");
        Routing { scene: self.scene, hands: self.hands, provider: Arc::clone(&self.provider), cluster }
    }

    /// The manager starts anew: all that it knows is in the cloud.
    pub(crate) async fn restart(&mut self) {
        self.provider = self.scene.bench().restarted().await;
    }

    pub(crate) fn caps(&self) -> CaseResult<&RouteCapabilities> {
        let caps = self.provider.capabilities().routes.as_ref();
        caps.map_or_else(|| broken("it has no capabilities for routes any more"), Ok)
    }

    /// The layers around the provider, which run writes with a lock one after the other.
    pub(crate) async fn layers(&self) -> Layered {
        let (options, registry) = (LayerOptions::default(), prometheus::Registry::new());
        let layers = Layered::new(Arc::clone(&self.provider), &self.provider.info().name, &options, &registry);
        if let Some(store) = self.scene.bench().secret_store() {
            for secret in self.provider.secrets() {
                layers.deliver_secret(&secret, Ok(Some(store.contents(&secret).await))).await;
            }
        }
        layers
    }

    /// At most `wanted` routes: as many as the cloud has room for.
    pub(crate) fn room(&self, wanted: usize) -> CaseResult<usize> {
        Ok(self.caps()?.max_routes.map_or(wanted, |most| most.min(wanted)))
    }

    /// Whether machines are found by the names of nodes.
    pub(crate) fn finds_names(&self) -> bool {
        self.provider.capabilities().instances.as_ref().is_some_and(|numbers| numbers.lookup_by_name)
    }

    pub(crate) fn provider(&self) -> CaseResult<&dyn Routes> {
        let routes = self.provider.routes();
        routes.map_or_else(|| broken("it claims to have routes, and hands out no Routes"), Ok)
    }
}

// ---- what there is to be led

impl Routing<'_> {
    /// Makes a machine, with an address of each family.
    pub(crate) async fn machine(&self, name: &str) -> Instance {
        let address = |text: &str| Address::new(AddressType::InternalIP, text);
        let addresses = vec![address("10.0.0.1"), address("fd00::1"), Address::new(AddressType::Hostname, name)];
        self.scene.bench().add(&WantedMachine { name: name.to_owned(), addresses, ..WantedMachine::default() }).await
    }

    /// So many machines.
    pub(crate) async fn machines(&self, count: usize) -> Vec<Instance> {
        let mut machines = Vec::with_capacity(count);
        for number in 1..=count {
            machines.push(self.machine(&format!("node-{number}")).await);
        }
        machines
    }

    /// A pod range, of the first family that is claimed; another one for each number.
    pub(crate) fn range(&self, number: u16) -> CaseResult<IpNet> {
        match self.caps()?.ip_families.first() {
            None => broken("it claims no family of addresses"),
            Some(family) => Ok(range(*family, number)),
        }
    }

    /// The range of this number, to be led to the Node of this machine.
    pub(crate) fn spec(&self, number: u16, machine: &Instance) -> CaseResult<RouteSpec> {
        Ok(leading(self.range(number)?, machine))
    }
}

/// UID of the cluster that the routes are for.
const CLUSTER_UID: &str = "0b9e1f5c-0000-4000-8000-00000000000a";

/// A pod range of this family: a /24 or a /64.
pub(crate) fn range(family: IpFamily, number: u16) -> IpNet {
    let [high, low] = number.to_be_bytes();
    match family {
        IpFamily::IPv4 => Ipv4Net::new_assert([10, 128 | high, low, 0].into(), 24).into(),
        IpFamily::IPv6 => Ipv6Net::new_assert([0xfd00, 0x10, 0x244, number, 0, 0, 0, 0].into(), 64).into(),
    }
}

/// The range, to be led to the Node of this machine.
pub(crate) fn leading(destination: IpNet, machine: &Instance) -> RouteSpec {
    RouteSpec {
        name_hint: uid(&machine.name),
        node: machine.name.as_str().into(),
        provider_id: machine.provider_id.clone(),
        node_addresses: machine.addresses.clone(),
        destination,
        cluster_uid: Some(CLUSTER_UID.to_owned()),
    }
}

/// The UID of the Node of this name: the same for each of its ranges.
fn uid(name: &str) -> String {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    format!("00000000-0000-4000-8000-{:012x}", hasher.finish() >> 16)
}

// ---- calls

impl Routing<'_> {
    /// Lists, in a sound cloud.
    pub(crate) async fn list(&self) -> CaseResult<Vec<Route>> {
        sound(self.provider()?.list(&self.cluster).await)
    }

    /// Makes a route, or not.
    pub(crate) async fn attempt(&self, spec: &RouteSpec) -> CaseResult<Answer<Route>> {
        self.attempt_all(std::slice::from_ref(spec)).await?.pop().map_or_else(|| broken("no answer"), Ok)
    }

    /// Creates routes, or not, in batches as large as the provider takes.
    pub(crate) async fn attempt_all(&self, specs: &[RouteSpec]) -> CaseResult<Vec<Answer<Route>>> {
        let mut answers = Vec::with_capacity(specs.len());
        for batch in specs.chunks(self.caps()?.batch.max(1)) {
            let some = self.provider()?.create(&self.cluster, batch).await;
            require(some.len() == batch.len(), || format!("{} answers to {} routes", some.len(), batch.len()))?;
            answers.extend(some);
        }
        Ok(answers)
    }

    /// Deletes routes, or not, in batches as large as the provider takes.
    pub(crate) async fn attempt_deletion(&self, routes: &[Route]) -> CaseResult<Vec<Answer<()>>> {
        let mut answers = Vec::with_capacity(routes.len());
        for batch in routes.chunks(self.caps()?.batch.max(1)) {
            let some = self.provider()?.delete(&self.cluster, batch).await;
            require(some.len() == batch.len(), || format!("{} answers to {} routes", some.len(), batch.len()))?;
            answers.extend(some);
        }
        Ok(answers)
    }

    /// Makes a route, in a sound cloud.
    pub(crate) async fn create(&self, spec: &RouteSpec) -> CaseResult<Route> {
        sound(self.attempt(spec).await?)
    }

    /// Makes a route, and finds it in the cloud. How it is told and listed is the matter of one case alone, so that a flaw
    /// in that does not hide what the others say.
    pub(crate) async fn lead(&self, spec: &RouteSpec, machine: &Instance) -> CaseResult<Route> {
        let route = self.create(spec).await?;
        self.is_there(spec, machine).await?;
        Ok(route)
    }

    /// Removes a route, in a sound cloud.
    pub(crate) async fn delete(&self, route: &Route) -> CaseResult {
        self.attempt_deletion(std::slice::from_ref(route)).await?.into_iter().try_for_each(sound)
    }

    /// Removes a route, and finds nothing of it in the cloud.
    pub(crate) async fn remove(&self, route: &Route) -> CaseResult {
        self.delete(route).await?;
        let table = self.table().await;
        require(!table.iter().any(|one| one.id == route.id), || {
            format!("{route:?} is deleted, and there are {table:?}")
        })
    }
}

// ---- looks

impl Routing<'_> {
    /// All that is in the cloud's table, by range and ID.
    pub(crate) async fn table(&self) -> Vec<SeenRoute> {
        let mut seen = self.hands.routes(&self.cluster).await;
        seen.sort_by(|a, b| (a.destination, &a.id).cmp(&(b.destination, &b.id)));
        seen
    }

    /// Puts a route there by hand.
    pub(crate) async fn put_foreign(&self, destination: IpNet, machine: &Instance) -> CaseResult<SeenRoute> {
        let foreign = ForeignRoute { destination, machine: machine.id.clone() };
        let put = self.hands.put_foreign(&self.cluster, &foreign).await;
        put.ok_or_else(|| CaseFailure::BenchCannot("put a route there by hand".to_owned()))
    }

    /// The table is what it was.
    pub(crate) async fn nothing_changed_since(&self, before: &[SeenRoute]) -> CaseResult {
        let now = self.table().await;
        require(now == before, || format!("nothing was to change, and {before:?} became {now:?}"))
    }

    /// The cloud leads this range to this machine, once.
    pub(crate) async fn is_there(&self, spec: &RouteSpec, machine: &Instance) -> CaseResult<SeenRoute> {
        let mut table = self.table().await;
        table.retain(|one| one.destination == spec.destination && one.machine.as_ref() == Some(&machine.id));
        match table.as_slice() {
            [seen] => Ok(seen.clone()),
            _ => broken(format!("{} is to lead to {:?} once, and does so by {table:?}", spec.destination, machine.id)),
        }
    }

    /// The route is told as it was asked for, as it is listed, and as it is in the cloud.
    pub(crate) async fn is_current(&self, spec: &RouteSpec, machine: &Instance, route: &Route) -> CaseResult {
        is_as_asked(spec, route)?;
        self.is_listed(route).await?;
        let seen = self.is_there(spec, machine).await?;
        require(seen.id == route.id, || format!("it is called {:?}, and the cloud calls it {:?}", route.id, seen.id))?;
        let owner = route.stamped.then_some(&self.cluster);
        require(seen.owner.as_ref() == owner, || format!("its mark is told as {owner:?}, and is {:?}", seen.owner))
    }

    /// The listing has exactly this, once.
    pub(crate) async fn is_listed(&self, route: &Route) -> CaseResult {
        let listed = self.list().await?;
        let same: Vec<_> = listed.iter().filter(|one| one.id == route.id).collect();
        require(same == [route], || format!("told was {route:?}, and listed is {same:?}"))
    }
}

/// What is told of a route is what was asked for. A controller that is told of other addresses would remove the route and
/// make it again, for ever.
fn is_as_asked(spec: &RouteSpec, route: &Route) -> CaseResult {
    let fits = route.destination == spec.destination && !route.blackhole;
    require(fits, || format!("asked was for {}, and told is {route:?}", spec.destination))?;
    leads_to_its_node(spec, route)?;
    let set = |addresses: &[Address]| -> BTreeSet<String> { addresses.iter().map(|one| format!("{one:?}")).collect() };
    let same = route.node_addresses.as_ref().is_none_or(|told| set(told) == set(&spec.node_addresses));
    require(same, || format!("{:?} were asked for, and it leads to {:?}", spec.node_addresses, route.node_addresses))
}

/// What is told of a route leads to the Node that asked for it: else a controller would take it for another's.
pub(crate) fn leads_to_its_node(spec: &RouteSpec, route: &Route) -> CaseResult {
    let by_name = route.node.as_ref() == Some(&spec.node);
    let by_id = route.node.is_none() && route.provider_id.is_some() && route.provider_id == spec.provider_id;
    require(by_name || by_id, || format!("asked was for {spec:?}, and it does not lead to that Node: {route:?}"))
}

/// The answer of a sound cloud.
pub(crate) fn sound<T>(answer: Answer<T>) -> CaseResult<T> {
    answer.or_else(|error| broken(format!("an error from a sound cloud: {error}")))
}

/// Whatever it is that fails, it fails like this.
pub(crate) fn fails<T>(what: &str, answer: Answer<T>, kind: ErrorKind) -> CaseResult<Error> {
    match answer {
        Ok(_) => broken(format!("{what} succeeds")),
        Err(error) if error.kind() == kind => Ok(error),
        Err(error) => broken(format!("{what} is {:?} instead of {kind:?}: {error}", error.kind())),
    }
}
