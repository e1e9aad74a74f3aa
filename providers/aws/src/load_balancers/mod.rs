//! Load balancers: Classic Load Balancers (ELB) and Network Load Balancers (NLB), with their security groups.
//!
//! ```text
//!  Service ──► observe: both kinds by name, their tags, security groups, subnets, instances ──► State
//!                 State ──plan──► own group ──► load balancer, listeners, targets ──► rules of node groups
//! ```
//!
//! * `observe`: reads the cloud for a batch of Services, each list once.
//! * `checks`: what both kinds reject, with the texts of the Go manager.
//! * `classic`, `network`: plans and steps of each kind.
//! * `groups`, `group_steps`, `group_apply`, `rule_calls`: security groups and their rules.
//! * `subnets`, `targets`, `names`, `created`: what the plans need.
//!
//! A load balancer is named after the UID of its Service and has the tag of the cluster. Only the name and the tag identify it.

mod annotations;
mod checks;
mod classic;
mod created;
mod group_apply;
mod group_steps;
mod groups;
mod list;
mod names;
mod network;
mod observe;
mod rule_calls;
mod subnets;
mod targets;

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use bowline_cloud::{Applied, Error, ErrorKind, LoadBalancerKind, Result, TypedLoadBalancers};
use bowline_core::annotations::{FieldError, LoadBalancerSettings, NodeSelector};
use bowline_core::{
    ClusterName, DesiredLoadBalancer, Ingress, LoadBalancerKey, LoadBalancerSpec, LoadBalancerState,
    LoadBalancerStatus, Plan, PlanError, Warning,
};

use crate::Aws;
use crate::config::Config;
use crate::provider::Identity;
use annotations::{TABLE, Values};
use groups::Groups;
use subnets::{Network, Requested};
use targets::Instances;

pub(crate) use annotations::reference as annotation_reference;
pub(crate) use created::Created;
use group_steps::{GroupChange, Purpose};
pub(crate) use rule_calls::MtuRules;
pub(crate) use subnets::NetworkCache;
pub(crate) use targets::InstanceCache;

/// Reason of the Event for an annotation without effect.
const IGNORED: &str = "LoadBalancerSettingIgnored";

/// Kind of a load balancer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Classic,
    Network,
}

/// What exists for a Service, and what its plan needs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct State {
    classic: Option<classic::Observed>,
    network: Option<network::Observed>,
    /// Reason why the Service can have no load balancer.
    conflict: Option<PlanError>,
    context: Context,
}

/// What plans of both kinds need.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Context {
    groups: Groups,
    network: std::sync::Arc<Network>,
    /// Requested subnets that are not in the VPC of the cluster.
    other_subnets: Vec<crate::api::ec2::Subnet>,
    /// Security groups of the instances that are targets.
    instances: Instances,
    /// Groups that the load balancer gives up and that other Classic Load Balancers of the cluster have.
    shared_groups: BTreeSet<String>,
    /// Target groups of the Service that no load balancer uses.
    leftover_target_groups: Vec<crate::api::elbv2::TargetGroup>,
    /// Names of target groups that other load balancers have.
    taken_target_groups: BTreeSet<String>,
}

/// Payload of a step.
#[derive(Debug, Clone, PartialEq)]
pub struct Payload(Change);

/// Change of one resource.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Change {
    /// Change of a security group or its rules.
    Group(GroupChange, Purpose),
    /// Change of a Classic Load Balancer.
    Classic(classic::Change),
    /// Change of a Network Load Balancer.
    Network(network::Change),
}

/// Everything that the plan of a load balancer depends on.
#[derive(Clone, Copy)]
pub(crate) struct Inputs<'a> {
    pub(crate) config: &'a Config,
    pub(crate) identity: &'a Identity,
    pub(crate) key: &'a LoadBalancerKey,
    /// Name of the load balancer.
    pub(crate) name: &'a str,
    pub(crate) values: Values<'a>,
    pub(crate) settings: &'a LoadBalancerSettings,
    pub(crate) spec: &'a LoadBalancerSpec,
    pub(crate) context: &'a Context,
}

