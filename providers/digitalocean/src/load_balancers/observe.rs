//! Finds the load balancers of Services, and looks up what their requests need.
//!
//! ```text
//!  ID annotation ──► GET, or one listing for a batch ──► 404: by name
//!  otherwise: by name in a listing ──► tag of another cluster: a conflict
//! ```
//!
//! A load balancer that a listing does not show is looked up by its ID: only the API's own 404 proves that it is gone.

use std::collections::BTreeMap;

use bowline_cloud::{Error, ErrorKind, Result};
use bowline_core::{DesiredLoadBalancer, LoadBalancerSpec, NodeName, PlanError};
use tokio::sync::OnceCell;

use super::annotations::{self as keys, Values};
use super::request::{CertificateLookup, LoadBalancerType, Lookups, legacy_name, names};
use super::{SUBJECT, State};
use crate::DigitalOcean;
use crate::api::{Certificate, Client, Droplet, LoadBalancer};
use crate::config::TAG_PREFIX;

/// Type of certificates that DigitalOcean renews.
const LETS_ENCRYPT: &str = "lets_encrypt";

/// Reads the cloud for one batch. Each list is read at most once, when it is needed first.
pub(super) struct Reader<'a> {
    cloud: &'a DigitalOcean,
    load_balancers: OnceCell<Vec<LoadBalancer>>,
    droplets: OnceCell<Vec<Droplet>>,
    is_batch: bool,
}

impl<'a> Reader<'a> {
    pub(super) fn new(cloud: &'a DigitalOcean, batch: usize) -> Reader<'a> {
        Reader { cloud, load_balancers: OnceCell::new(), droplets: OnceCell::new(), is_batch: batch > 1 }
    }

    fn client(&self) -> &'a Client {
        &self.cloud.client
    }

    async fn all(&self) -> Result<&[LoadBalancer]> {
        let list = || async { self.client().load_balancers().await };
        self.load_balancers.get_or_try_init(list).await.map(Vec::as_slice)
    }

    /// Observes one load balancer; `None` if there is nothing to know about it.
    pub(super) async fn observe(&self, desired: &DesiredLoadBalancer) -> Result<Option<State>> {
        let found = self.find(desired).await?;
        let Some(spec) = &desired.spec else { return Ok(Some(found).filter(|state| state.load_balancer.is_some())) };
        let existing = found.load_balancer.as_ref().or(found.adoptable.as_ref());
        let certificate = self.certificate(desired, existing).await?;
        let state = State { lookups: Lookups { certificate, droplets: self.droplets(spec).await? }, ..found };
        Ok(Some(state).filter(|state| *state != State::default()))
    }

    /// Looks up what the request of a Service needs that has neither a load balancer nor Nodes.
    pub(super) async fn lookups_without_nodes(&self, desired: &DesiredLoadBalancer) -> Result<Lookups> {
        Ok(Lookups { certificate: self.certificate(desired, None).await?, droplets: BTreeMap::new() })
    }

    // ---- load balancers

    /// Finds the load balancer of the Service, the one that it is to adopt, or one that stands in its way.
    async fn find(&self, desired: &DesiredLoadBalancer) -> Result<State> {
        let own = |own: LoadBalancer| State { load_balancer: Some(own), ..State::default() };
        if let Some(found) = self.by_id(desired).await? {
            return Ok(own(found));
        }
        if desired.key.namespace.is_empty() {
            return Ok(State::default());
        }
        let (all, names) = (self.all().await?, names(desired));
        let named = all.iter().find(|one| names.contains(&one.settings.name));
        Ok(match named.map(|one| (one, self.owner(one, desired))) {
            Some((one, None)) if self.is_released(one, desired) => State::default(),
            Some((one, None)) => own(one.clone()),
            Some((one, Some(tag))) => State { conflict: Some(owned(one, tag)), ..State::default() },
            None => adoption(desired, all),
        })
    }

    /// Returns the load balancer that the annotation, or the key of a listing, identifies.
    async fn by_id(&self, desired: &DesiredLoadBalancer) -> Result<Option<LoadBalancer>> {
        let listed = desired.key.namespace.is_empty().then_some(desired.key.uid.as_str());
        let id = listed.or(Values(&desired.annotations).text(&keys::LOAD_BALANCER_ID));
        let Some(id) = id.filter(|id| !id.is_empty()) else { return Ok(None) };
        if self.is_batch
            && let Some(found) = self.all().await?.iter().find(|one| one.id == id)
        {
            return Ok(Some(found.clone()).filter(|one| !self.is_released(one, desired)));
        }
        let found = self.client().load_balancer(id).await;
        let found = found.map_err(|error| error.during(format!("failed to get load-balancer by ID {id}")))?;
        Ok(found.filter(|one| !self.is_released(one, desired)))
    }

