//! Fixture of the cases about routes: calls that fail the case with a readable reason, and readers of the cloud's own table.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use bowline_cloud::layers::{LayerOptions, Layered};
use bowline_cloud::{CloudProvider, Error, ErrorKind, Result as Answer, RouteCapabilities, Routes};
use bowline_core::{Address, AddressType, ClusterName, Instance, IpFamily, Route, RouteSpec};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::bench::{ForeignRoute, RouteBench, SeenRoute, WantedMachine};
use crate::context::{CaseContext, CaseFailure, CaseResult, expect_ok, fail, require};

/// Fixture of a case about routes.
pub(crate) struct RouteFixture<'a> {
    context: &'a CaseContext,
    controls: &'a dyn RouteBench,
    provider: Arc<dyn CloudProvider>,
    /// Cluster of the routes.
    pub(crate) cluster: ClusterName,
}

impl<'a> RouteFixture<'a> {
    pub(crate) fn new(context: &'a CaseContext) -> CaseResult<RouteFixture<'a>> {
        let Some(controls) = context.bench().routes() else {
            return Err(CaseFailure::BenchCannot("read routes".to_owned()));
        };
        Ok(RouteFixture {
            context,
            controls,
            provider: context.bench().provider(),
            cluster: ClusterName::from("our-cluster"),
        })
    }

    /// Fixture for the manager of another cluster on the same cloud.
    pub(crate) fn other_cluster(&self) -> RouteFixture<'a> {
        let cluster = ClusterName::from("other-cluster");
        RouteFixture { context: self.context, controls: self.controls, provider: Arc::clone(&self.provider), cluster }
    }

    /// Restarts the manager, which keeps no state outside the cloud.
    pub(crate) async fn restart(&mut self) {
        self.provider = self.context.bench().restarted().await;
    }

    pub(crate) fn capabilities(&self) -> CaseResult<&RouteCapabilities> {
        let caps = self.provider.capabilities().routes.as_ref();
        caps.map_or_else(|| fail("the provider no longer has capabilities for routes"), Ok)
    }

    /// Layers around the provider, which serialize writes with the same lock.
    pub(crate) async fn layers(&self) -> Layered {
        let (options, registry) = (LayerOptions::default(), prometheus::Registry::new());
        let layers = Layered::new(Arc::clone(&self.provider), &self.provider.info().name, &options, &registry);
        if let Some(store) = self.context.bench().secret_store() {
            for secret in self.provider.secrets() {
                layers.deliver_secret(&secret, Ok(Some(store.contents(&secret).await))).await;
            }
        }
        layers
    }

    /// Number of routes that fit into the table, at most `wanted`.
    pub(crate) fn capacity(&self, wanted: usize) -> CaseResult<usize> {
        Ok(self.capabilities()?.max_routes.map_or(wanted, |limit| limit.min(wanted)))
    }

    /// Whether the provider looks up machines by Node name.
    pub(crate) fn looks_up_names(&self) -> bool {
        self.provider.capabilities().instances.as_ref().is_some_and(|capabilities| capabilities.lookup_by_name)
    }

    pub(crate) fn provider(&self) -> CaseResult<&dyn Routes> {
        let routes = self.provider.routes();
        routes.map_or_else(|| fail("the provider claims routes and returns no `Routes`"), Ok)
    }
}

// ---- machines and route specs

impl RouteFixture<'_> {
    /// Creates a machine with an address of each IP family.
    pub(crate) async fn add_machine(&self, name: &str) -> Instance {
        let address = |text: &str| Address::new(AddressType::InternalIP, text);
        let addresses = vec![address("10.0.0.1"), address("fd00::1"), Address::new(AddressType::Hostname, name)];
        self.context.bench().add(&WantedMachine { name: name.to_owned(), addresses, ..WantedMachine::default() }).await
    }

    /// Creates this number of machines.
    pub(crate) async fn add_machines(&self, count: usize) -> Vec<Instance> {
        let mut machines = Vec::with_capacity(count);
        for number in 1..=count {
            machines.push(self.add_machine(&format!("node-{number}")).await);
        }
        machines
    }

    /// Pod CIDR with this number, of the first IP family that the provider claims.
    pub(crate) fn pod_cidr(&self, number: u16) -> CaseResult<IpNet> {
        match self.capabilities()?.ip_families.first() {
            None => fail("the provider claims no IP family"),
            Some(family) => Ok(pod_cidr(*family, number)),
        }
    }

    /// Route from the pod CIDR with this number to the Node of this machine.
    pub(crate) fn spec(&self, number: u16, machine: &Instance) -> CaseResult<RouteSpec> {
        Ok(route_to(self.pod_cidr(number)?, machine))
    }
}

