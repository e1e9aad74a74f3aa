//! What a balancer tells about itself.

use std::net::IpAddr;

use bowline_core::IpFamily;

use super::waiting::{ACTIVE, DELETED, ERROR, PENDING_DELETE};
use crate::api::octavia::LoadBalancer;

impl LoadBalancer {
    /// Octavia is changing it, and takes no other change of it meanwhile.
    pub(crate) fn is_at_work(&self) -> bool {
        ![ACTIVE, ERROR].contains(&self.provisioning_status.as_str())
    }

    /// It is on its way out, or out already.
    pub(crate) fn is_leaving(&self) -> bool {
        [DELETED, PENDING_DELETE].contains(&self.provisioning_status.as_str())
    }

    /// Clients reach it by IPv6, where floating IPs do not exist.
    pub(crate) fn has_ipv6_vip(&self) -> bool {
        self.vip_address.parse().is_ok_and(|address: IpAddr| address.is_ipv6())
    }

    /// The families of all its addresses, that of its VIP first.
    pub(crate) fn families(&self) -> Vec<IpFamily> {
        let others = self.additional_vips.iter().map(|vip| &vip.ip_address);
        let addresses = [&self.vip_address].into_iter().chain(others).filter_map(|address| address.parse().ok());
        let mut families = Vec::new();
        for address in addresses {
            let family = if matches!(address, IpAddr::V4(_)) { IpFamily::IPv4 } else { IpFamily::IPv6 };
            if !families.contains(&family) {
                families.push(family);
            }
        }
        families
    }
}
