//! A provider on an in-process simulated cloud.

use std::sync::Arc;

use bowline_cloud::layers::{LayerOptions, Layered};
use bowline_cloud::{Calls, Freshness, Instances as _};
use bowline_core::{Instance, InstanceRef, InstanceState, ProviderId};
use bowline_openstack::config::{Credential, Global, Scope, User};
use bowline_openstack::{Config, OpenStack};
use bowline_openstack_simulator::{Detail, Golden, Options, Simulator};

/// Golden journals of all tests.
const JOURNALS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suite/machines/journals.txt");

/// A cloud and its provider.
pub(crate) struct Cloud {
    pub(crate) simulator: Simulator,
    pub(crate) provider: Arc<OpenStack>,
    pub(crate) layers: Layered,
    golden: Option<Golden>,
}

impl Cloud {
    /// The default cloud and configuration.
    pub(crate) fn new() -> Cloud {
        Cloud::with(Options::default(), |_| {})
    }

    /// With a changed configuration.
    pub(crate) fn configured(change: impl FnOnce(&mut Config)) -> Cloud {
        Cloud::with(Options::default(), change)
    }

    pub(crate) fn with(options: Options, change: impl FnOnce(&mut Config)) -> Cloud {
        let simulator = Simulator::new(options);
        let provider = Arc::new(provider(&simulator, change));
        let (over, registry) = (Arc::clone(&provider), prometheus::Registry::new());
        let layers = Layered::new(over, "openstack", &LayerOptions::default(), &registry);
        Cloud { golden: Some(simulator.golden(JOURNALS, Detail::Exact)), simulator, provider, layers }
    }

    /// Without a journal, for tests that count hundreds of equal calls.
    pub(crate) fn unrecorded(mut self) -> Cloud {
        // Not dropped, because that compares.
        std::mem::forget(self.golden.take());
        self
    }

    /// Looks up one instance.
    pub(crate) async fn find(&self, refs: InstanceRef) -> bowline_cloud::Result<InstanceState> {
        self.provider.find(&[refs]).await.remove(0)
    }

    /// Looks up instances in one batch, through the layers, which list or read them.
    pub(crate) async fn find_all(&self, refs: &[InstanceRef]) -> Vec<bowline_cloud::Result<InstanceState>> {
        self.layers.find_instances(refs, Freshness::Now).await
    }

    /// Returns the description of an existing server.
    pub(crate) async fn instance(&self, id: &str) -> Instance {
        let state = self.find(with_id("node", &format!("openstack:///{id}"))).await.unwrap();
        Instance::clone(state.instance().unwrap())
    }

    /// Returns the number of calls since the last count, without those to Keystone.
    pub(crate) fn calls(&self) -> u64 {
        let counts = self.simulator.counts();
        self.simulator.forget_calls();
        counts.into_iter().filter(|(call, _)| !call.contains("auth/tokens")).map(|(_, count)| count).sum()
    }
}

/// A provider for this cloud.
pub(crate) fn provider(simulator: &Simulator, change: impl FnOnce(&mut Config)) -> OpenStack {
    provider_past(simulator, &Calls::default(), change)
}

/// A provider for this cloud, with this call policy.
pub(crate) fn provider_past(simulator: &Simulator, calls: &Calls, change: impl FnOnce(&mut Config)) -> OpenStack {
    let fixture = simulator.fixture();
    let mut config = Config {
        global: Global {
            auth_url: "http://cloud.example/identity".to_owned(),
            credential: Credential::Password { user: User::Id(fixture.user), password: fixture.password.into() },
            scope: Scope::ProjectId(fixture.project),
            region: "RegionOne".to_owned(),
            interface: "public".to_owned(),
            ..Global::default()
        },
        router_id: Some(fixture.router),
        ..Config::default()
    };
    change(&mut config);
    let client = simulator.client(config.request_timeout);
    OpenStack::past(config, &client, calls)
}

pub(crate) fn named(node: &str) -> InstanceRef {
    InstanceRef { node: node.into(), provider_id: None, system_uuid: None }
}

pub(crate) fn with_id(node: &str, id: &str) -> InstanceRef {
    InstanceRef { provider_id: ProviderId::new(id), ..named(node) }
}

/// Returns the addresses of a machine as text.
pub(crate) fn addresses(instance: &Instance) -> Vec<String> {
    instance.addresses.iter().map(|address| address.to_string()).collect()
}