/// UID of the cluster.
const CLUSTER_UID: &str = "0b9e1f5c-0000-4000-8000-00000000000a";

/// Pod CIDR of this IP family: a /24 or a /64.
pub(crate) fn pod_cidr(family: IpFamily, number: u16) -> IpNet {
    let [high, low] = number.to_be_bytes();
    match family {
        IpFamily::IPv4 => Ipv4Net::new_assert([10, 128 | high, low, 0].into(), 24).into(),
        IpFamily::IPv6 => Ipv6Net::new_assert([0xfd00, 0x10, 0x244, number, 0, 0, 0, 0].into(), 64).into(),
    }
}

/// Route to the Node of this machine.
pub(crate) fn route_to(destination: IpNet, machine: &Instance) -> RouteSpec {
    RouteSpec {
        name_hint: uid(&machine.name),
        node: machine.name.as_str().into(),
        provider_id: machine.provider_id.clone(),
        node_addresses: machine.addresses.clone(),
        destination,
        cluster_uid: Some(CLUSTER_UID.to_owned()),
    }
}

/// UID of the Node with this name, the same for each of its pod CIDRs.
fn uid(name: &str) -> String {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    format!("00000000-0000-4000-8000-{:012x}", hasher.finish() >> 16)
}

// ---- calls

impl RouteFixture<'_> {
    /// Lists the routes in a healthy cloud.
    pub(crate) async fn list(&self) -> CaseResult<Vec<Route>> {
        expect_ok(self.provider()?.list(&self.cluster).await)
    }

    /// Creates a route; the call may fail.
    pub(crate) async fn try_create(&self, spec: &RouteSpec) -> CaseResult<Answer<Route>> {
        self.try_create_all(std::slice::from_ref(spec)).await?.pop().map_or_else(|| fail("no answer"), Ok)
    }

    /// Creates routes in batches of the size that the provider claims; each may fail.
    pub(crate) async fn try_create_all(&self, specs: &[RouteSpec]) -> CaseResult<Vec<Answer<Route>>> {
        let mut answers = Vec::with_capacity(specs.len());
        for batch in specs.chunks(self.capabilities()?.batch.max(1)) {
            let some = self.provider()?.create(&self.cluster, batch).await;
            require(some.len() == batch.len(), || format!("{} answers to {} routes", some.len(), batch.len()))?;
            answers.extend(some);
        }
        Ok(answers)
    }

    /// Deletes routes in batches of the size that the provider claims; each may fail.
    pub(crate) async fn try_delete_all(&self, routes: &[Route]) -> CaseResult<Vec<Answer<()>>> {
        let mut answers = Vec::with_capacity(routes.len());
        for batch in routes.chunks(self.capabilities()?.batch.max(1)) {
            let some = self.provider()?.delete(&self.cluster, batch).await;
            require(some.len() == batch.len(), || format!("{} answers to {} routes", some.len(), batch.len()))?;
            answers.extend(some);
        }
        Ok(answers)
    }

    /// Creates a route in a healthy cloud.
    pub(crate) async fn create(&self, spec: &RouteSpec) -> CaseResult<Route> {
        expect_ok(self.try_create(spec).await?)
    }

    /// Creates a route, and verifies that it is in the cloud's table. Only one case verifies the returned and the listed route, so that
    /// a bug there does not fail the other cases.
    pub(crate) async fn create_and_verify(&self, spec: &RouteSpec, machine: &Instance) -> CaseResult<Route> {
        let route = self.create(spec).await?;
        self.verify_in_table(spec, machine).await?;
        Ok(route)
    }

    /// Deletes a route in a healthy cloud.
    pub(crate) async fn delete(&self, route: &Route) -> CaseResult {
        self.try_delete_all(std::slice::from_ref(route)).await?.into_iter().try_for_each(expect_ok)
    }

    /// Deletes a route, and verifies that it is not in the cloud's table.
    pub(crate) async fn delete_and_verify(&self, route: &Route) -> CaseResult {
        self.delete(route).await?;
        let table = self.table().await;
        require(!table.iter().any(|one| one.id == route.id), || {
            format!("{route:?} was deleted, but is still in the table: {table:?}")
        })
    }
}

// ---- verification

