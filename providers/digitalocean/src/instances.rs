//! Droplets as machines of Nodes.

use std::sync::Arc;

use async_trait::async_trait;
use bowline_cloud::{Error, ErrorKind, Identity, InstancePage, Instances, PageToken, Result};
use bowline_core::{Address, AddressType, Instance, InstanceRef, InstanceState, ProviderId};
use futures::future::join_all;

use crate::api::{Droplet, DropletStatus};
use crate::{DigitalOcean, NAME};

#[async_trait]
impl Instances for DigitalOcean {
    async fn find(&self, asked: &[InstanceRef]) -> Vec<Result<InstanceState>> {
        join_all(asked.iter().map(|asked| self.find_one(asked))).await
    }

    async fn list(&self, page: Option<&PageToken>) -> Result<InstancePage> {
        let page = self.client.droplets_page(page.map(|token| token.0.clone())).await?;
        let total = page.items.len();
        // A Droplet without a private address is an error of its own Node only.
        let instances: Vec<_> = page.items.into_iter().filter_map(|droplet| state(droplet).ok()).collect();
        let unread = total.saturating_sub(instances.len());
        Ok(InstancePage { instances, next: page.next.map(PageToken), unread, ..InstancePage::default() })
    }

    fn identify(&self, asked: &InstanceRef) -> Result<Identity> {
        match &asked.provider_id {
            None => Ok(Identity::Name(asked.node.to_string())),
            Some(id) if id.prefix() != Some(NAME) => Ok(Identity::NotMine),
            Some(id) => Ok(Identity::Id(droplet_id(id)?.to_string())),
        }
    }
}

impl DigitalOcean {
    async fn find_one(&self, asked: &InstanceRef) -> Result<InstanceState> {
        match (self.identify(asked)?, &asked.provider_id) {
            (Identity::NotMine, _) => Ok(InstanceState::NotMine),
            (Identity::Id(_), Some(id)) => self.find_by_id(droplet_id(id)?).await,
            (Identity::Id(name) | Identity::Name(name), _) => self.find_by_name(&name).await,
        }
    }

    async fn find_by_id(&self, id: u64) -> Result<InstanceState> {
        let found = self.client.droplet(id).await.map_err(|error| error.during("getting droplet by ID"))?;
        match found {
            None => Ok(InstanceState::Gone),
            Some(droplet) if droplet.id == id => state(droplet),
            Some(other) => {
                let message = format!("the API returned droplet {} for droplet {id}", other.id);
                Err(Error::new(ErrorKind::Unexpected, "getting droplet by ID", message))
            }
        }
    }

    async fn find_by_name(&self, name: &str) -> Result<InstanceState> {
        let found =
            self.client.droplets_of_name(name).await.map_err(|error| error.during("getting droplet by name"))?;
        // upstream: the API ignores case, the manager does not.
        let mut found: Vec<_> = found.into_iter().filter(|droplet| droplet.name == name).collect();
        match (found.pop(), found.first()) {
            (None, _) => Ok(InstanceState::Gone),
            (Some(droplet), None) => state(droplet),
            // upstream: the first Droplet is used.
            (Some(one), Some(other)) => {
                let message = format!(
                    "droplets {} and {} have the name {name}; rename one of them, or start the kubelet with \
                     --provider-id={NAME}://ID",
                    other.id, one.id
                );
                Err(Error::new(ErrorKind::InvalidConfig, "getting droplet by name", message))
            }
        }
    }
}

/// Reads the Droplet ID from a provider ID with our prefix.
pub(crate) fn droplet_id(id: &ProviderId) -> Result<u64> {
    let number = id.rest().unwrap_or_default();
    let message = match number.parse::<i64>().map(u64::try_from) {
        _ if number.is_empty() => "provider ID number cannot be empty".to_owned(),
        Ok(Ok(id @ 1..)) => return Ok(id),
        Ok(_) => "dropletID is invalid because cannot be less than 1".to_owned(),
        Err(error) => format!("failed to convert provider ID number {number:?}: {error}"),
    };
    Err(Error::new(ErrorKind::InvalidConfig, "determining droplet ID from providerID", message))
}

/// Returns the state of a Droplet, which needs a private IPv4 address.
fn state(droplet: Droplet) -> Result<InstanceState> {
    let stopped = droplet.status == DropletStatus::Off;
    let known = if stopped { bowline_cloud::KnownState::Stopped } else { bowline_cloud::KnownState::Running };
    let addresses = addresses(&droplet).map_err(|message| {
        let operation = format!("getting node addresses of droplet {} for node {}", droplet.id, droplet.name);
        Error::new(ErrorKind::Unavailable, operation, message).with_known_state(known)
    })?;
    let instance = Arc::new(Instance {
        provider_id: Some(ProviderId::of(NAME, &droplet.id.to_string())),
        id: droplet.id.to_string(),
        name: droplet.name,
        instance_type: droplet.size_slug,
        region: droplet.region.slug,
        addresses,
        ..Instance::default()
    });
    Ok(if stopped { InstanceState::Stopped(instance) } else { InstanceState::Running(instance) })
}

/// Returns the addresses in the order of the Node: host name, private IPv4, public IPv4, public IPv6.
fn addresses(droplet: &Droplet) -> std::result::Result<Vec<Address>, String> {
    let Some(private) = droplet.private_v4() else {
        // upstream: the second text ends with `<nil>`.
        let cause = if droplet.networks.is_none() { "no networks have been defined" } else { "the droplet has none" };
        return Err(format!("could not get private ip: {cause}; attach the droplet to a VPC"));
    };
    let own = [(AddressType::Hostname, droplet.name.as_str()), (AddressType::InternalIP, private)];
    let public = [droplet.public_v4(), droplet.public_v6()].into_iter().flatten();
    let public = public.map(|address| (AddressType::ExternalIP, address));
    Ok(own.into_iter().chain(public).map(|(kind, address)| Address::new(kind, address)).collect())
}
