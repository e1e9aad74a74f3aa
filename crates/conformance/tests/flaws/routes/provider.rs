//! The toy's provider, with whatever flaw is put into it.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bowline_cloud::{
    Capabilities, CloudProvider, Error, ErrorKind, InstanceCapabilities, OneByOne, ProviderInfo, Result, Retry,
    RouteCapabilities, Routes,
};
use bowline_core::{ClusterName, Instance, InstanceRef, InstanceState, IpFamily, ProviderId, Route, RouteSpec};

use super::Flaw;
use super::cloud::{Cloud, Kind, Record};

pub(super) struct Toy {
    flaw: Flaw,
    marks: bool,
    pub(super) cloud: Arc<Cloud>,
    info: ProviderInfo,
    capabilities: Capabilities,
    /// What it has made, and for whom.
    made: Mutex<Vec<(ClusterName, u64)>>,
}

impl Toy {
    pub(super) fn new(flaw: Flaw, kind: Kind, routes: RouteCapabilities) -> Toy {
        let most = match flaw {
            Flaw::ClaimsOneRouteTooMany => kind.most - 1,
            _ => kind.most,
        };
        let instances = InstanceCapabilities { lookup_by_name: true, unique_ids: true, ..Default::default() };
        Toy {
            flaw,
            marks: kind.marks,
            cloud: Arc::new(Cloud::new(Kind { most, ..kind })),
            info: ProviderInfo { name: format!("toy ({flaw:?})"), id_prefixes: vec!["toy".to_owned()] },
            capabilities: Capabilities { instances: Some(instances), load_balancers: None, routes: Some(routes) },
            made: Mutex::default(),
        }
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == flaw
    }

    /// The machine that is meant, if there is one.
    fn machine(&self, machines: &[Instance], id: Option<&ProviderId>, name: &str) -> Result<Option<Instance>> {
        let named: Vec<_> = machines.iter().filter(|machine| machine.name == name).collect();
        let Some(id) = id.filter(|_| !self.has(Flaw::NameBeforeId) || named.is_empty()) else {
            let ids: Vec<_> = named.iter().map(|machine| machine.id.as_str()).collect();
            return match named.as_slice() {
                _ if self.has(Flaw::ForgetsNames) => Ok(None),
                [_, _, ..] => Err(Error::new(ErrorKind::InvalidConfig, "toy", ids.join(" and "))),
                named => Ok(named.first().map(|machine| (*machine).clone())),
            };
        };
        let found = machines.iter().find(|machine| machine.provider_id.as_ref() == Some(id));
        Ok(found.or(named.first().copied().filter(|_| self.has(Flaw::NameAfterId))).cloned())
    }

    /// The machine that a route is to lead to.
    fn target(&self, machines: &[Instance], spec: &RouteSpec) -> Result<String> {
        match self.machine(machines, spec.provider_id.as_ref(), spec.node.as_str())? {
            Some(machine) => Ok(machine.id),
            None if self.has(Flaw::LeadsNowhere) => Ok("nowhere".to_owned()),
            None => Err(Error::new(ErrorKind::NotFound, "toy", "no such machine")),
        }
    }

    /// How a route is told.
    fn route(&self, cluster: &ClusterName, record: &Record, machines: &[Instance]) -> Route {
        let machine = machines.iter().find(|machine| machine.id == record.machine);
        let node = match machine {
            Some(machine) if self.has(Flaw::TellsTheMachinesName) => Some(machine.name.as_str().into()),
            None if !self.has(Flaw::TheLostLooksWell) => None,
            _ => Some(record.node.as_str().into()),
        };
        let mut addresses = record.addresses.clone();
        if self.has(Flaw::TellsOneAddress) {
            addresses.truncate(1);
        }
        let ours = record.owner.as_ref() == Some(cluster);
        Route {
            id: record.id.to_string(),
            node,
            provider_id: machine.and_then(|machine| machine.provider_id.clone()),
            node_addresses: Some(addresses),
            next_hop: None,
            destination: record.destination,
            blackhole: machine.is_none() && !self.has(Flaw::TheLostLooksWell),
            stamped: ours || self.has(Flaw::StampsEverything) || self.has(Flaw::ListsAllClusters),
        }
    }

    /// An error of the cloud, as this provider reads it.
    fn read(&self, error: Error) -> Error {
        match (self.flaw, error.kind()) {
            (Flaw::ForgetsDelay, _) => error.retry(Retry::Backoff),
            (Flaw::QuotaIsUnexpected, ErrorKind::QuotaExceeded)
            | (Flaw::TakenIsUnexpected, ErrorKind::AlreadyExists) => Error::new(ErrorKind::Unexpected, "toy", "?"),
            (Flaw::EverythingUnexpected, ErrorKind::Unauthenticated | ErrorKind::PermissionDenied) => {
                Error::new(ErrorKind::Unexpected, "toy", "?")
            }
            _ => error,
        }
    }

    /// Makes a route, in one call if that is right.
    async fn make(
        &self,
        cluster: &ClusterName,
        mut record: Record,
        mut table: Vec<Arc<Record>>,
    ) -> Result<Arc<Record>> {
        if self.has(Flaw::MarksLater) {
            record.owner = None;
            let mut made = self.cloud.make(record).await?;
            self.cloud.mark(made.id, cluster).await?;
            Arc::make_mut(&mut made).owner = Some(cluster.clone());
            return Ok(made);
        }
        let made = self.cloud.make(record).await?;
        if self.has(Flaw::RewritesTheTable) {
            table.push(made.clone());
            self.cloud.rewrite(table).await?;
        }
        Ok(made)
    }