impl RouteFixture<'_> {
    /// All routes of the cloud's table, sorted by destination and ID.
    pub(crate) async fn table(&self) -> Vec<SeenRoute> {
        let mut seen = self.controls.routes(&self.cluster).await;
        seen.sort_by(|a, b| (a.destination, &a.id).cmp(&(b.destination, &b.id)));
        seen
    }

    /// Adds a route to the cloud's table as a user would.
    pub(crate) async fn put_foreign(&self, destination: IpNet, machine: &Instance) -> CaseResult<SeenRoute> {
        let foreign = ForeignRoute { destination, machine: machine.id.clone() };
        let put = self.controls.put_foreign(&self.cluster, &foreign).await;
        put.ok_or_else(|| CaseFailure::BenchCannot("add a route of another owner".to_owned()))
    }

    /// Verifies that the cloud's table has not changed.
    pub(crate) async fn verify_unchanged(&self, before: &[SeenRoute]) -> CaseResult {
        let now = self.table().await;
        require(now == before, || format!("the table changed from {before:?} to {now:?}"))
    }

    /// Verifies that the cloud's table has exactly one such route to this machine.
    pub(crate) async fn verify_in_table(&self, spec: &RouteSpec, machine: &Instance) -> CaseResult<SeenRoute> {
        let mut table = self.table().await;
        table.retain(|one| one.destination == spec.destination && one.machine.as_ref() == Some(&machine.id));
        match table.as_slice() {
            [seen] => Ok(seen.clone()),
            _ => fail(format!("expected one route from {} to {:?}, got {table:?}", spec.destination, machine.id)),
        }
    }

    /// Verifies that the returned route matches the spec, the listing and the cloud's table.
    pub(crate) async fn verify_reported(&self, spec: &RouteSpec, machine: &Instance, route: &Route) -> CaseResult {
        verify_matches_spec(spec, route)?;
        self.verify_listed(route).await?;
        let seen = self.verify_in_table(spec, machine).await?;
        require(seen.id == route.id, || format!("the route has the ID {:?}, in the cloud {:?}", route.id, seen.id))?;
        let owner = route.stamped.then_some(&self.cluster);
        require(seen.owner.as_ref() == owner, || {
            format!("the route has the mark {owner:?}, in the cloud {:?}", seen.owner)
        })
    }

    /// Verifies that the listing has exactly this route, once.
    pub(crate) async fn verify_listed(&self, route: &Route) -> CaseResult {
        let listed = self.list().await?;
        let same: Vec<_> = listed.iter().filter(|one| one.id == route.id).collect();
        require(same == [route], || format!("`create` returned {route:?}, `list` returns {same:?}"))
    }
}

/// Verifies that the route matches the spec. With other addresses, the controller would delete and create the route for ever.
fn verify_matches_spec(spec: &RouteSpec, route: &Route) -> CaseResult {
    let fits = route.destination == spec.destination && !route.blackhole;
    require(fits, || format!("requested a route for {}, got {route:?}", spec.destination))?;
    verify_node(spec, route)?;
    let set = |addresses: &[Address]| -> BTreeSet<String> { addresses.iter().map(|one| format!("{one:?}")).collect() };
    let same = route.node_addresses.as_ref().is_none_or(|addresses| set(addresses) == set(&spec.node_addresses));
    require(same, || format!("expected the addresses {:?}, got {:?}", spec.node_addresses, route.node_addresses))
}

/// Verifies that the route names the Node that requested it. Otherwise the controller would take it for another Node's route.
pub(crate) fn verify_node(spec: &RouteSpec, route: &Route) -> CaseResult {
    let by_name = route.node.as_ref() == Some(&spec.node);
    // A Node that does not have its provider ID yet is found by it later.
    let is_same = || spec.provider_id.is_none() || route.provider_id == spec.provider_id;
    let by_id = route.node.is_none() && route.provider_id.is_some() && is_same();
    require(by_name || by_id, || format!("requested {spec:?}, but the route does not name that Node: {route:?}"))
}

/// Error of a call that must fail with this kind.
pub(crate) fn expect_error<T>(what: &str, answer: Answer<T>, kind: ErrorKind) -> CaseResult<Error> {
    match answer {
        Ok(_) => fail(format!("{what} succeeded")),
        Err(error) if error.kind() == kind => Ok(error),
        Err(error) => fail(format!("{what}: expected an error of kind {kind:?}, got {:?}: {error}", error.kind())),
    }
}
