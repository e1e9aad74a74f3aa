//! Balancers of Octavia, with their floating IPs and security groups in Neutron.
//!
//! ```text
//!  annotations, class, cloud.conf ──settings──► Settings ─┐
//!  wish ──────────────────────────────────────────────────┼─► plan: steps, each with a Payload ──► apply: one write each
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
mod waiting;
mod written;

use std::collections::BTreeMap;

use async_trait::async_trait;
use bowline_cloud::{Applied, Error, ErrorKind, LoadBalancerKind, Result, TypedLoadBalancers};
use bowline_core::annotations::{LoadBalancerSettings, Mistake};
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
use waiting::Waiting;
use written::Written;

pub(crate) use annotations::reference as annotation_reference;
pub(crate) use observe::Sight;

const LIST: &str = "list balancers";

/// What this process remembers about balancers. All of it can be asked for again.
#[derive(Debug)]
pub(crate) struct Memory {
    waiting: Waiting,
    pub(crate) written: Written,
    /// What Octavia can do, once it has said so.
    features: OnceCell<Features>,
}

impl Memory {
    pub(crate) fn new(config: &Config) -> Memory {
        let (written, features) = Default::default();
        Memory { waiting: Waiting::new(config.wait_active_steps), written, features }
    }
}

impl OpenStack {
    fn writer<'a>(&'a self, polled: Option<&'a Polled>) -> Writer<'a> {
        let Memory { waiting, written, .. } = &self.balancers;
        Writer { session: &self.session, waiting, written, polled }
    }

    /// What this Octavia can do. One that refuses to list its versions, or leads elsewhere, or lists something else, is one of which
    /// nothing is expected: often a gateway passes on nothing but what is below the version. One that does not answer is an error, or
    /// else a balancer would be made that is open to everybody.
    async fn features(&self) -> Result<Features> {
        let ask = || async {
            let versions = octavia::versions(&self.session).await?;
            let versions = versions.iter().map(|version| version.id.as_str());
            Ok(Features::of(versions, &self.config.load_balancer.provider))
        };
        let asked: std::result::Result<&Features, Error> = self.balancers.features.get_or_try_init(ask).await;
        match asked {
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
    ) -> std::result::Result<LoadBalancerSettings, Vec<Mistake>> {
        Ok(settings::common_settings(&self.config, &TABLE.reader(annotations), common))
    }

    fn kind(&self, desired: &DesiredLoadBalancer) -> Option<&'static str> {
        desired.settings.internal.then_some(LoadBalancerKind::INTERNAL)
    }

    async fn observe(&self, wanted: &[DesiredLoadBalancer]) -> Vec<Result<Option<LoadBalancerState<Observation>>>> {
        let (config, waiting, features) = (&self.config, &self.balancers.waiting, &self.features().await);
        let sight = &Sight::for_wishes(&self.session, wanted);
        Observer { sight, config, waiting, features }.observe(wanted).await
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
                Err(Error::new(ErrorKind::Unexpected, plan::PLAN, "nothing was looked up for this balancer"))
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