impl Inputs<'_> {
    /// Whether the Service requests an internal load balancer.
    pub(crate) fn is_internal(&self) -> bool {
        annotations::is_internal(self.values, self.settings.internal)
    }

    /// Returns the tags of new resources that name the Service.
    pub(crate) fn tags(&self) -> crate::api::Tags {
        let service = format!("{}/{}", self.key.namespace, self.key.service);
        let mut tags = self.group_tags();
        tags.insert(crate::cluster_tags::SERVICE_TAG.to_owned(), service);
        tags
    }

    /// Returns the tags of new security groups.
    pub(crate) fn group_tags(&self) -> crate::api::Tags {
        let additional = self.values.text(&annotations::ADDITIONAL_TAGS).map(annotations::pairs).unwrap_or_default();
        self.identity.cluster.of_new(&additional)
    }

    /// Returns the subnets of the load balancer: at least one.
    pub(crate) fn subnets(&self) -> Result<Vec<crate::api::ec2::Subnet>> {
        let network = &self.context.network;
        if let Some(text) = self.values.text(&annotations::SUBNETS) {
            let found: Vec<_> = network.subnets.iter().chain(&self.context.other_subnets).cloned().collect();
            return Requested::parse(text).select(&found);
        }
        let internal = self.is_internal();
        let selected = network.select(&self.identity.cluster, &self.identity.subnet_id, internal)?;
        if selected.is_empty() { Err(subnets::none_found(internal)) } else { Ok(selected) }
    }
}

/// Returns the kind that a Service requests; `None` if another controller is responsible for it.
pub(crate) fn kind(annotations: &BTreeMap<String, String>) -> Option<Kind> {
    match Values(annotations).text(&annotations::TYPE) {
        Some("nlb") => Some(Kind::Network),
        Some("nlb-ip" | "external") => None,
        _ => Some(Kind::Classic),
    }
}

#[async_trait]
impl TypedLoadBalancers for Aws {
    type State = State;
    type Change = Payload;
    type Polled = ();

    fn settings(
        &self,
        annotations: &BTreeMap<String, String>,
        common: LoadBalancerSettings,
    ) -> std::result::Result<LoadBalancerSettings, Vec<FieldError>> {
        let values = Values(annotations);
        let unmanaged = kind(annotations).is_none();
        let internal = annotations::is_internal(values, common.internal);
        let target_nodes =
            values.text(&annotations::TARGET_NODE_LABELS).and_then(selector).or(common.target_nodes.clone());
        Ok(LoadBalancerSettings { internal, unmanaged, target_nodes, ..common })
    }

    fn kind(&self, desired: &DesiredLoadBalancer) -> Option<&'static str> {
        let internal = annotations::is_internal(Values(&desired.annotations), desired.settings.internal);
        kind(&desired.annotations).map(|kind| kind_name(kind, internal))
    }

    async fn observe(&self, wanted: &[DesiredLoadBalancer]) -> Vec<Result<Option<LoadBalancerState<State>>>> {
        self.observe_all(wanted).await
    }

    async fn list(&self, cluster: &ClusterName) -> Result<Vec<LoadBalancerKey>> {
        self.list_load_balancers(cluster).await
    }

    fn is_owner(&self, listed: &LoadBalancerKey, desired: &DesiredLoadBalancer) -> bool {
        listed.cluster == desired.key.cluster && name_of(listed) == name_of(&desired.key)
    }

    fn plan(&self, desired: &DesiredLoadBalancer, state: Option<&State>) -> Result<Plan<Payload>> {
        let none = State::default();
        let state = state.unwrap_or(&none);
        let plan = match &desired.spec {
            Some(spec) => self.plan_update(desired, spec, state),
            None => self.plan_removal(desired, state),
        };
        plan.map(|plan| plan.map(Payload))
    }

    async fn apply(&self, key: &LoadBalancerKey, change: &Payload, _: Option<&()>) -> Result<Applied<State>> {
        let name = name_of(key);
        match &change.0 {
            Change::Group(change, purpose) => self.apply_group(&name, change, *purpose).await,
            Change::Classic(change) => self.apply_classic(&name, change).await,
            Change::Network(change) => self.apply_network(&name, change).await,
        }
    }
}

