//! Ports of servers, in batches, and their trunk subports.

use std::collections::{BTreeSet, HashMap};

use bowline_cloud::{Error, Result};
use futures::stream::{self, StreamExt as _};
use serde::de::DeserializeOwned;

use super::addresses::TrunkPort;
use super::lookup::PARALLEL;
use crate::OpenStack;
use crate::api::Collection;
use crate::api::network::{self, Port};

/// Maximum number of IDs in one query. An ID and its key take some 50 bytes, and proxies reject a line of more than 8,000.
pub(crate) const IDS: usize = 100;

/// Ports of some servers, and their trunk subports.
#[derive(Default)]
pub(super) struct Ports {
    /// By server, in Neutron's order.
    by_server: HashMap<String, Vec<Port>>,
    /// Servers whose ports could not be read.
    failures: HashMap<String, Error>,
    /// By port ID.
    on_trunks: HashMap<String, TrunkPort>,
}

impl Ports {
    /// Returns the ports of this server.
    pub(super) fn of(&self, server: &str) -> Result<Vec<&Port>> {
        match self.failures.get(server) {
            Some(error) => Err(error.clone()),
            None => Ok(self.by_server.get(server).into_iter().flatten().collect()),
        }
    }

    /// Returns the trunk subports of this server that could be read.
    pub(super) fn on_trunks_of(&self, server: &str) -> Vec<TrunkPort> {
        let ports = self.by_server.get(server).into_iter().flatten();
        ports.flat_map(trunk_port_ids).filter_map(|id| self.on_trunks.get(id)).cloned().collect()
    }

    /// Adds the result of a query about these servers.
    fn take(&mut self, servers: Vec<String>, answer: Result<Vec<Port>>) {
        match answer {
            Ok(ports) => {
                for port in ports {
                    self.by_server.entry(port.device_id.clone()).or_default().push(port);
                }
            }
            Err(error) => self.failures.extend(servers.into_iter().map(|id| (id, error.clone()))),
        }
    }

    fn trunk_port_ids(&self) -> BTreeSet<&str> {
        self.by_server.values().flatten().flat_map(trunk_port_ids).collect()
    }
}

fn trunk_port_ids(port: &Port) -> impl Iterator<Item = &str> {
    port.trunk_details.sub_ports.iter().map(|sub_port| sub_port.port_id.as_str())
}

impl OpenStack {
    /// Reads the ports of these servers.
    pub(super) async fn ports_of(&self, servers: &[&str]) -> Ports {
        let chunks: Vec<Vec<String>> =
            servers.chunks(IDS).map(|chunk| chunk.iter().map(|id| (*id).to_owned()).collect()).collect();
        let read = stream::iter(chunks).map(|chunk| async move {
            let query: Vec<_> = chunk.iter().map(|id| ("device_id", id.as_str())).collect();
            let answer = network::PORTS.list(&self.session, &query).await;
            (chunk, answer.map_err(|error| error.during("list ports")))
        });
        let mut ports = Ports::default();
        // In the order of the queries: that of the responses varies.
        for (chunk, answer) in read.buffered(PARALLEL).collect::<Vec<_>>().await {
            ports.take(chunk, answer);
        }
        ports.on_trunks = self.on_trunks(&ports.trunk_port_ids().into_iter().collect::<Vec<_>>()).await;
        ports
    }

    /// Reads these ports with the names of their networks. Errors are logged: the server has other addresses.
    async fn on_trunks(&self, ids: &[&str]) -> HashMap<String, TrunkPort> {
        let found: Vec<Port> = self.readable(&network::PORTS, ids).await;
        let networks = self.network_names(&found).await;
        let named = |port: Port| {
            let network = networks.get(&port.network_id)?.clone();
            Some((port.id.clone(), TrunkPort { network, port }))
        };
        let named: HashMap<_, _> = found.into_iter().filter_map(named).collect();
        for id in ids.iter().filter(|id| !named.contains_key(**id)) {
            tracing::warn!(port = id, "a trunk subport or its network does not exist: its addresses are left out");
        }
        named
    }

    async fn network_names(&self, ports: &[Port]) -> HashMap<String, String> {
        let ids: BTreeSet<_> = ports.iter().map(|port| port.network_id.as_str()).collect();
        let networks = self.readable(&network::NETWORKS, &ids.into_iter().collect::<Vec<_>>()).await;
        networks.into_iter().map(|network| (network.id, network.name)).collect()
    }

    /// Reads those of these IDs that exist.
    async fn readable<T: DeserializeOwned>(&self, all: &Collection<T>, ids: &[&str]) -> Vec<T> {
        let mut found = Vec::new();
        for chunk in ids.chunks(IDS) {
            let query: Vec<_> = chunk.iter().map(|id| ("id", *id)).collect();
            match all.list(&self.session, &query).await {
                Ok(read) => found.extend(read),
                Err(error) => tracing::warn!(%error, kind = all.resource.name, "could not read trunk subports"),
            }
        }
        found
    }
}
