//! Allocates and releases the node ports of a Service, including the health check node port.

use std::collections::{BTreeSet, HashMap, HashSet};

use serde_json::Value;

use super::allocate::invalid;
use super::claim::Claim;
use super::shape::{self, ServiceType};
use crate::field_error::FieldError;
use crate::status::{ApiError, ApiResult};
use crate::value::Json;

const PORTS: &str = "spec.ports";
const HEALTH_CHECK_PORT: &str = "spec.healthCheckNodePort";

/// Allocates the node ports of a new Service.
pub(super) fn allocate(svc: &mut Value, claim: &mut Claim) -> ApiResult<()> {
    if shape::may_have_node_ports(svc) {
        let picked = pick(svc, claim)?;
        write(svc, &picked);
    }
    if shape::needs_health_check_port(svc) {
        allocate_health_check(svc, claim)?;
    }
    Ok(())
}

/// Allocates and releases node ports for an update.
pub(super) fn update(svc: &mut Value, old: &Value, claim: &mut Claim) -> ApiResult<()> {
    let current = shape::node_ports(old);
    match shape::type_of(svc) {
        ServiceType::NodePort | ServiceType::LoadBalancer => {
            let picked = pick_on_update(svc, &current, claim)?;
            write(svc, &picked);
            current.difference(&shape::node_ports(svc)).for_each(|&port| claim.release_port(port));
        }
        // An ExternalName Service may list node ports, but none are allocated to it.
        ServiceType::ClusterIp | ServiceType::ExternalName if shape::may_have_node_ports(old) => {
            current.iter().for_each(|&port| claim.release_port(port));
        }
        _ => {}
    }
    update_health_check(svc, old, claim)
}

// === Allocation ===

/// Returns the node port of each entry, 0 for none. Entries with the same port number (such as TCP and UDP) share a node
/// port unless they request different ones.
fn pick(svc: &Value, claim: &mut Claim) -> ApiResult<Vec<i64>> {
    let all = shape::needs_node_ports(svc);
    let entries = svc.list(PORTS);
    let mut shared: HashMap<i64, i64> = HashMap::new();
    let mut picked = Vec::with_capacity(entries.len());
    for (i, entry) in entries.iter().enumerate() {
        let (number, own) = (number(entry), shape::node_port(entry));
        let port = match shared.get(&number) {
            _ if own == 0 && !all => 0,
            Some(&sibling) if own == 0 || own == sibling => sibling,
            Some(_) => allocate_requested(svc, i, own, claim)?,
            None => match entries.iter().find(|e| number == self::number(e) && shape::node_port(e) != 0) {
                Some(requesting) => allocate_requested(svc, i, shape::node_port(requesting), claim)?,
                None => allocate_next(claim)?,
            },
        };
        if port != 0 {
            shared.entry(number).or_insert(port);
        }
        picked.push(port);
    }
    Ok(picked)
}

/// As [`pick`], for an update: existing allocations are kept, and entries do not share a node port unless they request it.
fn pick_on_update(svc: &Value, current: &BTreeSet<i64>, claim: &mut Claim) -> ApiResult<Vec<i64>> {
    let all = shape::needs_node_ports(svc);
    let entries = svc.list(PORTS);
    let mut allocated: HashSet<i64> = HashSet::new();
    let mut seen: HashSet<(&str, i64)> = HashSet::new();
    let mut picked = Vec::with_capacity(entries.len());
    for (i, entry) in entries.iter().enumerate() {
        let (protocol, own) = (entry.text("protocol"), shape::node_port(entry));
        let port = match own {
            0 if !all => 0,
            0 => allocate_next(claim)?,
            _ if current.contains(&own) || allocated.contains(&own) => own,
            _ => allocate_requested(svc, i, own, claim)?,
        };
        allocated.extend((own != 0).then_some(own));
        if port != 0 && !seen.insert((protocol, port)) {
            // upstream: a plain error, so the client sees a 500.
            return Err(ApiError::plain(format!("duplicate nodePort: {{{protocol} {port}}}")));
        }
        picked.push(port);
    }
    Ok(picked)
}

fn number(entry: &Value) -> i64 {
    entry.int("port").unwrap_or_default()
}