impl Aws {
    fn plan_update(
        &self,
        desired: &DesiredLoadBalancer,
        spec: &LoadBalancerSpec,
        state: &State,
    ) -> Result<Plan<Change>> {
        if let Some(conflict) = &state.conflict {
            return Err(conflict.clone().into());
        }
        let Some(kind) = kind(&desired.annotations) else {
            let message = "the annotation service.beta.kubernetes.io/aws-load-balancer-type names another controller";
            return Err(Error::new(ErrorKind::ImplementedElsewhere, "plan load balancer", message));
        };
        let (identity, name) = (self.identity()?, name_of(&desired.key));
        let inputs = Inputs {
            config: &self.config,
            identity,
            key: &desired.key,
            name: &name,
            values: Values(&desired.annotations),
            settings: &desired.settings,
            spec,
            context: &state.context,
        };
        checks::kind_is_unchanged(kind, state)?;
        checks::annotations(kind, &inputs)?;
        checks::spec(kind, spec)?;
        let mut plan = match kind {
            Kind::Classic => classic::plan(&inputs, state.classic.as_ref())?,
            Kind::Network => network::plan(&inputs, state.network.as_ref())?,
        };
        plan.warnings.extend(unknown_annotations(desired));
        Ok(plan)
    }

    /// Plans the removal of everything that has the name: a load balancer of each kind, and what it has left behind. The rules of node
    /// groups go last, because they identify the load balancer when nothing else does.
    fn plan_removal(&self, desired: &DesiredLoadBalancer, state: &State) -> Result<Plan<Change>> {
        let (config, identity, key) = (&self.config, self.identity()?, &desired.key);
        let (name, context, values) = (name_of(key), &state.context, Values(&desired.annotations));
        let classic = state.classic.iter().map(|it| classic::removal(config, identity, values, context, it));
        let mut plan = classic.fold(Plan::default(), |_, plan| plan);
        plan.steps.extend(state.network.iter().flat_map(network::removal));
        plan.steps.extend(network::leftover_steps(&context.leftover_target_groups));
        plan.steps.extend(group_steps::removal(config, identity, key, &name, state));
        Ok(plan)
    }
}

/// Returns the name of the load balancer of a key.
fn name_of(key: &LoadBalancerKey) -> String {
    key.name_only().map_or_else(|| names::load_balancer(&key.uid), str::to_owned)
}

/// Returns the selector for the labels of an annotation such as `k=v,k2`.
fn selector(text: &str) -> Option<NodeSelector> {
    let pairs = annotations::pairs(text);
    let requirements = pairs.iter().map(|(key, value)| match value.as_str() {
        "" => key.clone(),
        value => format!("{key}={value}"),
    });
    let requirements: Vec<_> = requirements.collect();
    // upstream: an empty or unusable list selects all Nodes.
    (!requirements.is_empty()).then(|| NodeSelector::parse(&requirements.join(",")).ok()).flatten()
}

/// Returns what the kinds of load balancers can do, the default first.
pub(crate) fn kinds() -> Vec<LoadBalancerKind> {
    vec![
        classic::capabilities(false),
        classic::capabilities(true),
        network::capabilities(false),
        network::capabilities(true),
    ]
}

/// Returns the name of a kind in the capabilities.
pub(crate) fn kind_name(kind: Kind, internal: bool) -> &'static str {
    match (kind, internal) {
        (Kind::Classic, false) => "classic",
        (Kind::Classic, true) => "classic-internal",
        (Kind::Network, false) => "network",
        (Kind::Network, true) => "network-internal",
    }
}

fn unknown_annotations(desired: &DesiredLoadBalancer) -> Vec<Warning> {
    let unknown = TABLE.unknown(&desired.annotations).into_iter();
    unknown.map(|unknown| Warning { reason: IGNORED.to_owned(), message: unknown.to_string() }).collect()
}

/// Returns the status of a Service with this host name.
fn status(hostname: &str) -> LoadBalancerStatus {
    let hostname = Some(hostname).filter(|name| !name.is_empty()).map(str::to_owned);
    let ingress = hostname.map(|hostname| Ingress { hostname: Some(hostname), ..Ingress::default() });
    LoadBalancerStatus { ingress: ingress.into_iter().collect() }
}
