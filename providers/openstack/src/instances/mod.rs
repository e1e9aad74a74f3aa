//! Servers of Nova with their ports in Neutron, as machines.

mod addresses;
mod id;
mod labels;

pub(crate) use id::{Ids, owns};

use async_trait::async_trait;
use bowline_cloud::{Error, ErrorKind, Identity, Instances, Result};
use bowline_core::{InstanceRef, InstanceState};

use crate::OpenStack;

#[async_trait]
impl Instances for OpenStack {
    async fn find(&self, asked: &[InstanceRef]) -> Vec<Result<InstanceState>> {
        asked.iter().map(|_| Err(Error::new(ErrorKind::Unsupported, "find instances", "not there yet"))).collect()
    }

    fn identify(&self, asked: &InstanceRef) -> Result<Identity> {
        let Some(id) = &asked.provider_id else { return Ok(Identity::Name(asked.node.as_str().to_owned())) };
        if !owns(id) {
            return Ok(Identity::NotMine);
        }
        // Nova finds a server by its ID in capitals, too, and tells of it in small letters.
        Ok(Identity::Id(self.ids().read(id)?.to_ascii_lowercase()))
    }
}

impl OpenStack {
    pub(crate) fn ids(&self) -> Ids {
        Ids::new(&self.config.global.region, self.config.regional)
    }
}
