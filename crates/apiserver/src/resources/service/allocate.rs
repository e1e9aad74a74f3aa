//! Allocates cluster IPs and node ports of a Service before it is written, and releases those it no longer needs.
//!
//! ```text
//!  new object ─► clusterIPs from clusterIP ─┐
//!                                           ├─► families ─► cluster IP ─► node ports ─► health check port
//!  update ─────► inherit from the old one ──┘
//! ```
//!
//! Allocation precedes validation, so an invalid address or port is rejected here while other fields may still be invalid.
//! The cluster has one IP range, so a Service gets at most one address.

use std::net::IpAddr;

use serde_json::Value;

use super::claim::Claim;
use super::pools::Pools;
use super::shape::{self, NONE};
use super::{carry_over, families, node_ports};
use crate::field_error::FieldError;
use crate::resources::Reservation;
use crate::status::{ApiError, ApiResult, Named};
use crate::validation;
use crate::validation::address::parse_ip;
use crate::value::Json;

const SERVICE: Named<'static> = Named { group: "", kind: "Service" };
const CLUSTER_IPS: &str = "spec.clusterIPs";

/// Allocates what a new Service needs.
pub(super) fn for_create(pools: &Pools, dry_run: bool, svc: &mut Value) -> ApiResult<Option<Reservation>> {
    carry_over::mirror_on_create(svc);
    families::resolve(svc, None, pools.family()).map_err(|errors| invalid(svc, errors))?;
    let mut claim = Claim::new(pools, dry_run);
    allocate_cluster_ip(svc, &mut claim)?;
    node_ports::allocate(svc, &mut claim)?;
    Ok(claim.into_reservation())
}

/// Allocates what an update adds and releases what it no longer needs.
pub(super) fn for_update(pools: &Pools, dry_run: bool, svc: &mut Value, old: &Value) -> ApiResult<Option<Reservation>> {
    carry_over::inherit(svc, old);
    carry_over::mirror_on_update(svc, old);
    families::resolve(svc, Some(old), pools.family()).map_err(|errors| invalid(svc, errors))?;
    let mut claim = Claim::new(pools, dry_run);
    update_cluster_ip(svc, old, &mut claim)?;
    node_ports::update(svc, old, &mut claim)?;
    Ok(claim.into_reservation())
}

/// Releases all allocations of a deleted Service.
pub(super) fn release(pools: &Pools, svc: &Value) {
    cluster_ips(svc).for_each(|ip| pools.release_address(ip));
    shape::node_ports(svc).into_iter().for_each(|port| pools.release_port(port));
    if shape::needs_health_check_port(svc) {
        pools.release_port(shape::health_check_port(svc));
    }
}

pub(super) fn invalid(svc: &Value, errors: Vec<FieldError>) -> ApiError {
    ApiError::invalid(SERVICE, svc.text("metadata.name"), &errors)
}

// === Cluster IPs ===

/// Returns the allocated addresses of a Service. Headless and ExternalName Services have none.
fn cluster_ips(svc: &Value) -> impl Iterator<Item = IpAddr> {
    let ips = if shape::is_external_name(svc) { Vec::new() } else { svc.texts(CLUSTER_IPS) };
    ips.into_iter().filter_map(parse_ip)
}

fn allocate_cluster_ip(svc: &mut Value, claim: &mut Claim) -> ApiResult<()> {
    let requested = svc.texts(CLUSTER_IPS).first().map(|ip| (*ip).to_owned()).unwrap_or_default();
    if shape::is_external_name(svc) || requested == NONE {
        return Ok(());
    }
    let allocated = match parse_ip(&requested) {
        Some(ip) => allocate_requested_ip(svc, ip, &requested, claim).map(|()| requested)?,
        None => allocate_next_ip(svc, claim)?.to_string(),
    };
    svc.put("spec.clusterIP", allocated.as_str());
    svc.put(CLUSTER_IPS, vec![allocated]);
    Ok(())
}

fn allocate_requested_ip(svc: &Value, ip: IpAddr, requested: &str, claim: &mut Claim) -> ApiResult<()> {
    let is_checked = claim.pools().covers(ip) && !claim.is_dry_run();
    let reason = match parent_ref_error(svc, ip).filter(|_| is_checked) {
        Some(reason) => reason,
        None => match claim.allocate_address(ip) {
            Ok(()) => return Ok(()),
            Err(error) => error.to_string(),
        },
    };
    let detail = format!("failed to allocate IP {requested}: {reason}");
    Err(invalid(svc, vec![FieldError::invalid(CLUSTER_IPS, svc.at(CLUSTER_IPS).clone(), detail)]))
}

fn allocate_next_ip(svc: &Value, claim: &mut Claim) -> ApiResult<IpAddr> {
    let name = svc.text("metadata.name");
    let ip = claim
        .allocate_next_address()
        .map_err(|error| ApiError::internal(format!("failed to allocate a serviceIP for Service {name:?}: {error}")))?;
    match parent_ref_error(svc, ip).filter(|_| !claim.is_dry_run()) {
        // upstream: the list already has an empty entry for the address, which the error shows.
        Some(reason) => {
            let detail = format!("failed to allocate IP: {reason}");
            Err(invalid(svc, vec![FieldError::invalid(CLUSTER_IPS, vec![""], detail)]))
        }
        None => Ok(ip),
    }
}

/// Returns the error of the parent reference of an allocated address.
///
/// upstream: an allocated address is an IPAddress object whose `parentRef` has the name of the Service. An invalid name
/// fails there, before the name of the Service is validated.
fn parent_ref_error(svc: &Value, ip: IpAddr) -> Option<String> {
    const FIELD: &str = "spec.parentRef.name";
    const ADDRESS: Named<'static> = Named { group: "networking.k8s.io", kind: "IPAddress" };
    let errors = match svc.text("metadata.name") {
        "" => vec![FieldError::required(FIELD, "")],
        name => validation::invalid_each(FIELD, name, validation::path_segment(name, false)),
    };
    (!errors.is_empty()).then(|| ApiError::invalid(ADDRESS, &ip.to_string(), &errors).message)
}

