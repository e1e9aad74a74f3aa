//! A provider on a simulated account with two Nodes, and a Service.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::{BuildInputs, CloudProvider, LoadBalancers, Result};
use bowline_config::Environment;
use bowline_core::annotations::read_leniently;
use bowline_core::testing::{addresses, annotated, service};
use bowline_core::{ClusterName, DesiredLoadBalancer, LoadBalancerState, Plan, ProviderId, Service, TargetNode};
use bowline_digitalocean::{Config, DigitalOcean};
use bowline_digitalocean_simulator::{Entry, NewDroplet, Options, REGION, Record, Simulator, TOKEN};
use bowline_simulator::drive::{Desired, Driver, Settled};

pub(crate) const LB: &str = "service.beta.kubernetes.io/do-loadbalancer-";
pub(crate) const ID: &str = "kubernetes.digitalocean.com/load-balancer-id";
pub(crate) const TYPE: &str = "service.beta.kubernetes.io/do-loadbalancer-type";
pub(crate) const UID: &str = "a0b1c2d3-e4f5-0617-2839-4a5b6c7d8e9f";

/// Name of the load balancer of [`web`].
pub(crate) const NAME: &str = "aa0b1c2d3e4f5061728394a5b6c7d8e9";

pub(crate) struct World {
    pub(crate) cloud: Simulator,
    pub(crate) provider: DigitalOcean,
    pub(crate) nodes: Vec<TargetNode>,
}

/// The Service `default/web` with these annotations below [`LB`].
pub(crate) fn web(annotations: &[(&str, &str)]) -> Service {
    let keys: Vec<_> = annotations.iter().map(|(key, value)| (format!("{LB}{key}"), *value)).collect();
    let keys: Vec<_> = keys.iter().map(|(key, value)| (key.as_str(), *value)).collect();
    annotated(Service { uid: UID.to_owned(), ..service("default/web") }, &keys)
}

/// A Service that keeps the annotations which the manager writes.
pub(crate) struct Kept {
    pub(crate) service: Service,
    pub(crate) nodes: Vec<TargetNode>,
    pub(crate) provider: DigitalOcean,
    pub(crate) is_deleted: bool,
}

impl Kept {
    pub(crate) fn annotation(&self, key: &str) -> Option<&str> {
        self.service.annotations.get(key).map(String::as_str)
    }
}

impl Desired for Kept {
    fn desired(&self) -> DesiredLoadBalancer {
        let common = read_leniently(&self.service.annotations).0;
        let settings =
            LoadBalancers::settings(&self.provider, &self.service.annotations, common.clone()).unwrap_or(common);
        let cluster = ClusterName::from("kubernetes");
        match self.is_deleted {
            true => bowline_core::service::desired_cleanup(&cluster, &self.service, &settings),
            false => {
                bowline_core::service::desired(&cluster, &self.service, &settings, self.nodes.clone().into()).unwrap()
            }
        }
    }

    fn annotate(&mut self, annotations: BTreeMap<String, String>) {
        Arc::make_mut(&mut self.service.annotations).extend(annotations);
    }
}

impl World {
    /// Starts with the cluster ID `c1`.
    pub(crate) async fn new() -> World {
        World::with(Options::default(), &[("DO_CLUSTER_ID", "c1")]).await
    }

    pub(crate) async fn with(options: Options, variables: &[(&str, &str)]) -> World {
        let cloud = Simulator::new(options);
        let provider = provider(&cloud, variables);
        provider.start().await.unwrap();
        let nodes = ["node-1", "node-2"].map(|name| node(&cloud, name)).into();
        cloud.forget_calls();
        World { cloud, provider, nodes }
    }

    pub(crate) fn kept(&self, service: Service) -> Kept {
        Kept { service, nodes: self.nodes.clone(), provider: self.provider.clone(), is_deleted: false }
    }

    pub(crate) fn driver(&self) -> Driver<'_> {
        Driver::new(&self.provider)
    }

    /// Syncs a Service until its plan is empty.
    pub(crate) async fn sync(&self, service: &mut Kept) -> Result<Settled> {
        self.driver().settle(service).await
    }

    /// Syncs a Service that must succeed.
    pub(crate) async fn synced(&self, service: &mut Kept) -> LoadBalancerState {
        self.sync(service).await.unwrap().state.unwrap()
    }

    pub(crate) async fn planned(&self, service: &mut Kept) -> Result<Plan> {
        self.driver().plan(service).await.map(|(_, plan)| plan)
    }

    /// The only load balancer.
    pub(crate) fn load_balancer(&self) -> Record {
        let mut all = self.cloud.records("load_balancers");
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    /// Calls since the last time, in order: `GET load_balancers/{id}`.
    pub(crate) fn calls(&self) -> Vec<String> {
        let calls = self.cloud.journal().iter().map(call).collect();
        self.cloud.forget_calls();
        calls
    }

    /// Bodies of the writes since the last time.
    pub(crate) fn writes(&self) -> Vec<String> {
        let writes = self.cloud.writes().iter().map(call).collect();
        self.cloud.forget_calls();
        writes
    }
}

/// Method and kind of a call.
fn call(entry: &Entry) -> String {
    format!("{} {}", entry.method, entry.template)
}

/// Configuration from the environment, in the region of the simulator.
pub(crate) fn config(variables: &[(&str, &str)]) -> Config {
    let defaults = [("DO_ACCESS_TOKEN", TOKEN), ("DO_OVERRIDE_URL", "http://do.test"), ("REGION", REGION)];
    let variables: BTreeMap<_, _> = defaults.into_iter().chain(variables.iter().copied()).collect();
    let inputs = BuildInputs { environment: Environment::from_iter(variables), ..BuildInputs::default() };
    Config::read(&inputs.context(None, &ClusterName::from("kubernetes"))).unwrap()
}

/// Builds a provider that calls the simulator in process.
pub(crate) fn provider(cloud: &Simulator, variables: &[(&str, &str)]) -> DigitalOcean {
    let client = cloud.client(Duration::from_secs(30));
    DigitalOcean::over(config(variables), client, &ClusterName::from("kubernetes")).unwrap()
}

/// Adds a Droplet, and returns its Node.
pub(crate) fn node(cloud: &Simulator, name: &str) -> TargetNode {
    let id = cloud.add_droplet(NewDroplet::named(name));
    TargetNode {
        node: name.into(),
        provider_id: Some(ProviderId::of("digitalocean", &id.to_string())),
        addresses: addresses("I10.108.0.9 E198.18.0.9"),
        draining: false,
    }
}