fn allocate_requested(svc: &Value, index: usize, port: i64, claim: &mut Claim) -> ApiResult<i64> {
    claim.allocate_port(port).map(|()| port).map_err(|error| {
        let field = format!("{PORTS}[{index}].nodePort");
        invalid(svc, vec![FieldError::invalid(field, port, error.to_string())])
    })
}

fn allocate_next(claim: &mut Claim) -> ApiResult<i64> {
    claim.allocate_next_port().map_err(|error| ApiError::internal(format!("failed to allocate a nodePort: {error}")))
}

fn write(svc: &mut Value, picked: &[i64]) {
    for (entry, &port) in svc.list_mut(PORTS).into_iter().flatten().zip(picked) {
        if port != 0 {
            entry.put("nodePort", port);
        }
    }
}

// === Health check node port ===

fn allocate_health_check(svc: &mut Value, claim: &mut Claim) -> ApiResult<()> {
    let requested = shape::health_check_port(svc);
    let (allocated, what) = match requested {
        0 => (claim.allocate_next_port(), "a"),
        _ => (claim.allocate_port(requested).map(|()| requested), "requested"),
    };
    let port = allocated.map_err(|error| {
        ApiError::internal(format!("failed to allocate {what} HealthCheck NodePort {requested}: {error}"))
    })?;
    svc.put(HEALTH_CHECK_PORT, port);
    Ok(())
}

