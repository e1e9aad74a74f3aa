//! Load balancers: one load balancer of DigitalOcean for each Service.
//!
//! ```text
//!  Service ──► observe: find it by ID or name, look up certificates and Droplets ──► State
//!                 State ──request──► LoadBalancerRequest ──compare──► at most one step: POST, PUT or DELETE
//! ```
//!
//! A load balancer is identified by the annotation with its ID, else by its name, which contains the UID of the Service. The API
//! replaces everything at once, so a plan has at most one step.

mod annotations;
mod compare;
mod health_check;
mod nodes;
mod observe;
mod request;
mod rules;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use bowline_cloud::{Applied, Error, ErrorKind, Result, Retry, TypedLoadBalancers};
use bowline_core::annotations::{DeletionPolicy, FieldError, LoadBalancerSettings, ProxyProtocol};
use bowline_core::{
    ClusterName, DesiredLoadBalancer, FieldChange, Ingress, IpFamily, LoadBalancerKey, LoadBalancerSpec,
    LoadBalancerState, LoadBalancerStatus, Operation, Plan, PlanError, PollInterval, SessionAffinity, Step, Verb,
    Warning,
};
use futures::future::join_all;

use crate::DigitalOcean;
use crate::api::{LoadBalancer, LoadBalancerRequest, TaggedResource};
use annotations::{self as keys, DISOWN, TABLE, Values};
use observe::Reader;
use request::{BuildError, CertificateLookup, Inputs, Lookups, NetworkStack, names};

pub(crate) use annotations::{FIREWALL_MANAGED, LOAD_BALANCER_ID, Values as Annotations};
pub(crate) use health_check::KUBE_PROXY_PORT;
pub(crate) use request::{LoadBalancerType, Network, service_names};

/// Intervals at which a new load balancer is polled.
// upstream: 15 s. The shorter intervals at first cost two calls, and a load balancer that is active soon gets its address sooner.
const POLL: PollInterval = PollInterval { first: Duration::from_secs(2), factor: 2.0, max: Duration::from_secs(15) };

/// Time after which a new load balancer counts as failed. Creation takes minutes.
const DEADLINE: Duration = Duration::from_secs(30 * 60);

/// Reason of the Event for a Service that cannot get the requested kind of load balancer.
const CONFIG_ERROR: &str = "LoadBalancerConfigError";

/// Reason of the Event for an ignored field or annotation.
const IGNORED: &str = "LoadBalancerSettingIgnored";

/// Subject of errors and steps.
const SUBJECT: &str = "load balancer";

const BUILD: &str = "failed to build load-balancer request";

/// What exists for a Service, and what its request needs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct State {
    load_balancer: Option<LoadBalancer>,
    /// Load balancer without an owner that the Service is to adopt.
    adoptable: Option<LoadBalancer>,
    /// Reason why the Service can have no load balancer.
    conflict: Option<PlanError>,
    lookups: Lookups,
}

/// Payload of a step.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Creates the load balancer.
    Create(Box<Write>),
    /// Replaces all settings of the load balancer with this ID.
    Update(String, Box<Write>),
    /// Removes the tag of the cluster from the load balancer with this ID.
    Release(String),
    /// Deletes the load balancer with this ID.
    Delete(String),
}

/// A request, and what was looked up for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    request: LoadBalancerRequest,
    lookups: Lookups,
    /// Host name that the status of the Service shows.
    hostname: Option<String>,
}

#[async_trait]
impl TypedLoadBalancers for DigitalOcean {
    type State = State;
    type Change = Change;
    type Polled = ();

    fn settings(
        &self,
        annotations: &BTreeMap<String, String>,
        common: LoadBalancerSettings,
    ) -> std::result::Result<LoadBalancerSettings, Vec<FieldError>> {
        let values = Values(annotations);
        let invalid = |message| vec![FieldError { field: DISOWN.key.to_owned(), message }];
        let unmanaged = keys::is_disowned(values).map_err(invalid)?;
        // Other invalid values are errors of the plan, with upstream's texts.
        let internal =
            Network::requested(values, common.internal).map_or(common.internal, |it| it == Network::Internal);
        let proxy_protocol = match annotations.contains_key(keys::ENABLE_PROXY_PROTOCOL.key) {
            true => {
                values.get(&keys::ENABLE_PROXY_PROTOCOL).ok().flatten().unwrap_or_default().then_some(ProxyProtocol::V1)
            }
            false => common.proxy_protocol,
        };
        Ok(LoadBalancerSettings { internal, proxy_protocol, unmanaged, ..common })
    }

