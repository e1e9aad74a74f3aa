//! Octavia load balancers, with their Neutron floating IPs and security groups.
//!
//! ```text
//!  annotations, class, cloud.conf ──settings──► Settings ─┐
//!  desired state ─────────────────────────────────────────┼─► plan: steps, each with a Payload ──► apply: one write each
//!  observe ──► Observation (the state's resources) ───────┘
//! ```

mod annotations;
mod apply;
mod balancer;
mod change;
mod features;
mod list;
mod names;
mod observation;
mod observe;
mod plan;
mod servers;
mod settings;
mod status;
mod subnets;
#[cfg(test)]
mod testing;
mod tracker;
mod write_cache;

use std::collections::BTreeMap;

use async_trait::async_trait;
use bowline_cloud::{Applied, Error, ErrorKind, LoadBalancerKind, Result, TypedLoadBalancers};
use bowline_core::annotations::{FieldError, LoadBalancerSettings};
use bowline_core::{ClusterName, DesiredLoadBalancer, LoadBalancerKey, LoadBalancerState, Operation, Plan, Progress};
use futures::try_join;
use tokio::sync::OnceCell;

use crate::api::{network, octavia};
use crate::{Config, OpenStack};

use annotations::TABLE;
use apply::Writer;
use change::{Payload, Polled};
use observation::{Features, Observation};
use observe::{OBSERVE, Observer};
use tracker::Tracker;
use write_cache::WriteCache;

pub(crate) use annotations::reference as annotation_reference;
pub(crate) use observe::CloudReader;

const LIST: &str = "list load balancers";

/// Cached state of load balancers. All of it can be read again.
#[derive(Debug)]
pub(crate) struct LoadBalancerCache {
    tracker: Tracker,
    pub(crate) write_cache: WriteCache,
    /// Features of Octavia, once it has listed its versions.
    features: OnceCell<Features>,
}

impl LoadBalancerCache {
    pub(crate) fn new(config: &Config) -> LoadBalancerCache {
        let (write_cache, features) = Default::default();
        LoadBalancerCache { tracker: Tracker::new(config.wait_active_steps), write_cache, features }
    }
}

impl OpenStack {
    fn writer<'a>(&'a self, polled: Option<&'a Polled>) -> Writer<'a> {
        let LoadBalancerCache { tracker, write_cache, .. } = &self.load_balancer_cache;
        Writer { session: &self.session, tracker, write_cache, polled }
    }

    /// Returns the features of this Octavia. If it rejects or redirects the listing of its versions, or answers with something else, no
    /// feature is assumed: often a gateway forwards only paths below a version. No response is an error; otherwise a load balancer
    /// would be created without its source ranges.
    async fn features(&self) -> Result<Features> {
        let read = || async {
            let versions = octavia::versions(&self.session).await?;
            let versions = versions.iter().map(|version| version.id.as_str());
            Ok(Features::of(versions, &self.config.load_balancer.provider))
        };
        let read: std::result::Result<&Features, Error> = self.load_balancer_cache.features.get_or_try_init(read).await;
        match read {
            Ok(features) => Ok(*features),
            Err(error) if error.kind() == ErrorKind::Unexpected && error.status().is_none() => Ok(Features::default()),
            Err(error) if matches!(error.status(), Some(300..400 | 400 | 403 | 404 | 405 | 406)) => {
                Ok(Features::default())
            }
            Err(error) => Err(error.during(OBSERVE)),
        }
    }
}

#[async_trait]
impl TypedLoadBalancers for OpenStack {
    type State = Observation;
    type Change = Payload;
    type Polled = Polled;

    fn settings(
        &self,
        annotations: &BTreeMap<String, String>,
        common: LoadBalancerSettings,
    ) -> std::result::Result<LoadBalancerSettings, Vec<FieldError>> {
        Ok(settings::common_settings(&self.config, &TABLE.reader(annotations), common))
    }

    fn kind(&self, desired: &DesiredLoadBalancer) -> Option<&'static str> {
        desired.settings.internal.then_some(LoadBalancerKind::INTERNAL)
    }

    async fn observe(&self, wanted: &[DesiredLoadBalancer]) -> Vec<Result<Option<LoadBalancerState<Observation>>>> {
        let (config, tracker, features) = (&self.config, &self.load_balancer_cache.tracker, &self.features().await);
        let reader = &CloudReader::new(&self.session, wanted);
        Observer { reader, config, tracker, features }.observe(wanted).await
    }

    async fn list(&self, cluster: &ClusterName) -> Result<Vec<LoadBalancerKey>> {
        let session = &self.session;
        let listed = try_join!(
            octavia::LOAD_BALANCERS.list(session, &[]),
            octavia::LISTENERS.list(session, &[]),
            network::FLOATING_IPS.list(session, &[]),
            network::SECURITY_GROUPS.list(session, &[])
        );
        let (balancers, listeners, floating_ips, groups) = listed.map_err(|error| error.during(LIST))?;
        Ok(list::owners(cluster, &balancers, &listeners, &floating_ips, &groups))
    }

    fn plan(&self, desired: &DesiredLoadBalancer, state: Option<&Observation>) -> Result<Plan<Payload>> {
        match (state, &desired.spec) {
            (Some(seen), _) => plan::plan(&self.config, desired, seen.clone()),
            (None, None) => Ok(Plan::default()),
            (None, Some(_)) => {
                Err(Error::new(ErrorKind::Unexpected, plan::PLAN, "this load balancer was not observed"))
            }
        }
    }

    async fn apply(
        &self,
        _: &LoadBalancerKey,
        payload: &Payload,
        polled: Option<&Polled>,
    ) -> Result<Applied<Observation>> {
        self.writer(polled).write(payload.clone()).await
    }

    async fn poll(&self, _: &LoadBalancerKey, operation: &Operation) -> Result<Progress<Polled>> {
        self.writer(None).poll(operation).await
    }
}
