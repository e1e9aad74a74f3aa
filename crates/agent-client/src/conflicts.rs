//! Error messages about conflicts, which a plan predicts and the server reports with the same text.

use std::net::IpAddr;

use crate::calls::AddressRequest;
use crate::records::CloudAddress;

/// Error message for an address outside the pool.
pub fn outside_pool(ip: &IpAddr, internal: bool) -> String {
    let inside = if internal { "internal " } else { "" };
    format!("the address {ip} is not in the {inside}pool of the cloud; request an address of the pool, or none")
}

/// Error message for another address than that of the share group.
pub fn other_group_address(desired: &AddressRequest, shared: &CloudAddress) -> String {
    let (group, ip) = (desired.share_group.as_deref().unwrap_or_default(), shared.ip);
    format!("the share group {group:?} has the address {ip}; request that address, or none")
}

/// Error message for a second load balancer of a Service.
pub fn has_another(own: &str, other: &str) -> String {
    format!("this Service already has the load balancer {own:?} and cannot also have {other:?}")
}
