//! Nova servers with their Neutron ports, as machines.
//!
//! ```text
//!  find ──► servers, one by one ─────────────────────┬─► ports of those, and flavors not known yet
//!  list ──► a page of servers in brief ──► describe ─┘      └─► addresses, labels, ID ──► answers
//! ```
//!
//! Nova alone decides whether a server exists and runs. If Neutron does not answer or a flavor is gone, only the description
//! fails, with [`Error::with_known_state`].

mod addresses;
mod flavors;
mod id;
mod lookup;
mod ports;

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use bowline_cloud::{Error, ErrorKind, Identity, InstancePage, Instances, KnownState, PageToken, Result};
use bowline_core::{Instance, InstanceRef, InstanceState, Opaque, label_value};

use crate::OpenStack;
use crate::api::compute::Server;

pub(crate) use flavors::Flavors;
use flavors::Types;
pub(crate) use id::{Ids, owns};
pub(crate) use lookup::PAGE;
pub(crate) use ports::IDS;
use ports::Ports;

const FIND: &str = "find instances";

/// The only status in which a server counts as stopped.
// upstream: paused, suspended and shelved ones run.
const SHUTOFF: &str = "SHUTOFF";

#[async_trait]
impl Instances for OpenStack {
    async fn find(&self, asked: &[InstanceRef]) -> Vec<Result<InstanceState>> {
        self.describe(&[], asked).await
    }

    async fn list(&self, page: Option<&PageToken>) -> Result<InstancePage> {
        let page = self.page(page.map(|token| token.0.as_str())).await?;
        let instances = page.servers.iter().map(in_brief).collect();
        let brief = page.servers.into_iter().map(|server| (server.id.clone(), Opaque::new(server))).collect();
        Ok(InstancePage { instances, next: page.next.map(PageToken), unread: page.unread, brief })
    }

    async fn describe(&self, brief: &[Opaque], asked: &[InstanceRef]) -> Vec<Result<InstanceState>> {
        let listed: Vec<Option<&Server>> = brief.iter().map(Opaque::get).collect();
        let sought: Vec<_> = asked.iter().map(|asked| self.identify(asked)).collect();
        let own = sought.iter().flatten().filter(|identity| **identity != Identity::NotMine);
        let found = self.look_up(own.cloned().collect()).await;
        let servers = listed.iter().copied().flatten().chain(found.values().flatten().flatten());
        let details = self.read_details(&each_once(servers)).await;
        let answer = |identity: Result<Identity>| match found.get(&identity?) {
            None => Ok(InstanceState::NotMine),
            Some(Ok(None)) => Ok(InstanceState::Gone),
            Some(Ok(Some(server))) => self.state(server, &details),
            Some(Err(error)) => Err(error.clone()),
        };
        let listed = listed.into_iter().map(|server| self.state(server.ok_or_else(not_listed)?, &details));
        listed.chain(sought.into_iter().map(answer)).collect()
    }

    fn identify(&self, asked: &InstanceRef) -> Result<Identity> {
        let Some(id) = &asked.provider_id else { return Ok(Identity::Name(asked.node.as_str().to_owned())) };
        if !owns(id) {
            return Ok(Identity::NotMine);
        }
        self.ids().read(id).map(Identity::Id)
    }
}

/// A server may be asked for by its ID and by its name.
fn each_once<'a>(servers: impl Iterator<Item = &'a Server>) -> Vec<&'a Server> {
    let mut seen = HashSet::new();
    servers.filter(|server| seen.insert(server.id.as_str())).collect()
}

impl OpenStack {
    /// How provider IDs are written and read here.
    pub(crate) fn ids(&self) -> Ids {
        Ids::new(&self.config.global.region, self.config.regional)
    }

    /// Reads what Nova's answer about these servers does not have: flavors and ports.
    async fn read_details(&self, servers: &[&Server]) -> Details<'_> {
        let ids: Vec<_> = servers.iter().map(|server| server.id.as_str()).collect();
        let types = self.learn_types(servers.iter().map(|server| &server.flavor));
        let (types, ports) = futures::join!(types, self.ports_of(&ids));
        Details { types, ports }
    }

    /// The answer to a question about this server. That it exists is Nova's to say, and told also if the rest cannot be read.
    fn state(&self, server: &Server, details: &Details<'_>) -> Result<InstanceState> {
        let described = details.types.of(&server.flavor).and_then(|kind| self.instance(server, kind, &details.ports));
        let seen = if server.is_shut_off() { KnownState::Stopped } else { KnownState::Running };
        described.map(|instance| in_state(server, instance)).map_err(|error| error.with_known_state(seen))
    }

    fn instance(&self, server: &Server, instance_type: String, ports: &Ports) -> Result<Instance> {
        let options = &self.config.networking;
        Ok(Instance {
            id: server.id.clone(),
            name: server.name.clone(),
            provider_id: Some(self.ids().write(&server.id)),
            instance_type,
            zone: label_value(&server.availability_zone),
            region: self.config.global.region.clone(),
            addresses: addresses::addresses(server, &ports.of(&server.id)?, &ports.on_trunks_of(&server.id), options),
            ..Instance::default()
        })
    }
}

/// Flavors and ports of servers, and why some of them are not known.
struct Details<'a> {
    types: Types<'a>,
    ports: Ports,
}

impl Server {
    /// It counts as stopped.
    fn is_shut_off(&self) -> bool {
        self.status == SHUTOFF
    }
}

/// Returns the ID and the name alone.
fn in_brief(server: &Server) -> InstanceState {
    in_state(server, Instance { id: server.id.clone(), name: server.name.clone(), ..Instance::default() })
}

fn not_listed() -> Error {
    Error::new(ErrorKind::Unexpected, "describe instances", "this value does not come from a listing of Nova servers")
}

fn in_state(server: &Server, instance: Instance) -> InstanceState {
    let instance = Arc::new(instance);
    if server.is_shut_off() { InstanceState::Stopped(instance) } else { InstanceState::Running(instance) }
}