    fn kind(&self, desired: &DesiredLoadBalancer) -> Option<&'static str> {
        let values = Values(&desired.annotations);
        let kind = LoadBalancerType::requested(values, self.config.default_type).unwrap_or(self.config.default_type);
        let network = Network::requested(values, desired.settings.internal).unwrap_or(Network::External);
        Some(crate::provider::kind_name(kind, network))
    }

    async fn observe(&self, wanted: &[DesiredLoadBalancer]) -> Vec<Result<Option<LoadBalancerState<State>>>> {
        let reader = Reader::new(self, wanted.len());
        let observe = |desired| {
            let reader = &reader;
            async move {
                let state = reader.observe(desired).await?;
                Ok(state.map(|state| with_status(state, hostname(desired), desired.spec.is_some())))
            }
        };
        join_all(wanted.iter().map(observe)).await
    }

    async fn list(&self, cluster: &ClusterName) -> Result<Vec<LoadBalancerKey>> {
        let Some(tag) = self.config.cluster_tag().filter(|_| *cluster == self.cluster) else {
            let message =
                "load balancers of this cluster cannot be distinguished from others without a tag; set DO_CLUSTER_ID";
            return Err(Error::new(ErrorKind::Unsupported, "list load balancers", message));
        };
        let all = self.client.load_balancers().await?.into_iter();
        let own = all.filter(|one| one.settings.tags.contains(&tag));
        // The namespace is empty: name and ID are all that the cloud knows.
        let key = |service, uid| LoadBalancerKey { cluster: cluster.clone(), namespace: String::new(), service, uid };
        Ok(own.map(|one| key(one.settings.name, one.id)).collect())
    }

    fn is_owner(&self, listed: &LoadBalancerKey, desired: &DesiredLoadBalancer) -> bool {
        let by_id = Values(&desired.annotations).text(&LOAD_BALANCER_ID) == Some(listed.uid.as_str());
        listed.cluster == desired.key.cluster && (by_id || names(desired).contains(&listed.service))
    }

    fn plan(&self, desired: &DesiredLoadBalancer, state: Option<&State>) -> Result<Plan<Change>> {
        let (none, own) = (State::default(), state.and_then(|state| state.load_balancer.as_ref()));
        match &desired.spec {
            Some(spec) => self.plan_update(desired, spec, state.unwrap_or(&none)),
            None => self.plan_removal(desired, own),
        }
    }

    async fn apply(&self, key: &LoadBalancerKey, change: &Change, _: Option<&()>) -> Result<Applied<State>> {
        let (own, write) = match change {
            Change::Create(write) => (self.create(write).await?, write),
            Change::Update(id, write) => {
                let own = self.client.update_load_balancer(id, &write.request).await;
                (own.map_err(|error| error.during(format!("failed to update load-balancer with ID {id}")))?, write)
            }
            Change::Release(id) => {
                let Some(tag) = self.config.cluster_tag() else { return Ok(Applied::Done) };
                return self.client.untag(&tag, &[TaggedResource::load_balancer(id)]).await.map(|()| Applied::Done);
            }
            Change::Delete(id) => {
                let deleted = self.client.delete_load_balancer(id).await;
                deleted.map_err(|error| error.during("failed to delete load-balancer"))?;
                return Ok(Applied::Observed(None));
            }
        };
        tracing::debug!(namespace = key.namespace, service = key.service, id = own.id, "load balancer written");
        let state = State { load_balancer: Some(own), lookups: write.lookups.clone(), ..State::default() };
        Ok(Applied::Observed(Some(with_status(state, write.hostname.clone(), true))))
    }
}

impl DigitalOcean {
    /// Builds the request that lets the API validate the load balancer of a Service. The Nodes are not known.
    pub(crate) async fn validation_request(
        &self,
        desired: &DesiredLoadBalancer,
    ) -> std::result::Result<LoadBalancerRequest, String> {
        let spec = desired.spec.as_deref().ok_or("the Service has no load balancer")?;
        let common = LoadBalancerSettings::clone(&desired.settings);
        let settings = self.settings(&desired.annotations, common);
        let desired =
            DesiredLoadBalancer { settings: settings.map_or(desired.settings.clone(), Into::into), ..desired.clone() };
        let lookups = Reader::new(self, 1).lookups_without_nodes(&desired).await.map_err(|error| error.to_string())?;
        let (config, region) = (&self.config, self.region());
        let inputs =
            Inputs { config, region, desired: &desired, spec, existing: None, lookups: &lookups, has_nodes: false };
        let request = inputs.build().map_err(|error| error.message)?;
        Ok(LoadBalancerRequest { validate_only: true, ..request })
    }

