//! Plans from hand-made states: the Service and what exists for it.

mod plans;
mod security_groups;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bowline_core::annotations::LoadBalancerSettings;
use bowline_core::{
    HealthCheck as LocalCheck, IpFamily, LoadBalancerKey, LoadBalancerSpec, Plan, PortSpec, Protocol, SessionAffinity,
    TrafficPolicy,
};

use super::super::annotations::Values;
use super::super::groups::{all_from, own_rules};
use super::super::subnets::Network;
use super::super::{Change as AnyChange, Context, Inputs};
use super::{Observed, plan, removal};
use crate::api::Tags;
use crate::api::ec2::{Association, GroupName, Route, RouteTable, Rule, SecurityGroup, Subnet};
use crate::api::elb::{self, BackendDescription, InstanceId, ListenerDescription, LoadBalancer};
use crate::cluster_tags::ClusterTags;
use crate::config::Config;
use crate::provider::Identity;

const VPC: &str = "vpc-1";
const OWN: &str = "sg-own";
const NODES: &str = "sg-nodes";
const CLUSTER_TAG: &str = "kubernetes.io/cluster/demo";

/// A Service with everything that its plan depends on.
#[derive(Clone)]
pub(super) struct Fixture {
    pub(super) config: Config,
    pub(super) settings: LoadBalancerSettings,
    pub(super) spec: LoadBalancerSpec,
    identity: Identity,
    key: LoadBalancerKey,
    annotations: BTreeMap<String, String>,
    context: Context,
}

impl Fixture {
    pub(super) const NAME: &str = "a12345678123412341234123456789ab";

    /// Port 80, two instances, and an existing node group without rules. The own group does not exist.
    pub(super) fn new() -> Fixture {
        let spec = LoadBalancerSpec {
            ports: Vec::new(),
            targets: Vec::new().into(),
            source_ranges: Vec::new(),
            requested_address: None,
            ip_families: vec![IpFamily::IPv4],
            session_affinity: SessionAffinity::None,
            traffic_policy: TrafficPolicy::Cluster,
            health_check: None,
        };
        let cluster = ClusterTags::new("demo", false);
        let key = LoadBalancerKey {
            cluster: "kubernetes".into(),
            namespace: "default".to_owned(),
            service: "web".to_owned(),
            uid: "12345678-1234-1234-1234-123456789abc".to_owned(),
        };
        let fixture = Fixture {
            config: Config::default(),
            settings: LoadBalancerSettings::default(),
            spec,
            identity: Identity { vpc_id: VPC.to_owned(), cluster, ..Identity::default() },
            key,
            annotations: BTreeMap::new(),
            context: Context { network: Arc::new(network()), ..Context::default() },
        };
        fixture.ports(&[("", 80)]).instances(&["i-1", "i-2"]).group(NODES, "nodes", Vec::new())
    }

