//! Servers of Nova with their ports in Neutron, as machines.
//!
//! ```text
//!  questions ──► search: servers, one by one or in a listing ──► ports of those, and flavors not known yet
//!                                                                   └─► addresses, labels, ID ──► answers
//! ```
//!
//! Whether a server exists and runs is told by Nova alone: neither a Neutron that does not answer nor a flavor that is gone
//! keeps anybody from being told. What then fails is the description, with the words of [`Error::but_seen`].

mod addresses;
mod flavors;
mod id;
mod labels;
mod ports;
mod search;

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use bowline_cloud::{Error, ErrorKind, Identity, InstancePage, Instances, PageToken, Result, Seen};
use bowline_core::{Instance, InstanceRef, InstanceState};

use crate::OpenStack;
use crate::api::compute::Server;

pub(crate) use flavors::Flavors;
use flavors::Types;
pub(crate) use id::{Ids, owns};
use ports::Ports;
pub(crate) use search::{Census, PAGE};

const FIND: &str = "find instances";

/// The only status in which a server counts as stopped.
// upstream: paused, suspended and shelved ones run.
const SHUTOFF: &str = "SHUTOFF";

#[async_trait]
impl Instances for OpenStack {
    async fn find(&self, asked: &[InstanceRef]) -> Vec<Result<InstanceState>> {
        let sought: Vec<_> = asked.iter().map(|asked| self.identify(asked)).collect();
        let own = sought.iter().flatten().filter(|identity| **identity != Identity::NotMine);
        let found = self.search(own.cloned().collect()).await;
        let servers = found.values().flatten().flatten();
        let details = self.read_details(&each_once(servers)).await;
        let answer = |identity: Result<Identity>| match found.get(&identity?) {
            None => Ok(InstanceState::NotMine),
            Some(Ok(None)) => Ok(InstanceState::Gone),
            Some(Ok(Some(server))) => self.state(server, &details),
            Some(Err(error)) => Err(error.clone()),
        };
        sought.into_iter().map(answer).collect()
    }

    async fn list(&self, page: Option<&PageToken>) -> Result<InstancePage> {
        let page = self.page(page.map(|token| token.0.as_str())).await?;
        // A listing is complete, or it is none.
        if page.unread > 0 {
            let message = format!("{} of the servers on this page cannot be read; the log says which", page.unread);
            return Err(Error::new(ErrorKind::Unexpected, "list servers", message));
        }
        let details = self.read_details(&each_once(page.servers.iter())).await;
        let instances = page.servers.iter().map(|server| self.listed(server, &details)).collect::<Result<_>>()?;
        Ok(InstancePage { instances, next: page.next.map(PageToken) })
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

    /// All that is to be known of these servers beyond what they say of themselves.
    async fn read_details(&self, servers: &[&Server]) -> Details<'_> {
        let ids: Vec<_> = servers.iter().map(|server| server.id.as_str()).collect();
        let types = self.learn_types(servers.iter().map(|server| &server.flavor));
        let (types, ports) = futures::join!(types, self.ports_of(&ids));
        Details { types, ports }
    }

    /// The answer to a question about this server. That it exists is Nova's to say, and told also if the rest cannot be read.
    fn state(&self, server: &Server, details: &Details<'_>) -> Result<InstanceState> {
        let described = details.types.of(&server.flavor).and_then(|kind| self.instance(server, kind, &details.ports));
        let seen = if server.is_shut_off() { Seen::Stopped } else { Seen::Running };
        described.map(|instance| in_state(server, instance)).map_err(|error| error.but_seen(seen))
    }

    /// The same in a listing, which may have servers of others: one whose flavor is not known spoils none of the rest.
    fn listed(&self, server: &Server, details: &Details<'_>) -> Result<InstanceState> {
        let kind = details.types.of(&server.flavor).unwrap_or_default();
        Ok(in_state(server, self.instance(server, kind, &details.ports)?))
    }

    fn instance(&self, server: &Server, instance_type: String, ports: &Ports) -> Result<Instance> {
        let options = &self.config.networking;
        Ok(Instance {
            id: server.id.clone(),
            name: server.name.clone(),
            provider_id: Some(self.ids().write(&server.id)),
            instance_type,
            zone: labels::label_value(&server.availability_zone),
            region: self.config.global.region.clone(),
            addresses: addresses::addresses(server, &ports.of(&server.id)?, &ports.on_trunks_of(&server.id), options),
            ..Instance::default()
        })
    }
}

/// What is to be known of servers beyond what they say of themselves, and why some of it is not.
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

fn in_state(server: &Server, instance: Instance) -> InstanceState {
    let instance = Arc::new(instance);
    if server.is_shut_off() { InstanceState::Stopped(instance) } else { InstanceState::Running(instance) }
}
