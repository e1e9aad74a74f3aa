//! Status and addresses of an Octavia load balancer.

use std::net::IpAddr;

use bowline_core::IpFamily;

use super::tracker::{ACTIVE, DELETED, ERROR, PENDING_DELETE};
use crate::api::octavia::LoadBalancer;

impl LoadBalancer {
    /// An operation is pending, and Octavia rejects other changes until it ends.
    pub(crate) fn is_pending(&self) -> bool {
        ![ACTIVE, ERROR].contains(&self.provisioning_status.as_str())
    }

    /// It is being deleted, or is deleted already.
    pub(crate) fn is_deleting(&self) -> bool {
        [DELETED, PENDING_DELETE].contains(&self.provisioning_status.as_str())
    }

    /// Its VIP is an IPv6 address, for which Neutron has no floating IPs.
    pub(crate) fn has_ipv6_vip(&self) -> bool {
        self.vip_address.parse().is_ok_and(|address: IpAddr| address.is_ipv6())
    }

    /// Returns the IP families of all its addresses, that of the VIP first.
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
