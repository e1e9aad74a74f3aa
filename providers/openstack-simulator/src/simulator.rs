//! State of the simulated cloud, and dispatch of requests to its services.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::time::Duration;

use bowline_simulator::{Clock, Ids, Locked, Operation, Views};

use crate::fixture::{self, Fixture};
use crate::identity::Identity;
use crate::octavia::{self, Workload};
use crate::options::Options;
use crate::records::Records;
use crate::wire::{Call, Reply, Service};
use crate::{compute, identity, network, secrets};

/// A simulated OpenStack cloud. Clones share the same state.
///
/// [`bowline_simulator::Simulator`] provides faults, the journal and the HTTP server.
#[derive(Clone)]
pub struct Simulator {
    cloud: bowline_simulator::Simulator<State>,
}

impl Deref for Simulator {
    type Target = bowline_simulator::Simulator<State>;

    fn deref(&self) -> &Self::Target {
        &self.cloud
    }
}

/// State of the cloud.
pub struct State {
    pub(crate) options: Options,
    pub(crate) clock: Clock,
    pub(crate) ids: Ids,
    pub(crate) fixture: Fixture,
    pub(crate) identity: Identity,
    pub(crate) records: Records,
    pub(crate) work: Workload,
    /// Quotas of the project, by resource.
    pub(crate) quotas: BTreeMap<String, u64>,
    /// Subnets that allocate no more addresses, whatever their size.
    pub(crate) exhausted: BTreeSet<String>,
}

impl Simulator {
    /// Creates a cloud with a project, a network, a router and an external network, without servers.
    pub fn new(options: Options) -> Simulator {
        let (latency, close_connections) = (options.latency, options.close_connections);
        let mut state = State {
            clock: Clock::new(),
            ids: Ids::default(),
            fixture: Fixture::default(),
            identity: Identity::default(),
            records: Records::default(),
            work: Workload::default(),
            exhausted: BTreeSet::new(),
            quotas: options.quotas.iter().cloned().collect(),
            options,
        };
        fixture::populate(&mut state);
        let cloud = bowline_simulator::Simulator::new(state);
        cloud.set_latency(latency);
        cloud.close_connections(close_connections);
        Simulator { cloud }
    }

    pub(crate) fn state(&self) -> Locked<'_, State> {
        self.cloud.service()
    }
}

impl bowline_simulator::Service for State {
    fn answer(&mut self, call: &bowline_simulator::Call) -> Reply {
        let Some(call) = Call::read(call) else { return Reply::text(404, "unknown service") };
        let outcome = match call.service {
            Service::Identity => identity::answer(self, &call),
            Service::Compute => compute::answer(self, &call),
            Service::Network => network::answer(self, &call),
            Service::LoadBalancer => octavia::answer(self, &call),
            Service::KeyManager => secrets::answer(self, &call),
        };
        outcome.unwrap_or_else(|error| error)
    }

    fn operation(&self, call: &bowline_simulator::Call) -> Operation {
        Call::read(call).map_or_else(|| Operation::of_path(call), |call| call.operation())
    }

    fn settle(&mut self) {
        octavia::settle(self);
    }

    fn views(&mut self) -> Option<&mut dyn Views> {
        Some(&mut self.records)
    }
}

impl State {
    /// Quota of the project for this resource.
    pub(crate) fn quota(&self, name: &str) -> Option<u64> {
        self.quotas.get(name).copied()
    }

    /// Current date in the format of Neutron and Nova.
    pub(crate) fn with_zone(&self) -> String {
        self.clock.format("%Y-%m-%dT%H:%M:%SZ")
    }

    /// Current date in the format of Octavia.
    pub(crate) fn without_zone(&self) -> String {
        self.clock.format("%Y-%m-%dT%H:%M:%S")
    }

    /// Date after this duration in the format of Keystone.
    pub(crate) fn with_micros(&self, ahead: Duration) -> String {
        self.clock.date_in(ahead).strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string()
    }
}
