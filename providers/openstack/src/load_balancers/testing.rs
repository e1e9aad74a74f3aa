//! Test fixtures for load balancers: a Service with its nodes, a configuration, the features of Octavia, and a model of the cloud
//! to which the steps of a plan are applied without any call.

mod model;

use std::sync::Arc;

use bowline_cloud::{Error, Result};
use bowline_core::service::{ServicePort, desired, desired_cleanup, read};
use bowline_core::testing::{addresses, annotated, service, service_port, target};
use bowline_core::{
    DesiredLoadBalancer, IpFamily, Plan, Protocol, ProviderId, Service, SessionAffinity, TargetNode, TrafficPolicy,
};
use serde_json::Value;

use super::annotations::TABLE;
use super::change::{Change, Payload};
use super::observation::{Features, Found, Observation, Placement};
use super::plan::plan;
use super::settings::{Settings, common_settings};
use crate::Config;
use crate::api::octavia::LoadBalancer;
use crate::config::LoadBalancer as Section;

/// Load balancer name of the default Service.
pub(super) const LB_NAME: &str = "kube_service_kubernetes_default_web";

/// A Service and its cloud.
#[derive(Debug, Clone)]
pub(super) struct Scene {
    pub(super) config: Config,
    pub(super) cluster: String,
    pub(super) service: Service,
    pub(super) nodes: Vec<TargetNode>,
    pub(super) seen: Observation,
}

pub(super) fn config() -> Config {
    Config { load_balancer: Section { internal: true, ..Section::default() }, ..Config::default() }
}

/// Returns a node with these addresses, in the notation of the core's tests.
pub(super) fn node(name: &str, reached_at: &str) -> TargetNode {
    let provider_id = Some(ProviderId::of("openstack", &format!("/server-of-{name}")));
    TargetNode { addresses: addresses(reached_at), provider_id, ..target(name) }
}

impl Scene {
    /// The Service `default/web` of the cluster `kubernetes` with port 80 and two nodes, on Octavia 2.26 with amphora and without
    /// resources. It is internal, so that floating IPs do not matter.
    pub(super) fn new() -> Scene {
        let placement = Placement {
            vip_subnet_id: "subnet".to_owned(),
            member_subnet_id: "subnet".to_owned(),
            ..Placement::default()
        };
        Scene {
            config: config(),
            cluster: "kubernetes".to_owned(),
            service: service("default/web"),
            nodes: vec![node("n1", "I10.0.0.1"), node("n2", "I10.0.0.2")],
            seen: Observation { features: Features::of(["v2.26"], "amphora"), placement, ..Observation::default() },
        }
    }

    pub(super) fn octavia(mut self, version: &str) -> Scene {
        self.seen.features = Features::of([version], &self.config.load_balancer.provider);
        self
    }

    pub(super) fn provider(mut self, provider: &str) -> Scene {
        self.config.load_balancer.provider = provider.to_owned();
        self.octavia("v2.26")
    }

    pub(super) fn configured(mut self, change: impl FnOnce(&mut Section)) -> Scene {
        change(&mut self.config.load_balancer);
        self
    }

    /// The Service `default/NAME`.
    pub(super) fn named(mut self, name: &str) -> Scene {
        (self.service.name, self.service.uid) = (name.to_owned(), format!("uid-of-{name}"));
        self
    }

    pub(super) fn in_cluster(mut self, cluster: &str) -> Scene {
        self.cluster = cluster.to_owned();
        self
    }

    /// Adds an annotation of this cloud.
    pub(super) fn with(mut self, key: &str, value: &str) -> Scene {
        let key = if key.contains('/') { key.to_owned() } else { format!("loadbalancer.openstack.org/{key}") };
        self.service = annotated(self.service, &[(&key, value)]);
        self
    }

    pub(super) fn without(mut self, key: &str) -> Scene {
        Arc::make_mut(&mut self.service.annotations).remove(&format!("loadbalancer.openstack.org/{key}"));
        self
    }

    pub(super) fn ports(mut self, ports: &[(Protocol, u16)]) -> Scene {
        self.service.ports = ports.iter().map(|(protocol, port)| service_port(*protocol, *port)).collect();
        self
    }

    pub(super) fn changed(mut self, change: impl FnOnce(&mut Service)) -> Scene {
        change(&mut self.service);
        self
    }

    pub(super) fn nodes(mut self, nodes: &[(&str, &str)]) -> Scene {
        self.nodes = nodes.iter().map(|(name, reached_at)| node(name, reached_at)).collect();
        self
    }

    pub(super) fn local(self, health_check_port: u16) -> Scene {
        self.changed(|service| {
            service.traffic_policy = TrafficPolicy::Local;
            service.health_check_node_port = Some(health_check_port);
        })
    }

