//! Plans from hand-made states.

mod adoption;
mod creation;
mod deletion;
mod model;
mod update;
mod warnings;

use std::collections::BTreeMap;
use std::sync::Arc;

use bowline_cloud::Result;
use bowline_core::annotations::LoadBalancerSettings;
use bowline_core::testing::desired;
use bowline_core::{LoadBalancerKey, LoadBalancerSpec, Plan};

use super::super::annotations::Values;
use super::super::groups::Groups;
use super::super::subnets::Network;
use super::super::{Change as AnyChange, Context, Inputs, names};
use super::Observed;
use crate::api::Tags;
use crate::api::ec2::{Association, GroupName, Route, RouteTable, SecurityGroup, Subnet};
use crate::cluster_tags::ClusterTags;
use crate::config::Config;
use crate::provider::Identity;

pub(super) const ARN: &str = "arn:lb";
const UID: &str = "12345678-1234-1234-1234-123456789abc";

pub(super) fn annotated(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// Returns a Service with TCP port 80 and node port 30080.
pub(super) fn spec() -> LoadBalancerSpec {
    let desired = desired("default/web", &[]);
    LoadBalancerSpec::clone(desired.spec.as_ref().unwrap())
}

/// Everything that a plan depends on.
pub(super) struct Case {
    pub(super) config: Config,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) settings: LoadBalancerSettings,
    pub(super) spec: LoadBalancerSpec,
    pub(super) context: Context,
    identity: Identity,
    key: LoadBalancerKey,
    name: String,
}

impl Case {
    /// Two public subnets, one instance with a security group of the cluster.
    pub(super) fn new(pairs: &[(&str, &str)]) -> Case {
        let (namespace, service) = ("default".to_owned(), "web".to_owned());
        let key = LoadBalancerKey { cluster: "kubernetes".into(), namespace, service, uid: UID.to_owned() };
        let cluster = ClusterTags::new("demo", false);
        let identity = Identity { vpc_id: "vpc-1".to_owned(), cluster, ..Identity::default() };
        let groups = [group("sg-node", "nodes", true)];
        let groups = Groups(Arc::new(groups.into_iter().map(|group| (group.id.clone(), group)).collect()));
        let context = Context { groups, network: Arc::new(network()), ..Context::default() };
        let name = names::load_balancer(UID);
        let (settings, config) = (LoadBalancerSettings::default(), Config::default());
        let annotations = annotated(pairs);
        let case = Case { config, annotations, settings, spec: spec(), context, identity, key, name };
        case.with_instances(&["i-1"])
    }

    pub(super) fn annotate(mut self, key: &str, value: &str) -> Case {
        self.annotations.insert(key.to_owned(), value.to_owned());
        self
    }

    pub(super) fn with_instances<T: AsRef<str>>(mut self, ids: &[T]) -> Case {
        let named = || vec![GroupName { group_id: "sg-node".to_owned(), group_name: "nodes".to_owned() }];
        let instances = ids.iter().map(|id| (id.as_ref().to_owned(), named()));
        self.context.instances = Arc::new(instances.collect());
        self
    }

    pub(super) fn plan(&self, observed: Option<&Observed>) -> Result<Plan<AnyChange>> {
        super::plan(&self.inputs(), observed)
    }

    pub(super) fn inputs(&self) -> Inputs<'_> {
        Inputs {
            config: &self.config,
            identity: &self.identity,
            key: &self.key,
            name: &self.name,
            values: Values(&self.annotations),
            settings: &self.settings,
            spec: &self.spec,
            context: &self.context,
        }
    }

    /// Returns the steps, each on one line without its changes.
    pub(super) fn steps(&self, observed: Option<&Observed>) -> Vec<String> {
        shown(&self.plan(observed).unwrap())
    }

    /// Returns the whole plan as text.
    pub(super) fn text(&self, observed: Option<&Observed>) -> String {
        self.plan(observed).unwrap().to_string()
    }

    pub(super) fn warnings(&self, observed: Option<&Observed>) -> Vec<String> {
        self.plan(observed).unwrap().warnings.into_iter().map(|warning| warning.message).collect()
    }

    /// Plans and applies until nothing is left to do, in the model of AWS; returns the steps and the final state.
    pub(super) fn sync(&mut self, observed: Option<Observed>) -> (Vec<String>, Observed) {
        let plan = self.plan(observed.as_ref()).unwrap();
        let observed = model::apply(&mut self.context, observed, &plan);
        let again = self.text(Some(&observed));
        assert_eq!(again, "nothing to do", "after\n{plan}");
        (shown(&plan), observed)
    }
}

fn shown(plan: &Plan<AnyChange>) -> Vec<String> {
    plan.steps.iter().map(|step| format!("{} {} {}", step.verb, step.kind, step.name)).collect()
}

pub(super) fn group(id: &str, name: &str, is_tagged: bool) -> SecurityGroup {
    let tags = is_tagged.then(|| ("kubernetes.io/cluster/demo".to_owned(), "owned".to_owned()));
    let (id, name, tags) = (id.to_owned(), name.to_owned(), tags.into_iter().collect::<Tags>());
    SecurityGroup { id, name, vpc_id: "vpc-1".to_owned(), rules: Vec::new(), tags }
}

fn network() -> Network {
    let subnet = |id: &str, zone: &str, cidr: &str| Subnet {
        id: id.to_owned(),
        vpc_id: "vpc-1".to_owned(),
        availability_zone: zone.to_owned(),
        cidr_block: cidr.to_owned(),
        tags: Tags::new(),
    };
    let main = RouteTable {
        associations: vec![Association { main: true, subnet_id: String::new() }],
        routes: vec![Route { gateway_id: "igw-1".to_owned(), ..Route::default() }],
        ..RouteTable::default()
    };
    let subnets = vec![subnet("subnet-1", "a", "10.0.1.0/24"), subnet("subnet-2", "b", "10.0.2.0/24")];
    Network { subnets, route_tables: vec![main], zones: Vec::new() }
}
