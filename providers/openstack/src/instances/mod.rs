//! Servers of Nova with their ports in Neutron, as machines.
//!
//! ```text
//!  questions ──► search: servers, one by one or in a listing ──► ports of those, and flavors not known yet
//!                                                                   └─► addresses, labels, ID ──► answers
//! ```
//!
//! A server that is gone is told by Nova alone: a Neutron that does not answer keeps nobody from being told.

mod addresses;
mod flavors;
mod id;
mod labels;
mod ports;
mod search;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use bowline_cloud::{Identity, InstancePage, Instances, PageToken, Result};
use bowline_core::{Instance, InstanceRef, InstanceState};

use crate::OpenStack;
use crate::api::compute::Server;

pub(crate) use flavors::Flavors;
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
        let told = self.describe(&each_once(servers)).await;
        let answer = |identity: Result<Identity>| match found.get(&identity?) {
            None => Ok(InstanceState::NotMine),
            Some(Ok(None)) => Ok(InstanceState::Gone),
            Some(Ok(Some(server))) => told.state(server),
            Some(Err(error)) => Err(error.clone()),
        };
        sought.into_iter().map(answer).collect()
    }

    async fn list(&self, page: Option<&PageToken>) -> Result<InstancePage> {
        let page = self.page(page.map(|token| token.0.as_str())).await?;
        let told = self.describe(&each_once(page.items.iter())).await;
        let instances = page.items.iter().map(|server| told.listed(server)).collect::<Result<_>>()?;
        Ok(InstancePage { instances, next: page.next.map(PageToken) })
    }

    fn identify(&self, asked: &InstanceRef) -> Result<Identity> {
        let Some(id) = &asked.provider_id else { return Ok(Identity::Name(asked.node.as_str().to_owned())) };
        if !owns(id) {
            return Ok(Identity::NotMine);
        }
        // Nova finds a server by its ID in capitals, too, and tells of it in small letters.
        Ok(Identity::Id(self.ids().read(id)?.to_ascii_lowercase()))
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

    /// All that is to be said of these servers.
    async fn describe(&self, servers: &[&Server]) -> Descriptions {
        let ids: Vec<_> = servers.iter().map(|server| server.id.as_str()).collect();
        let types = self.learn_types(servers.iter().map(|server| &server.flavor));
        let (types, ports) = futures::join!(types, self.ports_of(&ids));
        let described = servers.iter().map(|server| {
            let description = self.description(server, types.of(&server.flavor), &ports);
            (server.id.clone(), description)
        });
        Descriptions(described.collect())
    }

    fn description(&self, server: &Server, instance_type: Result<String>, ports: &Ports) -> Result<Description> {
        let options = &self.config.networking;
        let instance = Instance {
            id: server.id.clone(),
            name: server.name.clone(),
            provider_id: Some(self.ids().write(&server.id)),
            zone: labels::label_value(&server.availability_zone),
            region: self.config.global.region.clone(),
            addresses: addresses::addresses(server, &ports.of(&server.id)?, &ports.on_trunks_of(&server.id), options),
            ..Instance::default()
        };
        Ok(Description { instance, instance_type })
    }
}

/// What is said of servers, by their IDs.
struct Descriptions(HashMap<String, Result<Description>>);

/// What is said of one.
#[derive(Clone)]
struct Description {
    /// All but its type.
    instance: Instance,
    instance_type: Result<String>,
}

impl Descriptions {
    /// The answer to a question about this server. One that is stopped is told so even if its flavor is not known any more:
    /// its Node has its labels already, and is not to wait for them.
    fn state(&self, server: &Server) -> Result<InstanceState> {
        match self.of(server)? {
            Description { instance_type: Err(error), .. } if server.status != SHUTOFF => Err(error),
            description => Ok(description.state(server)),
        }
    }

    /// The same in a listing, which may have servers of others: one whose flavor is not known spoils none of the rest.
    fn listed(&self, server: &Server) -> Result<InstanceState> {
        Ok(self.of(server)?.state(server))
    }

    fn of(&self, server: &Server) -> Result<Description> {
        let missing = || {
            let message = format!("nothing was read of the server {}", server.id);
            Err(bowline_cloud::Error::new(bowline_cloud::ErrorKind::Unexpected, FIND, message))
        };
        self.0.get(&server.id).cloned().unwrap_or_else(missing)
    }
}

impl Description {
    fn state(self, server: &Server) -> InstanceState {
        let instance = Arc::new(Instance { instance_type: self.instance_type.unwrap_or_default(), ..self.instance });
        if server.status == SHUTOFF { InstanceState::Stopped(instance) } else { InstanceState::Running(instance) }
    }
}
