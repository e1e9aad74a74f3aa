//! Takes cluster IPs and node ports for a Service as a write begins, and frees what it no longer needs.
//!
//! ```text
//!  new object ─► clusterIPs from clusterIP ─┐
//!                                           ├─► families ─► cluster IP ─► node ports ─► health check port
//!  change ─────► inherit from the old one ──┘
//! ```
//!
//! This comes before validation, so an object may be refused here for an address or port, and may hold
//! nonsense everywhere else. The cluster has one IP range, so there is one address at most.

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

/// Takes what a new Service needs.
pub(super) fn for_new(pools: &Pools, dry_run: bool, svc: &mut Value) -> ApiResult<Option<Reservation>> {
    carry_over::mirror_new(svc);
    families::settle(svc, None, pools.family()).map_err(|errors| invalid(svc, errors))?;
    let mut claim = Claim::new(pools, dry_run);
    take_cluster_ip(svc, &mut claim)?;
    node_ports::take(svc, &mut claim)?;
    Ok(claim.into_reservation())
}

/// Takes what a change needs in addition and frees what it does without.
pub(super) fn for_change(pools: &Pools, dry_run: bool, svc: &mut Value, old: &Value) -> ApiResult<Option<Reservation>> {
    carry_over::inherit(svc, old);
    carry_over::mirror_changed(svc, old);
    families::settle(svc, Some(old), pools.family()).map_err(|errors| invalid(svc, errors))?;
    let mut claim = Claim::new(pools, dry_run);
    change_cluster_ip(svc, old, &mut claim)?;
    node_ports::change(svc, old, &mut claim)?;
    Ok(claim.into_reservation())
}

/// Gives back all that a Service held.
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

/// The addresses of a Service; neither a headless one nor an ExternalName has any.
fn cluster_ips(svc: &Value) -> impl Iterator<Item = IpAddr> {
    let held = if shape::is_external_name(svc) { Vec::new() } else { svc.texts(CLUSTER_IPS) };
    held.into_iter().filter_map(parse_ip)
}

fn take_cluster_ip(svc: &mut Value, claim: &mut Claim) -> ApiResult<()> {
    let asked = svc.texts(CLUSTER_IPS).first().map(|ip| (*ip).to_owned()).unwrap_or_default();
    if shape::is_external_name(svc) || asked == NONE {
        return Ok(());
    }
    let taken = match parse_ip(&asked) {
        Some(ip) => take_this_ip(svc, ip, &asked, claim).map(|()| asked)?,
        None => take_any_ip(svc, claim)?.to_string(),
    };
    svc.put("spec.clusterIP", taken.as_str());
    svc.put(CLUSTER_IPS, vec![taken]);
    Ok(())
}

fn take_this_ip(svc: &Value, ip: IpAddr, asked: &str, claim: &mut Claim) -> ApiResult<()> {
    let within = claim.pools().covers(ip) && !claim.is_dry_run();
    let refused = match bad_holder(svc, ip).filter(|_| within) {
        Some(reason) => reason,
        None => match claim.take_address(ip) {
            Ok(()) => return Ok(()),
            Err(refusal) => refusal.to_string(),
        },
    };
    let detail = format!("failed to allocate IP {asked}: {refused}");
    Err(invalid(svc, vec![FieldError::invalid(CLUSTER_IPS, svc.at(CLUSTER_IPS).clone(), detail)]))
}

fn take_any_ip(svc: &Value, claim: &mut Claim) -> ApiResult<IpAddr> {
    let name = svc.text("metadata.name");
    let ip = claim.take_any_address().map_err(|refusal| {
        ApiError::internal(format!("failed to allocate a serviceIP for Service {name:?}: {refusal}"))
    })?;
    match bad_holder(svc, ip).filter(|_| !claim.is_dry_run()) {
        // upstream: the list has room for the address by now, and the error shows that.
        Some(reason) => {
            let detail = format!("failed to allocate IP: {reason}");
            Err(invalid(svc, vec![FieldError::invalid(CLUSTER_IPS, vec![""], detail)]))
        }
        None => Ok(ip),
    }
}

/// What keeps a Service from holding an address.
///
/// upstream: a taken address is an object of its own that refers to the Service by name. A name that cannot
/// be referred to fails there, before anyone looks at the name itself.
fn bad_holder(svc: &Value, ip: IpAddr) -> Option<String> {
    const FIELD: &str = "spec.parentRef.name";
    const ADDRESS: Named<'static> = Named { group: "networking.k8s.io", kind: "IPAddress" };
    let errors = match svc.text("metadata.name") {
        "" => vec![FieldError::required(FIELD, "")],
        name => validation::invalid_each(FIELD, name, validation::path_segment(name, false)),
    };
    (!errors.is_empty()).then(|| ApiError::invalid(ADDRESS, &ip.to_string(), &errors).message)
}