    async fn created(&self, cluster: &ClusterName, spec: &RouteSpec) -> Result<Route> {
        let (machines, table) = self.cloud.look().await?;
        let owner = self.marks.then(|| cluster.clone());
        let (machine, hint) = (self.target(&machines, spec)?, spec.name_hint.clone());
        let family = if spec.destination.addr().is_ipv4() { IpFamily::IPv4 } else { IpFamily::IPv6 };
        if matches!(self.flaw, Flaw::LeadsOneFamilyOnly(only) if only != family) {
            return Err(Error::new(ErrorKind::InvalidConfig, "toy", "what range is this?"));
        }
        let ours = table.iter().filter(|route| route.owner == owner && route.destination == spec.destination);
        let mut same = ours.filter(|route| route.machine == machine || self.has(Flaw::AnyMachineWillDo));
        let same = same.find(|route| route.hint == hint || !self.has(Flaw::GoesByTheHint));
        match same {
            Some(_) if self.has(Flaw::RefusesTheSecondTime) => {
                return Err(Error::new(ErrorKind::AlreadyExists, "toy", "it is there already"));
            }
            Some(_) if self.has(Flaw::CountsWhatIsThere) && table.len() >= super::MOST => {
                return Err(Error::new(ErrorKind::QuotaExceeded, "toy", "the table is full"));
            }
            Some(same) => return Ok(self.route(cluster, same, &machines)),
            None => {}
        }
        if self.has(Flaw::TakesOver) {
            let _ = self.cloud.remove(|route| route.destination == spec.destination && route.owner == owner).await;
        }
        let addresses = spec.node_addresses.clone();
        let (node, destination) = (spec.node.to_string(), spec.destination);
        let record = Record { id: 0, hint, destination, machine, node, addresses, owner };
        let made = self.make(cluster, record, table).await?;
        self.made.lock().unwrap().push((cluster.clone(), made.id));
        let told = self.route(cluster, &made, &machines);
        Ok(if self.has(Flaw::TellsLessAtFirst) { Route { node_addresses: None, ..told } } else { told })
    }

    async fn listed(&self, cluster: &ClusterName) -> Result<Vec<Route>> {
        let (machines, mut table) = self.cloud.look().await?;
        let all = self.has(Flaw::ListsAllClusters) || !self.marks;
        table.retain(|route| all || route.owner.as_ref().is_none_or(|owner| owner == cluster));
        if self.has(Flaw::ListsOnePage) {
            table.truncate(100);
        }
        if self.has(Flaw::HidesWhatItDidNotMake) {
            let made = self.made.lock().unwrap();
            table.retain(|route| made.contains(&(cluster.clone(), route.id)));
        }
        Ok(table.iter().map(|route| self.route(cluster, route, &machines)).collect())
    }

    async fn deleted(&self, cluster: &ClusterName, route: &Route) -> Result<()> {
        if self.has(Flaw::DeletesOnlyAsListed) && !self.listed(cluster).await?.contains(route) {
            return Ok(());
        }
        let (machines, table) = self.cloud.look().await?;
        let known = table.iter().find(|one| one.id.to_string() == route.id);
        let whole = known.is_none_or(|known| machines.iter().any(|machine| machine.id == known.machine));
        if self.has(Flaw::DeletesOnlyWhatIsWhole) && !whole {
            return Err(Error::new(ErrorKind::NotFound, "toy", "no such machine"));
        }
        let unwanted = |one: &Record| match self.flaw {
            Flaw::DeletesByRange => one.destination == route.destination,
            Flaw::DeletesByFirstAddress => one.destination.addr() == route.destination.addr(),
            _ => one.id.to_string() == route.id,
        };
        match self.cloud.remove(unwanted).await {
            Err(error) if error.kind() == ErrorKind::NotFound && !self.has(Flaw::GoneIsAnError) => Ok(()),
            other => other,
        }
    }
}

#[async_trait]
impl CloudProvider for Toy {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn instances(&self) -> Option<&dyn bowline_cloud::Instances> {
        Some(self)
    }

    fn routes(&self) -> Option<&dyn Routes> {
        Some(self)
    }

    async fn check(&self) -> Result<()> {
        self.cloud.look().await.map(drop)
    }
}

#[async_trait]
impl OneByOne for Toy {
    async fn find_one(&self, asked: &InstanceRef) -> Result<InstanceState> {
        match asked.provider_id.as_ref().map(|id| (id.prefix(), id.rest())) {
            Some((Some("toy"), Some(""))) => return Err(Error::new(ErrorKind::InvalidConfig, "toy", "no ID")),
            Some((prefix, _)) if prefix != Some("toy") => return Ok(InstanceState::NotMine),
            _ => {}
        }
        let (machines, _) = self.cloud.look().await?;
        let found = self.machine(&machines, asked.provider_id.as_ref(), asked.node.as_str())?;
        Ok(found.map_or(InstanceState::Gone, |machine| InstanceState::Running(Arc::new(machine))))
    }
}

#[async_trait]
impl Routes for Toy {
    async fn list(&self, cluster: &ClusterName) -> Result<Vec<Route>> {
        match self.listed(cluster).await {
            Err(_) if self.has(Flaw::ErrorIsAnEmptyTable) => Ok(Vec::new()),
            listed => listed.map_err(|error| self.read(error)),
        }
    }

    async fn create(&self, cluster: &ClusterName, route: &RouteSpec) -> Result<Route> {
        self.created(cluster, route).await.map_err(|error| self.read(error))
    }

    async fn delete(&self, cluster: &ClusterName, route: &Route) -> Result<()> {
        self.deleted(cluster, route).await.map_err(|error| self.read(error))
    }
}
