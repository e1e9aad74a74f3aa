//! What a balancer tells about itself.

use std::net::IpAddr;

use super::waiting::{DELETED, PENDING_DELETE};
use crate::api::octavia::LoadBalancer;

impl LoadBalancer {
    /// It is on its way out, or out already.
    pub(crate) fn is_leaving(&self) -> bool {
        [DELETED, PENDING_DELETE].contains(&self.provisioning_status.as_str())
    }

    /// Clients reach it by IPv6, where floating IPs do not exist.
    pub(crate) fn has_ipv6_vip(&self) -> bool {
        self.vip_address.parse().is_ok_and(|address: IpAddr| address.is_ipv6())
    }
}