    pub(super) fn inputs(&self) -> Inputs<'_> {
        Inputs {
            config: &self.config,
            identity: &self.identity,
            key: &self.key,
            name: Self::NAME,
            values: Values(&self.annotations),
            settings: &self.settings,
            spec: &self.spec,
            context: &self.context,
        }
    }

    pub(super) fn annotated(mut self, key: &str, value: &str) -> Fixture {
        self.annotations.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Sets the ports. The node port is the port + 30000.
    pub(super) fn ports(mut self, ports: &[(&str, u16)]) -> Fixture {
        let port = |(name, port): &(&str, u16)| PortSpec {
            name: (*name).to_owned(),
            protocol: Protocol::Tcp,
            port: *port,
            node_port: Some(port + 30000),
            app_protocol: None,
        };
        self.spec.ports = ports.iter().map(port).collect();
        self
    }

    /// Sets `externalTrafficPolicy: Local`.
    pub(super) fn local(mut self, port: u16) -> Fixture {
        self.spec.traffic_policy = TrafficPolicy::Local;
        self.spec.health_check = Some(LocalCheck { path: "/healthz".to_owned(), port });
        self
    }

    fn instances(mut self, ids: &[&str]) -> Fixture {
        let node_group = GroupName { group_id: NODES.to_owned(), group_name: "nodes".to_owned() };
        let instances = ids.iter().map(|id| ((*id).to_owned(), vec![node_group.clone()]));
        self.context.instances = Arc::new(instances.collect());
        self
    }

    /// Adds or replaces a group of the cluster.
    fn group(mut self, id: &str, name: &str, rules: Vec<Rule>) -> Fixture {
        let tags = [(CLUSTER_TAG.to_owned(), "owned".to_owned())].into();
        let (id, name) = (id.to_owned(), name.to_owned());
        let group = SecurityGroup { id: id.clone(), name, vpc_id: VPC.to_owned(), rules, tags };
        Arc::make_mut(&mut self.context.groups.0).insert(id, group);
        self
    }

    /// Adds the own group with its rules, and the rule of the node group.
    fn with_own_group(self) -> Fixture {
        let ports: Vec<_> = self.spec.ports.iter().map(|port| ("tcp", port.port)).collect();
        let rules = own_rules(ports, &self.spec.source_ranges);
        let own = format!("k8s-elb-{}", Self::NAME);
        self.group(OWN, &own, rules).group(NODES, "nodes", vec![all_from(OWN)])
    }

    fn plan(&self, observed: Option<&Observed>) -> Plan<AnyChange> {
        plan(&self.inputs(), observed).unwrap()
    }

    fn steps(&self, observed: Option<&Observed>) -> Vec<String> {
        shown(&self.plan(observed))
    }

    fn removal(&self, observed: &Observed) -> Plan<AnyChange> {
        removal(&self.config, &self.identity, Values(&self.annotations), &self.context, observed)
    }

    /// Returns what the Go manager creates for the Service.
    fn created_by_go(&self) -> Observed {
        let desired = super::desired::Desired::read(&self.inputs(), None).unwrap();
        let upper = |listener: &elb::Listener| elb::Listener {
            protocol: listener.protocol.to_uppercase(),
            instance_protocol: listener.instance_protocol.to_uppercase(),
            ..listener.clone()
        };
        let listeners = desired.listeners.iter().map(|it| ListenerDescription {
            listener: upper(it),
            policy_names: desired.tls_policy.iter().map(|policy| policy.name.clone()).collect(),
        });
        let backends = desired.listeners.iter().filter(|_| desired.proxy_protocol).map(|it| BackendDescription {
            instance_port: it.instance_port,
            policy_names: vec![super::policies::PROXY_PROTOCOL.to_owned()],
        });
        let load_balancer = LoadBalancer {
            name: Self::NAME.to_owned(),
            dns_name: "a1.elb.amazonaws.com".to_owned(),
            scheme: if desired.internal { "internal" } else { "internet-facing" }.to_owned(),
            vpc_id: VPC.to_owned(),
            subnets: desired.subnets.clone().unwrap_or_default(),
            security_groups: desired.groups.iter().map(|group| group.text().to_owned()).collect(),
            listeners: listeners.collect(),
            backends: backends.collect(),
            instances: desired.instances.iter().map(|id| InstanceId { instance_id: id.clone() }).collect(),
            health_check: Some(desired.health_check.clone()),
            policies: elb::PolicyNames::default(),
        };
        Observed { load_balancer, tags: desired.tags.clone(), attributes: desired.attributes.clone() }
    }
}

/// Two public subnets and a private one, in two zones.
fn network() -> Network {
    let subnet = |id: &str, zone: &str| Subnet {
        id: id.to_owned(),
        availability_zone: zone.to_owned(),
        vpc_id: VPC.to_owned(),
        ..Subnet::default()
    };
    let association = |id: &str| Association { main: false, subnet_id: id.to_owned() };
    let public = RouteTable {
        associations: vec![association("subnet-a"), association("subnet-b")],
        routes: vec![Route { gateway_id: "igw-1".to_owned(), ..Route::default() }],
        ..RouteTable::default()
    };
    let private = RouteTable { associations: vec![association("subnet-0")], ..RouteTable::default() };
    let subnets = vec![subnet("subnet-a", "a"), subnet("subnet-b", "b"), subnet("subnet-0", "a")];
    Network { subnets, route_tables: vec![public, private], zones: Vec::new() }
}

/// Formats the steps as `verb kind name [change; change]`, with the name of the load balancer left out.
fn shown(plan: &Plan<AnyChange>) -> Vec<String> {
    let step = |step: &bowline_core::Step<AnyChange>| {
        let changes: Vec<_> = step.changes.iter().map(ToString::to_string).collect();
        let name = step.name.replace(Fixture::NAME, "LB");
        let kind = step.kind.replace("Classic Load Balancer", "CLB");
        format!("{} {kind} {name} [{}]", step.verb, changes.join("; ").replace(Fixture::NAME, "LB"))
    };
    plan.steps.iter().map(step).collect()
}

const PREFIX: &str = "service.beta.kubernetes.io/aws-load-balancer-";

fn annotated(fixture: Fixture, annotations: &[(&str, &str)]) -> Fixture {
    annotations.iter().fold(fixture, |fixture, (key, value)| fixture.annotated(&format!("{PREFIX}{key}"), value))
}
