//! Balancers of Octavia, with their floating IPs and security groups in Neutron.
//!
//! ```text
//!  annotations, class, cloud.conf ──settings──► Settings ─┐
//!  wish ──────────────────────────────────────────────────┼─► plan: steps, each with a Payload ──► apply: one write each
//!  observe ──► Observation (in the state's resources) ────┘
//! ```

mod annotations;
mod apply;
mod asked;
mod balancer;
mod change;
mod features;
mod list;
mod names;
mod nodes;
mod observation;
mod observe;
mod passes;
mod plan;
mod problem;
mod servers;
mod settings;
mod status;
mod subnets;
#[cfg(test)]
mod testing;
mod waiting;

use std::collections::BTreeMap;

use async_trait::async_trait;
use bowline_cloud::{Applied, Error, ErrorKind, LoadBalancers, Result};
use bowline_core::annotations::{LoadBalancerSettings, Mistake};
use bowline_core::{ClusterName, LoadBalancerKey, LoadBalancerState, LoadBalancerWish, Plan, Step};
use futures::try_join;
use serde::Deserialize;
use tokio::sync::OnceCell;

use crate::api::{network, octavia};
use crate::session::CallError;
use crate::{Config, OpenStack};

use annotations::TABLE;
use apply::{APPLY, Writer};
use observation::{Features, Observation};
use observe::{OBSERVE, Observer};
use passes::Passes;
use waiting::Waiting;

pub(crate) use annotations::reference as annotation_reference;

const LIST: &str = "list balancers";

/// What this process remembers about balancers. All of it can be asked for again.
#[derive(Debug)]
pub(crate) struct Memory {
    waiting: Waiting,
    /// What Octavia can do, once it has said so.
    features: OnceCell<Features>,
    passes: Passes,
}

impl Memory {
    pub(crate) fn new(config: &Config) -> Memory {
        Memory { waiting: Waiting::new(config.wait_active_steps), features: OnceCell::new(), passes: Passes::default() }
    }
}

impl OpenStack {
    /// What this Octavia can do. One that refuses to list its versions, or leads elsewhere, or lists something else, is one of which
    /// nothing is expected: often a gateway passes on nothing but what is below the version. One that does not answer is an error, or
    /// else a balancer would be made that is open to everybody.
    async fn features(&self) -> Result<Features> {
        let ask = || async {
            let versions = octavia::versions(&self.session).await?;
            let versions = versions.iter().map(|version| version.id.as_str());
            Ok(Features::of(versions, &self.config.load_balancer.provider))
        };
        let asked: std::result::Result<&Features, CallError> = self.balancers.features.get_or_try_init(ask).await;
        match asked {
            Ok(features) => Ok(*features),
            Err(CallError::Garbled { .. }) => Ok(Features::default()),
            Err(error) if matches!(error.status(), Some(300..400 | 400 | 403 | 404 | 405 | 406)) => {
                Ok(Features::default())
            }
            Err(error) => Err(error.explain(OBSERVE)),
        }
    }
}

#[async_trait]
impl LoadBalancers for OpenStack {
    fn settings(
        &self,
        annotations: &BTreeMap<String, String>,
        common: LoadBalancerSettings,
    ) -> std::result::Result<LoadBalancerSettings, Vec<Mistake>> {
        Ok(settings::common_settings(&self.config, &TABLE.reader(annotations), common))
    }

    async fn observe(&self, wishes: &[LoadBalancerWish]) -> Vec<Result<Option<LoadBalancerState>>> {
        let Memory { waiting, passes, .. } = &self.balancers;
        passes.begin(wishes);
        let (session, config, features) = (&self.session, &self.config, &self.features().await);
        let seen = Observer { session, config, waiting, features }.observe(wishes).await;
        for (wish, seen) in wishes.iter().zip(&seen) {
            if let Err(error) = seen {
                passes.failed(&self.metrics, &wish.key, error.kind());
            }
        }
        seen
    }

    async fn list(&self, cluster: &ClusterName) -> Result<Vec<LoadBalancerKey>> {
        let session = &self.session;
        let listed = try_join!(
            octavia::load_balancers(session, &[]),
            octavia::listeners(session, &[]),
            network::floating_ips(session, &[]),
            network::security_groups(session, &[])
        );
        let (balancers, listeners, floating_ips, groups) = listed.map_err(|error| error.explain(LIST))?;
        Ok(list::owners(cluster, &balancers, &listeners, &floating_ips, &groups))
    }

    /// No call is made, and the plan depends on what it is given alone; it is counted, for the metrics.
    fn plan(&self, wish: &LoadBalancerWish, state: Option<&LoadBalancerState>) -> Result<Plan> {
        let planned = match (state, &wish.spec) {
            (Some(state), _) => {
                read(plan::PLAN, &state.resources).and_then(|seen: Observation| plan::plan(&self.config, wish, seen))
            }
            (None, None) => Ok(Plan::default()),
            (None, Some(_)) => {
                Err(Error::new(ErrorKind::Unexpected, plan::PLAN, "nothing was looked up for this balancer"))
            }
        };
        self.balancers.passes.planned(&self.metrics, &wish.key, &planned);
        planned
    }

    async fn apply(&self, key: &LoadBalancerKey, step: &Step) -> Result<Applied> {
        let payload = read(APPLY, &step.payload)?;
        let Memory { waiting, passes, .. } = &self.balancers;
        passes.applies(key);
        let applied = Writer { session: &self.session, waiting }.write(payload).await;
        applied.inspect_err(|error| passes.step_failed(&self.metrics, key, step, error))
    }
}

/// What this provider wrote down itself.
fn read<'a, T: Deserialize<'a>>(operation: &str, written: &'a serde_json::Value) -> Result<T> {
    T::deserialize(written).map_err(|error| {
        Error::new(ErrorKind::Unexpected, operation, format!("this is not what this provider wrote: {error}"))
    })
}