    /// Creates a load balancer, unless one with its name exists. The listing cannot be saved, although the observation had one: the
    /// API accepts any number of load balancers with one name and has no client token, and the step may be applied a second time by
    /// a process that does not know of the first, such as the next leader.
    async fn create(&self, write: &Write) -> Result<LoadBalancer> {
        let tag = self.config.cluster_tag();
        let is_ours = |one: &LoadBalancer| tag.as_ref().is_none_or(|tag| one.settings.tags.contains(tag));
        let all = self.client.load_balancers().await.map_err(Error::not_executed)?;
        if let Some(own) = all.into_iter().find(|one| one.settings.name == write.request.settings.name && is_ours(one))
        {
            return Ok(own);
        }
        let created = self.client.create_load_balancer(&write.request).await;
        created.map_err(|error| error.during("failed to create load-balancer"))
    }

    fn plan_removal(&self, desired: &DesiredLoadBalancer, own: Option<&LoadBalancer>) -> Result<Plan<Change>> {
        let Some(own) = own else { return Ok(Plan::default()) };
        let is_disowned = keys::is_disowned(Values(&desired.annotations));
        if is_disowned.map_err(|message| Error::new(ErrorKind::InvalidConfig, "delete load balancer", message))? {
            return Ok(Plan::default());
        }
        let retained = desired.settings.policy == DeletionPolicy::Retain;
        let step = match self.config.cluster_tag().filter(|_| retained) {
            Some(tag) => {
                let untagged = vec![FieldChange::new("tag", Some(tag), None)];
                step(Verb::Update, own, untagged, Change::Release(own.id.clone()))
            }
            None => step(Verb::Delete, own, Vec::new(), Change::Delete(own.id.clone())),
        };
        Ok(Plan { locks: [own.id.clone()].into(), ..Plan::of(vec![step]) })
    }

    fn plan_update(
        &self,
        desired: &DesiredLoadBalancer,
        spec: &LoadBalancerSpec,
        state: &State,
    ) -> Result<Plan<Change>> {
        if let Some(conflict) = &state.conflict {
            return Err(conflict.clone().into());
        }
        let existing = state.load_balancer.as_ref().or(state.adoptable.as_ref());
        let (config, region, lookups) = (&self.config, self.region(), &state.lookups);
        let built = Inputs { config, region, desired, spec, existing, lookups, has_nodes: true }.build();
        let request = match built {
            Ok(request) => request,
            Err(error) => return Ok(build_error(&error)),
        };
        let write = Write { request, lookups: lookups.clone(), hostname: hostname(desired) };
        Ok(Plan {
            errors: existing.map(|existing| plan_errors(desired, existing)).unwrap_or_default(),
            warnings: warnings(desired, spec, &write.request),
            locks: existing.map(|existing| existing.id.clone()).into_iter().collect(),
            ..Plan::of(write_step(existing, write).into_iter().collect())
        })
    }
}

/// Returns the step that creates or changes the load balancer; `None` if it is as desired.
fn write_step(existing: Option<&LoadBalancer>, write: Write) -> Option<Step<Change>> {
    let Some(existing) = existing else {
        let (name, changes) = (write.request.settings.name.clone(), compare::summary(&write.request.settings));
        return Some(Step::new(Verb::Create, SUBJECT, name, changes, Change::Create(Box::new(write))));
    };
    let changes = compare::changes(&existing.settings, &write.request.settings);
    (!changes.is_empty())
        .then(|| step(Verb::Update, existing, changes, Change::Update(existing.id.clone(), Box::new(write))))
}

fn step(verb: Verb, own: &LoadBalancer, changes: Vec<FieldChange>, change: Change) -> Step<Change> {
    Step::new(verb, SUBJECT, own.settings.name.clone(), changes, change)
}

fn hostname(desired: &DesiredLoadBalancer) -> Option<String> {
    Values(&desired.annotations).text(&keys::HOSTNAME).map(str::to_lowercase)
}

/// Adds what the Service shows of a state.
fn with_status(resources: State, hostname: Option<String>, is_desired: bool) -> LoadBalancerState<State> {
    let Some(own) = &resources.load_balancer else {
        return LoadBalancerState::new(LoadBalancerStatus::default(), resources);
    };
    let id = (LOAD_BALANCER_ID.key.to_owned(), own.id.clone());
    let renewed = match &resources.lookups.certificate {
        CertificateLookup::Renewed(id) => Some((keys::CERTIFICATE_ID.key.to_owned(), id.clone())),
        _ => None,
    };
    let kind = (!own.settings.kind.is_empty()).then(|| (keys::TYPE.key.to_owned(), own.settings.kind.clone()));
    let others = kind.into_iter().chain(renewed).filter(|_| is_desired);
    LoadBalancerState {
        status: LoadBalancerStatus { ingress: ingress(own, hostname.filter(|_| is_desired)) },
        annotations: [id].into_iter().chain(others).collect(),
        pending: (is_desired && own.status == "new").then(|| creation(own)),
        errors: Vec::new(),
        resources,
    }
}