    /// Returns the tag of the cluster that a load balancer belongs to, if it is another one. The name of a Service without a name
    /// of its own is unique, so without a cluster ID it is proof enough.
    fn owner<'b>(&self, one: &'b LoadBalancer, desired: &DesiredLoadBalancer) -> Option<&'b str> {
        let own = self.cloud.config.cluster_tag();
        let mut tags = one.settings.tags.iter().filter(|tag| tag.starts_with(TAG_PREFIX));
        let is_unique = own.is_none() && one.settings.name == legacy_name(&desired.key.uid);
        if is_unique || tags.clone().any(|tag| Some(tag) == own.as_ref()) {
            return None;
        }
        tags.next().map(String::as_str)
    }

    /// Whether the load balancer was released: it is to be retained, and has lost the tag of the cluster.
    fn is_released(&self, one: &LoadBalancer, desired: &DesiredLoadBalancer) -> bool {
        use bowline_core::annotations::DeletionPolicy::Retain;
        let is_retained = desired.spec.is_none() && desired.settings.policy == Retain;
        is_retained && self.cloud.config.cluster_tag().is_some_and(|tag| !one.settings.tags.contains(&tag))
    }

    // ---- lookups

    /// Returns the certificate of a proxy; others have none. If DigitalOcean has renewed that of the load balancer, the new one counts.
    async fn certificate(
        &self,
        desired: &DesiredLoadBalancer,
        existing: Option<&LoadBalancer>,
    ) -> Result<CertificateLookup> {
        let values = Values(&desired.annotations);
        let kind = LoadBalancerType::of(existing, values, self.cloud.config.default_type);
        let requested = match (values.text(&keys::CERTIFICATE_ID), values.text(&keys::CERTIFICATE_NAME)) {
            _ if kind != Ok(LoadBalancerType::Regional) => return Ok(CertificateLookup::None),
            (Some(id), _) => id.to_owned(),
            (None, None) => return Ok(CertificateLookup::None),
            (None, Some(name)) => {
                let found = self.client().certificate_of_name(name).await;
                let operation = || format!("failed to get certificate by name: {name:?} error");
                match found.map_err(|error| error.during(operation()))? {
                    Some(found) => found.id,
                    None => return Ok(CertificateLookup::Missing(name.to_owned())),
                }
            }
        };
        match existing.and_then(current_certificate).filter(|current| *current != requested) {
            Some(current) if self.is_renewal(current, &requested).await? => {
                Ok(CertificateLookup::Renewed(current.to_owned()))
            }
            _ => Ok(CertificateLookup::Found(requested)),
        }
    }

    /// Whether `current` is a Let's Encrypt certificate that has replaced `requested`: that is gone, or has the same name.
    async fn is_renewal(&self, current: &str, requested: &str) -> Result<bool> {
        let Some(current) = self.read_certificate(current).await?.filter(|it| it.kind == LETS_ENCRYPT) else {
            return Ok(false);
        };
        let requested = self.read_certificate(requested).await?;
        Ok(requested.is_none_or(|requested| requested.name == current.name))
    }

    async fn read_certificate(&self, id: &str) -> Result<Option<Certificate>> {
        let found = self.client().certificate(id).await;
        found.map_err(|error| error.during("failed to get DO certificate for load-balancer"))
    }

    /// Returns the Droplets of Nodes without a provider ID: by name, else by an address that is the Node's name.
    async fn droplets(&self, spec: &LoadBalancerSpec) -> Result<BTreeMap<NodeName, u64>> {
        let without = || spec.targets.iter().filter(|target| target.provider_id.is_none() && !target.draining);
        if without().next().is_none() {
            return Ok(BTreeMap::new());
        }
        let list = || async { self.client().droplets().await };
        let droplets = self.droplets.get_or_try_init(list).await;
        let droplets = droplets.map_err(|error| error.during("failed to list all droplets"))?;
        let (mut found, mut missing) = (BTreeMap::new(), Vec::new());
        for target in without() {
            match droplet_of(target.node.as_str(), droplets) {
                Some(id) => drop(found.insert(target.node.clone(), id)),
                None => missing.push(target.node.as_str()),
            }
        }
        if !missing.is_empty() {
            tracing::warn!(nodes = missing.join(", "), "Failed to find droplets for nodes");
        }
        Ok(found)
    }
}

/// Returns the certificate of the first rule that has one.
fn current_certificate(existing: &LoadBalancer) -> Option<&str> {
    existing.settings.forwarding_rules.iter().map(|rule| rule.certificate_id.as_str()).find(|id| !id.is_empty())
}

fn droplet_of(node: &str, droplets: &[Droplet]) -> Option<u64> {
    let has_address =
        |droplet: &&Droplet| [droplet.private_v4(), droplet.public_v4(), droplet.public_v6()].contains(&Some(node));
    let by_name = droplets.iter().find(|droplet| droplet.name == node);
    by_name.or_else(|| droplets.iter().find(has_address)).map(|droplet| droplet.id)
}

/// Finds the load balancer that the Service is to adopt by a common annotation, if it has none of its own.
fn adoption(desired: &DesiredLoadBalancer, all: &[LoadBalancer]) -> State {
    let Some(wanted) = desired.settings.adopt.as_deref().filter(|_| desired.spec.is_some()) else {
        return State::default();
    };
    let Some(found) = all.iter().find(|one| one.id == wanted || one.settings.name == wanted) else {
        return State { conflict: Some(missing(wanted)), ..State::default() };
    };
    match found.settings.tags.iter().find(|tag| tag.starts_with(TAG_PREFIX)) {
        Some(tag) => State { conflict: Some(owned(found, tag)), ..State::default() },
        None => State { adoptable: Some(found.clone()), ..State::default() },
    }
}

/// The load balancer of its name, or the one to adopt, has the tag of another cluster.
fn owned(one: &LoadBalancer, tag: &str) -> PlanError {
    let (name, id, key) = (&one.settings.name, &one.id, keys::LOAD_BALANCER_ID.key);
    let message = format!(
        "load balancer {name} ({id}) has the tag {tag} of another cluster; to take it over, set the annotation {key} to its ID"
    );
    Error::new(ErrorKind::AlreadyExists, "find load balancer", message).to_plan_error(SUBJECT)
}

/// The load balancer to adopt does not exist.
fn missing(wanted: &str) -> PlanError {
    let message = format!("no load balancer has the name or ID {wanted:?}");
    Error::new(ErrorKind::NotFound, "find load balancer", message).to_plan_error(SUBJECT)
}
