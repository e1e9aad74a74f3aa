//! Nova servers with their Neutron ports, as machines.
//!
//! ```text
//!  find ──► servers, one by one ───────────────────────┬─► their ports, and uncached flavors
//!  list ──► a page of server summaries ──► describe ───┘      └─► addresses, labels, ID ──► results
//! ```
//!
//! Nova alone decides whether a server exists and runs. If Neutron does not respond or a flavor is deleted, only the description
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
// upstream: paused, suspended and shelved servers count as running.
const SHUTOFF: &str = "SHUTOFF";

#[async_trait]
impl Instances for OpenStack {
    async fn find(&self, refs: &[InstanceRef]) -> Vec<Result<InstanceState>> {
        self.describe(&[], refs).await
    }

    async fn list(&self, page: Option<&PageToken>) -> Result<InstancePage> {
        let page = self.page(page.map(|token| token.0.as_str())).await?;
        let instances = page.servers.iter().map(summary).collect();
        let brief = page.servers.into_iter().map(|server| (server.id.clone(), Opaque::new(server))).collect();
        Ok(InstancePage { instances, next: page.next.map(PageToken), unread: page.unread, brief })
    }

    async fn describe(&self, brief: &[Opaque], refs: &[InstanceRef]) -> Vec<Result<InstanceState>> {
        let listed: Vec<Option<&Server>> = brief.iter().map(Opaque::get).collect();
        let identities: Vec<_> = refs.iter().map(|refs| self.identify(refs)).collect();
        let own = identities.iter().flatten().filter(|identity| **identity != Identity::NotMine);
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
        listed.chain(identities.into_iter().map(answer)).collect()
    }

    fn identify(&self, refs: &InstanceRef) -> Result<Identity> {
        let Some(id) = &refs.provider_id else { return Ok(Identity::Name(refs.node.as_str().to_owned())) };
        if !owns(id) {
            return Ok(Identity::NotMine);
        }
        self.ids().read(id).map(Identity::Id)
    }
}

/// Removes duplicates: a server may be requested by ID and by name.
fn each_once<'a>(servers: impl Iterator<Item = &'a Server>) -> Vec<&'a Server> {
    let mut seen = HashSet::new();
    servers.filter(|server| seen.insert(server.id.as_str())).collect()
}

impl OpenStack {
    /// Returns the format of provider IDs.
    pub(crate) fn ids(&self) -> Ids {
        Ids::new(&self.config.global.region, self.config.regional)
    }

    /// Reads flavors and ports, which Nova's response does not contain.
    async fn read_details(&self, servers: &[&Server]) -> Details<'_> {
        let ids: Vec<_> = servers.iter().map(|server| server.id.as_str()).collect();
        let types = self.read_types(servers.iter().map(|server| &server.flavor));
        let (types, ports) = futures::join!(types, self.ports_of(&ids));
        Details { types, ports }
    }

    /// Returns the state of a server. It is returned even if its description fails.
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

/// Flavors and ports of servers, and errors of the missing ones.
struct Details<'a> {
    types: Types<'a>,
    ports: Ports,
}

impl Server {
    /// Returns whether it counts as stopped.
    fn is_shut_off(&self) -> bool {
        self.status == SHUTOFF
    }
}

/// Returns ID and name alone.
fn summary(server: &Server) -> InstanceState {
    in_state(server, Instance { id: server.id.clone(), name: server.name.clone(), ..Instance::default() })
}

fn not_listed() -> Error {
    Error::new(ErrorKind::Unexpected, "describe instances", "this value does not come from a listing of Nova servers")
}

fn in_state(server: &Server, instance: Instance) -> InstanceState {
    let instance = Arc::new(instance);
    if server.is_shut_off() { InstanceState::Stopped(instance) } else { InstanceState::Running(instance) }
}
