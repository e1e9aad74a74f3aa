//! Implements [`Instances`].

use async_trait::async_trait;
use bowline_cloud::{Error, ErrorKind, Identity, InstancePage, Instances, PageToken, Result};
use bowline_core::{Instance, InstanceRef, InstanceState};
use std::sync::Arc;

use crate::backends::demo;
use crate::identity::normalized;
use crate::pool::Query;
use crate::provider::Machines;
use crate::{Cloudlycke, NAME};

/// Machines on one page of the listing.
pub(crate) const PAGE: usize = 50;

#[async_trait]
impl Instances for Cloudlycke {
    async fn find(&self, asked: &[InstanceRef]) -> Vec<Result<InstanceState>> {
        let pool = match &self.machines {
            Machines::Demo(demo) => return asked.iter().map(|asked| Ok(demo.find(asked))).collect(),
            Machines::Pool(pool) => pool,
        };
        let identities: Vec<_> = asked.iter().map(|asked| self.identify(asked)).collect();
        let queries: Vec<_> = identities.iter().filter_map(|identity| query(identity.as_ref().ok()?)).collect();
        let mut found = pool.find(&queries).await.into_iter();
        let answers = asked.iter().zip(identities).map(|(asked, identity)| match identity? {
            Identity::NotMine => Ok(InstanceState::NotMine),
            _ => found.next().unwrap_or_else(|| Err(missing())).map(|state| with_id_of(asked, state)),
        });
        answers.collect()
    }

    async fn list(&self, page: Option<&PageToken>) -> Result<InstancePage> {
        let (states, unread) = match &self.machines {
            Machines::Demo(demo) => (demo.list(), 0),
            Machines::Pool(pool) => pool.list().await?,
        };
        let is_later = |state: &InstanceState| page.is_none_or(|page| id(state) > page.0.as_str());
        let mut instances: Vec<_> = states.into_iter().filter(is_later).collect();
        let is_last = instances.len() <= PAGE;
        instances.truncate(PAGE);
        let next = instances.last().filter(|_| !is_last).map(|last| PageToken(id(last).to_owned()));
        Ok(InstancePage { instances, next, unread, ..InstancePage::default() })
    }

    fn identify(&self, asked: &InstanceRef) -> Result<Identity> {
        if matches!(self.machines, Machines::Demo(_)) {
            return Ok(demo::identify(asked));
        }
        let Some(id) = &asked.provider_id else { return Ok(Identity::Name(asked.node.to_string())) };
        match (id.prefix(), id.rest()) {
            (Some(NAME), Some(rest)) => normalized(rest).map(Identity::Id).ok_or_else(|| malformed(id.as_str())),
            _ => Ok(Identity::NotMine),
        }
    }
}

fn query(identity: &Identity) -> Option<Query> {
    match identity {
        Identity::Id(id) => Some(Query::Id(id.clone())),
        Identity::Name(name) => Some(Query::Name(name.clone())),
        Identity::NotMine => None,
    }
}

/// Returns the state with the provider ID of the Node, which may be another spelling of the machine's. It never changes.
fn with_id_of(asked: &InstanceRef, state: InstanceState) -> InstanceState {
    let with_id = |instance: Arc<Instance>| match &asked.provider_id {
        Some(id) if instance.provider_id.as_ref() != Some(id) && !is_spelling(id.rest(), &instance.id) => {
            Arc::new(Instance { provider_id: Some(id.clone()), ..(*instance).clone() })
        }
        _ => instance,
    };
    match state {
        InstanceState::Running(instance) => InstanceState::Running(with_id(instance)),
        InstanceState::Stopped(instance) => InstanceState::Stopped(with_id(instance)),
        other => other,
    }
}

/// Returns whether the text is the machine's ID, but for upper case.
fn is_spelling(rest: Option<&str>, id: &str) -> bool {
    rest.and_then(normalized).is_some_and(|rest| rest == id)
}

fn id(state: &InstanceState) -> &str {
    state.instance().map_or("", |instance| &instance.id)
}

fn missing() -> Error {
    Error::new(ErrorKind::Unexpected, "find machine", "the pool returned no answer for this machine")
}

fn malformed(id: &str) -> Error {
    let fix =
        format!("start the kubelet with --provider-id={NAME}://ID and one prefix, and delete and rejoin the Node");
    let message = format!("{id} is not an ID of a machine; fix: {fix}");
    Error::new(ErrorKind::InvalidConfig, "find machine", message)
}