/// Returns the host name of the Service if it has one, otherwise the addresses. A load balancer that is not active has none.
fn ingress(own: &LoadBalancer, hostname: Option<String>) -> Vec<Ingress> {
    let addresses = [&own.ip, &own.ipv6].into_iter().filter(|address| !address.is_empty());
    match hostname {
        _ if own.status != "active" => Vec::new(),
        Some(_) => vec![Ingress { hostname, ..Ingress::default() }],
        None => addresses.map(|address| Ingress { ip: Some(address.clone()), ..Ingress::default() }).collect(),
    }
}

fn creation(own: &LoadBalancer) -> Operation {
    Operation {
        id: own.id.clone(),
        description: "load-balancer is currently being created".to_owned(),
        advice: format!("See the state of load balancer {} in DigitalOcean's control panel.", own.settings.name),
        poll_interval: POLL,
        deadline: DEADLINE,
        observable: true,
    }
}

// ---- errors and warnings

fn build_error(error: &BuildError) -> Plan<Change> {
    let warning = || Warning { reason: CONFIG_ERROR.to_owned(), message: error.message.clone() };
    let warnings = error.has_event.then(warning).into_iter().collect();
    let kind = if error.lacks_nodes { ErrorKind::NotFound } else { ErrorKind::InvalidConfig };
    let error = PlanError { kind, ..plan_error(BUILD, error.message.clone()) };
    Plan { errors: vec![error], warnings, ..Plan::default() }
}

fn plan_error(operation: &str, message: String) -> PlanError {
    Error::new(ErrorKind::InvalidConfig, operation, message).retry(Retry::Backoff).to_plan_error(SUBJECT)
}

/// Returns what cannot be changed: a load balancer that failed, and settings that are fixed at creation.
fn plan_errors(desired: &DesiredLoadBalancer, existing: &LoadBalancer) -> Vec<PlanError> {
    let failed = (!matches!(existing.status.as_str(), "new" | "active")).then(|| {
        let status = &existing.status;
        let message =
            format!("load-balancer has unexpected status {status:?}; delete it, and the manager creates another one");
        // Not InvalidConfig: there is nothing to correct in the Service.
        PlanError { kind: ErrorKind::Unexpected, ..plan_error("create load balancer", message) }
    });
    let values = Values(&desired.annotations);
    let network = Network::requested(values, desired.settings.internal).map_or("", Network::as_str);
    let stack = values.text(&keys::NETWORK_STACK).unwrap_or_default();
    let fixed = [
        ("network", &existing.settings.network, network, &keys::NETWORK.key),
        ("network stack", &existing.settings.network_stack, stack, &keys::NETWORK_STACK.key),
    ];
    let fixed = fixed.into_iter().filter(|(_, old, new, _)| !old.is_empty() && !new.is_empty() && old != new);
    let fixed = fixed.map(|(what, old, new, key)| {
        let message = format!(
            "the {what} of a load balancer is fixed at creation: {} has {old}, and the Service requests {new}; set {key} to {old:?}, \
             or create the Service again",
            existing.id
        );
        plan_error(BUILD, message)
    });
    failed.into_iter().chain(fixed).collect()
}

/// Returns warnings about fields that load balancers do not have, and about misspelled annotations.
fn warnings(desired: &DesiredLoadBalancer, spec: &LoadBalancerSpec, request: &LoadBalancerRequest) -> Vec<Warning> {
    let warning = |message: String| Warning { reason: IGNORED.to_owned(), message };
    let affinity = (spec.session_affinity != SessionAffinity::None).then(|| {
        let key = keys::STICKY_SESSIONS_TYPE.key;
        warning(format!("spec.sessionAffinity has no effect on load balancers of DigitalOcean; set {key}"))
    });
    let address = spec.requested_address.as_ref().map(|address| {
        let key = keys::IP.key;
        warning(format!("spec.loadBalancerIP {address} has no effect on load balancers of DigitalOcean; set {key}"))
    });
    let has_v6 = request.settings.network_stack == NetworkStack::DualStack.as_str();
    let families = (spec.ip_families.contains(&IpFamily::IPv6) && !has_v6).then(|| {
        let key = keys::NETWORK_STACK.key;
        warning(format!(
            "spec.ipFamilies: the load balancer has no IPv6 address; a new one gets one with {key}: DUALSTACK"
        ))
    });
    let unknown = TABLE.unknown(&desired.annotations).into_iter().map(|unknown| warning(unknown.to_string()));
    affinity.into_iter().chain(address).chain(families).chain(unknown).collect()
}

/// Returns the reference page.
pub(crate) fn annotation_reference() -> String {
    TABLE.reference()
}
