//! Implements [`Instances`].

use std::sync::Arc;

use async_trait::async_trait;
use bowline_cloud::{Error, ErrorKind, Identity, InstancePage, Instances, PageToken, Result};
use bowline_core::{Address, AddressType, Instance, InstanceRef, InstanceState, ProviderId};

use crate::client::{Server, Status};
use crate::{Acme, NAME};

#[async_trait]
impl Instances for Acme {
    async fn find(&self, asked: &[InstanceRef]) -> Vec<Result<InstanceState>> {
        let mut answers = Vec::with_capacity(asked.len());
        for asked in asked {
            answers.push(self.find_one(asked).await);
        }
        answers
    }

    async fn list(&self, page: Option<&PageToken>) -> Result<InstancePage> {
        let query: Vec<_> = page.map(|token| ("after", token.0.as_str())).into_iter().collect();
        let page = self.client.servers(&query).await?;
        let instances = page.servers.into_iter().map(state).collect();
        Ok(InstancePage { instances, next: page.next.map(PageToken), ..InstancePage::default() })
    }

    fn identify(&self, asked: &InstanceRef) -> Result<Identity> {
        let Some(id) = &asked.provider_id else { return Ok(Identity::Name(asked.node.to_string())) };
        match (id.prefix(), id.rest()) {
            (Some(NAME), Some(rest)) if is_id(rest) => Ok(Identity::Id(rest.to_lowercase())),
            (Some(NAME), _) => {
                let message = format!("{id} is not a server ID, such as {NAME}://00ab12");
                Err(Error::new(ErrorKind::InvalidConfig, "find server", message))
            }
            _ => Ok(Identity::NotMine),
        }
    }
}

impl Acme {
    pub(crate) async fn find_one(&self, asked: &InstanceRef) -> Result<InstanceState> {
        match self.identify(asked)? {
            Identity::Id(id) => Ok(self.client.server(&id).await?.map_or(InstanceState::Gone, state)),
            Identity::Name(name) => only_one(&name, self.client.servers(&[("name", &name)]).await?.servers),
            Identity::NotMine => Ok(InstanceState::NotMine),
        }
    }
}

/// Names are not unique in this cloud. Two servers with the Node's name are an error, because either could be the Node.
fn only_one(name: &str, mut servers: Vec<Server>) -> Result<InstanceState> {
    if let [first, second, ..] = servers.as_slice() {
        let message = format!("two servers are named {name}: {} and {}", first.id, second.id);
        return Err(Error::new(ErrorKind::InvalidConfig, "find server", message));
    }
    Ok(servers.pop().map_or(InstanceState::Gone, state))
}

fn state(server: Server) -> InstanceState {
    let addresses = |kind: AddressType, ips: Vec<String>| ips.into_iter().map(move |ip| Address::new(kind, ip));
    let internal = addresses(AddressType::InternalIP, server.private_ips);
    let external = addresses(AddressType::ExternalIP, server.public_ips);
    let instance = Arc::new(Instance {
        provider_id: Some(ProviderId::of(NAME, &server.id)),
        id: server.id,
        name: server.name,
        instance_type: server.size,
        addresses: internal.chain(external).collect(),
        ..Instance::default()
    });
    match server.status {
        Status::Off => InstanceState::Stopped(instance),
        Status::Other => InstanceState::Running(instance),
    }
}

pub(crate) fn is_id(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