fn update_health_check(svc: &mut Value, old: &Value, claim: &mut Claim) -> ApiResult<()> {
    match (shape::needs_health_check_port(old), shape::needs_health_check_port(svc)) {
        (false, true) => allocate_health_check(svc, claim),
        (true, false) => {
            claim.release_port(shape::health_check_port(old));
            Ok(())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::pools::Pools;
    use super::*;
    use serde_json::json;

    fn pools() -> Pools {
        Pools::new("10.96.0.0/16".parse().unwrap(), (30_000, 32_767))
    }

    fn service(kind: &str, ports: Value) -> Value {
        json!({"metadata": {"name": "a"}, "spec": {"type": kind, "ports": ports}})
    }

    /// Allocates and commits the node ports of a new Service, and returns them.
    fn allocated(pools: &Pools, svc: &mut Value) -> Result<Vec<i64>, String> {
        let mut claim = Claim::new(pools, false);
        allocate(svc, &mut claim).map_err(|e| e.message)?;
        if let Some(reservation) = claim.into_reservation() {
            reservation.commit();
        }
        Ok(svc.list(PORTS).iter().map(shape::node_port).collect())
    }

    fn changed(pools: &Pools, svc: &mut Value, old: &Value) -> Result<Vec<i64>, String> {
        let mut claim = Claim::new(pools, false);
        update(svc, old, &mut claim).map_err(|e| e.message)?;
        if let Some(reservation) = claim.into_reservation() {
            reservation.commit();
        }
        Ok(svc.list(PORTS).iter().map(shape::node_port).collect())
    }

    #[test]
    fn tcp_and_udp_of_one_port_share_a_node_port() {
        let pools = pools();
        let ports =
            allocated(&pools, &mut service("NodePort", json!([{"port": 53}, {"port": 53}, {"port": 54}]))).unwrap();
        assert_eq!(ports[0], ports[1]);
        assert_ne!(ports[0], ports[2]);

        let late = json!([{"port": 53}, {"port": 53, "nodePort": 30_053}]);
        assert_eq!(allocated(&pools, &mut service("NodePort", late)), Ok(vec![30_053, 30_053]));

        let apart = json!([{"port": 53, "nodePort": 30_054}, {"port": 53, "nodePort": 30_055}]);
        assert_eq!(allocated(&pools, &mut service("NodePort", apart)), Ok(vec![30_054, 30_055]));
    }

    #[test]
    fn failed_allocation_names_the_port_and_releases_the_rest() {
        let pools = pools();
        let twice = json!([{"port": 80, "nodePort": 30_015}, {"port": 81, "nodePort": 30_015}]);
        assert_eq!(
            allocated(&pools, &mut service("NodePort", twice)).unwrap_err(),
            "Service \"a\" is invalid: spec.ports[1].nodePort: Invalid value: 30015: provided port is already allocated"
        );
        assert!(!pools.has_port(30_015));
        assert_eq!(
            allocated(&pools, &mut service("NodePort", json!([{"port": 80, "nodePort": 80}]))).unwrap_err(),
            "Service \"a\" is invalid: spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid \
             range. The range of valid ports is 30000-32767"
        );
    }

    #[test]
    fn load_balancer_without_allocation_gets_only_requested_node_ports() {
        let mut svc = service("LoadBalancer", json!([{"port": 80}, {"port": 81, "nodePort": 30_081}]));
        svc["spec"]["allocateLoadBalancerNodePorts"] = false.into();
        assert_eq!(allocated(&pools(), &mut svc), Ok(vec![0, 30_081]));
        assert!(svc["spec"]["ports"][0].get("nodePort").is_none());
    }

    #[test]
    fn cluster_ip_service_gets_no_node_ports() {
        assert_eq!(allocated(&pools(), &mut service("ClusterIP", json!([{"port": 80}]))), Ok(vec![0]));
    }

    #[test]
    fn allocated_health_check_port_is_an_internal_error() {
        let pools = pools();
        let mut svc = service("LoadBalancer", json!([]));
        svc["spec"]["externalTrafficPolicy"] = "Local".into();
        allocated(&pools, &mut svc).unwrap();
        let port = shape::health_check_port(&svc);
        assert!(pools.has_port(port));
        assert_eq!(
            allocated(&pools, &mut svc.clone()).unwrap_err(),
            format!(
                "Internal error occurred: failed to allocate requested HealthCheck NodePort {port}: provided port \
                 is already allocated"
            )
        );
    }

    #[test]
    fn update_keeps_listed_node_ports_and_releases_the_rest() {
        let pools = pools();
        let mut old = service("NodePort", json!([{"port": 80, "nodePort": 30_025}, {"port": 81, "nodePort": 30_027}]));
        allocated(&pools, &mut old).unwrap();
        let mut new = service("NodePort", json!([{"port": 80, "nodePort": 30_026}, {"port": 81, "nodePort": 30_027}]));
        assert_eq!(changed(&pools, &mut new, &old), Ok(vec![30_026, 30_027]));
        assert!(!pools.has_port(30_025) && pools.has_port(30_026) && pools.has_port(30_027));

        let mut plain = service("ClusterIP", json!([{"port": 80}]));
        assert_eq!(changed(&pools, &mut plain, &new), Ok(vec![0]));
        assert!(!pools.has_port(30_026) && !pools.has_port(30_027));
    }

    #[test]
    fn entries_of_an_update_do_not_share_node_ports() {
        let pools = pools();
        let old = service("ClusterIP", json!([]));
        let mut new = service("NodePort", json!([{"port": 53, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]));
        let ports = changed(&pools, &mut new, &old).unwrap();
        assert_ne!(ports[0], ports[1]);
    }

    #[test]
    fn duplicate_node_port_of_one_protocol_is_a_plain_error() {
        let pools = pools();
        let old = service("NodePort", json!([]));
        let entry = |port: i64, protocol: &str| json!({"port": port, "nodePort": 30_031, "protocol": protocol});
        let mut twice = service("NodePort", json!([entry(80, "TCP"), entry(81, "TCP")]));
        assert_eq!(changed(&pools, &mut twice, &old).unwrap_err(), "duplicate nodePort: {TCP 30031}");
        let mut both = service("NodePort", json!([entry(80, "TCP"), entry(80, "UDP")]));
        assert_eq!(changed(&pools, &mut both, &old), Ok(vec![30_031, 30_031]));
    }

    #[test]
    fn health_check_port_follows_the_local_policy() {
        let pools = pools();
        let old = service("LoadBalancer", json!([]));
        let mut local = old.clone();
        local["spec"]["externalTrafficPolicy"] = "Local".into();
        changed(&pools, &mut local, &old).unwrap();
        let port = shape::health_check_port(&local);
        assert!(pools.has_port(port));
        let mut cluster = local.clone();
        cluster["spec"]["externalTrafficPolicy"] = "Cluster".into();
        changed(&pools, &mut cluster, &local).unwrap();
        assert!(!pools.has_port(port));
    }
}