    pub(super) fn sticky(self) -> Scene {
        self.changed(|service| service.session_affinity = SessionAffinity::ClientIp { timeout_seconds: 10800 })
    }

    pub(super) fn family(self, family: IpFamily) -> Scene {
        self.changed(|service| service.ip_families = vec![family])
    }

    // ---- plans

    pub(super) fn desired(&self) -> DesiredLoadBalancer {
        let common = read(&self.service).settings.unwrap();
        let settings = common_settings(&self.config, &TABLE.reader(&self.service.annotations), common);
        desired(&self.cluster.as_str().into(), &self.service, &settings, self.nodes.clone().into()).unwrap()
    }

    pub(super) fn desired_removal(&self) -> DesiredLoadBalancer {
        desired_cleanup(&self.cluster.as_str().into(), &self.service, &read(&self.service).cleanup.unwrap())
    }

    pub(super) fn settings(&self) -> Result<Settings> {
        let desired = self.desired();
        Settings::of(&desired, desired.spec.as_ref().unwrap(), &self.config)
    }

    pub(super) fn planned(&self) -> Result<Plan<Payload>> {
        plan(&self.config, &self.desired(), self.seen.clone())
    }

    /// Returns the steps of the plan in short form: `create listener listener_0_…`.
    pub(super) fn steps(&self) -> Vec<String> {
        self.planned().unwrap().steps.iter().map(|step| format!("{} {} {}", step.verb, step.kind, step.name)).collect()
    }

    pub(super) fn changes(&self) -> Vec<Change> {
        self.planned().unwrap().steps.iter().map(|step| step.payload.change.clone()).collect()
    }

    /// Returns the reasons of all warnings.
    pub(super) fn warnings(&self) -> Vec<String> {
        self.planned().unwrap().warnings.into_iter().map(|warning| warning.reason).collect()
    }

    pub(super) fn plan_error(&self) -> Error {
        self.planned().unwrap_err()
    }

    /// Returns the body of the only step with this verb and kind.
    pub(super) fn body(&self, verb_and_kind: &str) -> Value {
        let steps = self.planned().unwrap().steps;
        let mut found = steps.iter().filter(|step| format!("{} {}", step.verb, step.kind) == verb_and_kind);
        let (first, second) = (found.next(), found.next());
        assert!(second.is_none(), "more than one {verb_and_kind}");
        match &first.unwrap().payload.change {
            Change::CreateLoadBalancer { body }
            | Change::CreateListener { body, .. }
            | Change::CreatePool { body, .. }
            | Change::CreateMember { body, .. }
            | Change::CreateMonitor { body, .. }
            | Change::CreateFloatingIp { body, .. }
            | Change::CreateSecurityGroup { body }
            | Change::CreateSecurityGroupRule { body, .. }
            | Change::Update { body, .. } => body.clone(),
            _ => Value::Null,
        }
    }

    // ---- changes

    /// Applies all steps of the plan.
    pub(super) fn applied(mut self) -> Scene {
        let plan = self.planned().unwrap();
        plan.steps.iter().for_each(|step| model::apply(&mut self.seen, step.payload.clone()));
        self
    }

    /// Applies only the first steps.
    pub(super) fn applied_partly(mut self, steps: usize) -> Scene {
        let plan = self.planned().unwrap();
        plan.steps.iter().take(steps).for_each(|step| model::apply(&mut self.seen, step.payload.clone()));
        self
    }

    /// Adds the annotation that the manager sets.
    pub(super) fn annotated_with_id(self) -> Scene {
        let id = self.balancer().id.clone();
        self.found_by_id(true).with("load-balancer-id", &id)
    }

    fn found_by_id(mut self, named: bool) -> Scene {
        if let Found::One { by_id, .. } = &mut self.seen.found {
            *by_id = named;
        }
        self
    }

    pub(super) fn balancer(&self) -> &LoadBalancer {
        self.seen.found.balancer().unwrap()
    }

    pub(super) fn touched(mut self, touch: impl FnOnce(&mut Observation)) -> Scene {
        touch(&mut self.seen);
        self
    }

    pub(super) fn touched_balancer(self, touch: impl FnOnce(&mut LoadBalancer)) -> Scene {
        self.touched(|seen| match &mut seen.found {
            Found::One { balancer, .. } => touch(balancer),
            other => panic!("no load balancer: {other:?}"),
        })
    }

    /// The same cloud for another Service whose annotation refers to the load balancer.
    pub(super) fn joined_by(self, name: &str) -> Scene {
        let id = self.balancer().id.clone();
        let port = |_: &ServicePort| service_port(Protocol::Tcp, 81);
        self.found_by_id(true)
            .changed(|service| service.annotations = Arc::default())
            .changed(|service| service.ports = service.ports.iter().take(1).map(port).collect())
            .named(name)
            .with("load-balancer-id", &id)
    }
}