fn change_cluster_ip(svc: &mut Value, old: &Value, claim: &mut Claim) -> ApiResult<()> {
    match (shape::is_external_name(old), shape::is_external_name(svc)) {
        (true, false) => take_cluster_ip(svc, claim),
        (false, true) => {
            cluster_ips(old).for_each(|ip| claim.free_address(ip));
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
    fn a_new_service_gets_an_address_in_both_fields() {
        let mut svc = service("a", json!({"type": "ClusterIP"}));
        for_new(&pools(), false, &mut svc).unwrap().unwrap().commit();
        let ip = svc.text("spec.clusterIP").to_owned();
        assert!(ip.starts_with("10.96."), "{ip}");
        assert_eq!(*svc.at(CLUSTER_IPS), json!([ip]));
    }

    #[test]
    fn a_taken_address_is_refused_until_its_holder_is_gone() {
        let pools = pools();
        let asking = || service("a", json!({"type": "ClusterIP", "clusterIP": "10.96.0.85"}));
        for_new(&pools, false, &mut asking()).unwrap().unwrap().commit();
        let refused = for_new(&pools, false, &mut asking()).err().unwrap();
        assert_eq!(
            refused.message,
            "Service \"a\" is invalid: spec.clusterIPs: Invalid value: [\"10.96.0.85\"]: failed to allocate IP \
             10.96.0.85: provided IP is already allocated"
        );
        let mut holder = asking();
        holder.put(CLUSTER_IPS, vec!["10.96.0.85"]);
        release(&pools, &holder);
        assert!(for_new(&pools, false, &mut asking()).is_ok());
    }

    #[test]
    fn a_write_that_fails_gives_its_address_back() {
        let pools = pools();
        let mut svc = service("a", json!({"type": "ClusterIP", "clusterIP": "10.96.0.85"}));
        drop(for_new(&pools, false, &mut svc.clone()).unwrap());
        assert!(for_new(&pools, false, &mut svc).is_ok());
    }

    #[test]
    fn headless_and_external_name_services_take_nothing() {
        let pools = pools();
        for spec in [json!({"type": "ClusterIP", "clusterIP": "None"}), json!({"type": "ExternalName"})] {
            assert!(for_new(&pools, false, &mut service("a", spec)).unwrap().is_none());
        }
    }

    #[test]
    fn a_name_that_cannot_be_referred_to_fails_with_the_address() {
        let message =
            |name: &str, spec: Value| for_new(&pools(), false, &mut service(name, spec)).err().unwrap().message;
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
    fn a_full_range_is_an_internal_error() {
        let pools = Pools::new("10.96.0.0/30".parse().unwrap(), (30_000, 32_767));
        let take = || for_new(&pools, false, &mut service("a", json!({"type": "ClusterIP"})));
        take().unwrap().unwrap().commit();
        take().unwrap().unwrap().commit();
        let full = take().err().unwrap();
        assert_eq!(
            full.message,
            "Internal error occurred: failed to allocate a serviceIP for Service \"a\": range is full"
        );
    }

    #[test]
    fn becoming_an_external_name_frees_the_address_when_written() {
        let pools = pools();
        let mut old = service("a", json!({"type": "ClusterIP", "clusterIP": "10.96.0.85"}));
        for_new(&pools, false, &mut old).unwrap().unwrap().commit();
        let mut new = service("a", json!({"type": "ExternalName", "externalName": "ex.com"}));
        let reserved = for_change(&pools, false, &mut new, &old).unwrap();
        assert!(pools.take_address("10.96.0.85".parse().unwrap()).is_err(), "not yet");
        reserved.unwrap().commit();
        assert!(pools.take_address("10.96.0.85".parse().unwrap()).is_ok());
    }

    #[test]
    fn a_change_that_touches_nothing_leaves_the_pools_alone() {
        let pools = pools();
        let mut old = service("a", json!({"type": "NodePort", "ports": [{"port": 80, "protocol": "TCP"}]}));
        for_new(&pools, false, &mut old).unwrap().unwrap().commit();
        let mut new = service("a", json!({"type": "NodePort", "ports": [{"port": 80, "protocol": "TCP"}]}));
        assert!(for_change(&pools, false, &mut new, &old).unwrap().is_none());
        assert_eq!(new, old);
    }
}
