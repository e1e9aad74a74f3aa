//! Servers of Nova with their ports in Neutron, as machines.

use async_trait::async_trait;
use bowline_cloud::{Error, ErrorKind, Instances, Result};
use bowline_core::{InstanceRef, InstanceState};

use crate::OpenStack;

#[async_trait]
impl Instances for OpenStack {
    async fn find(&self, asked: &[InstanceRef]) -> Vec<Result<InstanceState>> {
        asked.iter().map(|_| Err(Error::new(ErrorKind::Unsupported, "find instances", "not there yet"))).collect()
    }
}