fn update_cluster_ip(svc: &mut Value, old: &Value, claim: &mut Claim) -> ApiResult<()> {
    match (shape::is_external_name(old), shape::is_external_name(svc)) {
        (true, false) => allocate_cluster_ip(svc, claim),
        (false, true) => {
            cluster_ips(old).for_each(|ip| claim.release_address(ip));
            Ok(())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pools() -> Pools {
        Pools::new("10.96.0.0/16".parse().unwrap(), (30_000, 32_767))
    }

    fn service(name: &str, spec: Value) -> Value {
        json!({"metadata": {"name": name}, "spec": spec})
    }

    #[test]
    fn new_service_gets_an_address_in_both_fields() {
        let mut svc = service("a", json!({"type": "ClusterIP"}));
        for_create(&pools(), false, &mut svc).unwrap().unwrap().commit();
        let ip = svc.text("spec.clusterIP").to_owned();
        assert!(ip.starts_with("10.96."), "{ip}");
        assert_eq!(*svc.at(CLUSTER_IPS), json!([ip]));
    }

    #[test]
    fn allocated_address_is_rejected_until_released() {
        let pools = pools();
        let request = || service("a", json!({"type": "ClusterIP", "clusterIP": "10.96.0.85"}));
        for_create(&pools, false, &mut request()).unwrap().unwrap().commit();
        let rejected = for_create(&pools, false, &mut request()).err().unwrap();
        assert_eq!(
            rejected.message,
            "Service \"a\" is invalid: spec.clusterIPs: Invalid value: [\"10.96.0.85\"]: failed to allocate IP \
             10.96.0.85: provided IP is already allocated"
        );
        let mut holder = request();
        holder.put(CLUSTER_IPS, vec!["10.96.0.85"]);
        release(&pools, &holder);
        assert!(for_create(&pools, false, &mut request()).is_ok());
    }

    #[test]
    fn failed_write_releases_its_address() {
        let pools = pools();
        let mut svc = service("a", json!({"type": "ClusterIP", "clusterIP": "10.96.0.85"}));
        drop(for_create(&pools, false, &mut svc.clone()).unwrap());
        assert!(for_create(&pools, false, &mut svc).is_ok());
    }

    #[test]
    fn headless_and_external_name_services_allocate_nothing() {
        let pools = pools();
        for spec in [json!({"type": "ClusterIP", "clusterIP": "None"}), json!({"type": "ExternalName"})] {
            assert!(for_create(&pools, false, &mut service("a", spec)).unwrap().is_none());
        }
    }

    #[test]
    fn invalid_parent_reference_fails_the_allocation() {
        let message =
            |name: &str, spec: Value| for_create(&pools(), false, &mut service(name, spec)).err().unwrap().message;
        let text = message("", json!({"type": "ClusterIP"}));
        let ending = "is invalid: spec.parentRef.name: Required value";
        let start = "Service \"\" is invalid: spec.clusterIPs: Invalid value: [\"\"]: failed to allocate IP: \
                     IPAddress.networking.k8s.io \"10.96.";
        assert!(text.starts_with(start) && text.ends_with(ending), "{text}");
        assert_eq!(
            message("a/b", json!({"type": "ClusterIP", "clusterIP": "10.96.0.9"})),
            "Service \"a/b\" is invalid: spec.clusterIPs: Invalid value: [\"10.96.0.9\"]: failed to allocate IP \
             10.96.0.9: IPAddress.networking.k8s.io \"10.96.0.9\" is invalid: spec.parentRef.name: Invalid value: \
             \"a/b\": may not contain '/'"
        );
    }

    #[test]
    fn full_range_is_an_internal_error() {
        let pools = Pools::new("10.96.0.0/30".parse().unwrap(), (30_000, 32_767));
        let create = || for_create(&pools, false, &mut service("a", json!({"type": "ClusterIP"})));
        create().unwrap().unwrap().commit();
        create().unwrap().unwrap().commit();
        let full = create().err().unwrap();
        assert_eq!(
            full.message,
            "Internal error occurred: failed to allocate a serviceIP for Service \"a\": range is full"
        );
    }

    #[test]
    fn change_to_external_name_releases_the_address_on_commit() {
        let pools = pools();
        let mut old = service("a", json!({"type": "ClusterIP", "clusterIP": "10.96.0.85"}));
        for_create(&pools, false, &mut old).unwrap().unwrap().commit();
        let mut new = service("a", json!({"type": "ExternalName", "externalName": "ex.com"}));
        let reservation = for_update(&pools, false, &mut new, &old).unwrap();
        assert!(pools.allocate_address("10.96.0.85".parse().unwrap()).is_err(), "not before the commit");
        reservation.unwrap().commit();
        assert!(pools.allocate_address("10.96.0.85".parse().unwrap()).is_ok());
    }

    #[test]
    fn update_without_changes_does_not_change_the_pools() {
        let pools = pools();
        let mut old = service("a", json!({"type": "NodePort", "ports": [{"port": 80, "protocol": "TCP"}]}));
        for_create(&pools, false, &mut old).unwrap().unwrap().commit();
        let mut new = service("a", json!({"type": "NodePort", "ports": [{"port": 80, "protocol": "TCP"}]}));
        assert!(for_update(&pools, false, &mut new, &old).unwrap().is_none());
        assert_eq!(new, old);
    }
}
