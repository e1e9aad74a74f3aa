//! Takes and frees the node ports of a Service, the health check port among them.

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

/// For a new Service.
pub(super) fn take(svc: &mut Value, claim: &mut Claim) -> ApiResult<()> {
    if shape::may_have_node_ports(svc) {
        let picked = pick(svc, claim)?;
        write(svc, &picked);
    }
    if shape::needs_health_check_port(svc) {
        take_health_check(svc, claim)?;
    }
    Ok(())
}

/// For a change.
pub(super) fn change(svc: &mut Value, old: &Value, claim: &mut Claim) -> ApiResult<()> {
    let held = shape::node_ports(old);
    match shape::type_of(svc) {
        ServiceType::NodePort | ServiceType::LoadBalancer => {
            let picked = pick_changed(svc, &held, claim)?;
            write(svc, &picked);
            held.difference(&shape::node_ports(svc)).for_each(|&port| claim.free_port(port));
        }
        // An ExternalName may list node ports, but holds none.
        ServiceType::ClusterIp | ServiceType::ExternalName if shape::may_have_node_ports(old) => {
            held.iter().for_each(|&port| claim.free_port(port));
        }
        _ => {}
    }
    change_health_check(svc, old, claim)
}

// === Picking ===

/// The node port of each entry, 0 for none. Entries of one port number (TCP and UDP, say) share a node port
/// unless they ask for different ones.
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
            Some(_) => take_asked(svc, i, own, claim)?,
            None => match entries.iter().find(|e| number == self::number(e) && shape::node_port(e) != 0) {
                Some(asking) => take_asked(svc, i, shape::node_port(asking), claim)?,
                None => take_any(claim)?,
            },
        };
        if port != 0 {
            shared.entry(number).or_insert(port);
        }
        picked.push(port);
    }
    Ok(picked)
}

/// The same for a change: what was held stays, and entries no longer share on their own.
fn pick_changed(svc: &Value, held: &BTreeSet<i64>, claim: &mut Claim) -> ApiResult<Vec<i64>> {
    let all = shape::needs_node_ports(svc);
    let entries = svc.list(PORTS);
    let mut taken: HashSet<i64> = HashSet::new();
    let mut seen: HashSet<(&str, i64)> = HashSet::new();
    let mut picked = Vec::with_capacity(entries.len());
    for (i, entry) in entries.iter().enumerate() {
        let (protocol, own) = (entry.text("protocol"), shape::node_port(entry));
        let port = match own {
            0 if !all => 0,
            0 => take_any(claim)?,
            _ if held.contains(&own) || taken.contains(&own) => own,
            _ => take_asked(svc, i, own, claim)?,
        };
        taken.extend((own != 0).then_some(own));
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

fn take_asked(svc: &Value, index: usize, port: i64, claim: &mut Claim) -> ApiResult<i64> {
    claim.take_port(port).map(|()| port).map_err(|refusal| {
        let field = format!("{PORTS}[{index}].nodePort");
        invalid(svc, vec![FieldError::invalid(field, port, refusal.to_string())])
    })
}

fn take_any(claim: &mut Claim) -> ApiResult<i64> {
    claim.take_any_port().map_err(|refusal| ApiError::internal(format!("failed to allocate a nodePort: {refusal}")))
}

fn write(svc: &mut Value, picked: &[i64]) {
    for (entry, &port) in svc.list_mut(PORTS).into_iter().flatten().zip(picked) {
        if port != 0 {
            entry.put("nodePort", port);
        }
    }
}

// === The health check port ===

fn take_health_check(svc: &mut Value, claim: &mut Claim) -> ApiResult<()> {
    let asked = shape::health_check_port(svc);
    let (taken, what) = match asked {
        0 => (claim.take_any_port(), "a"),
        _ => (claim.take_port(asked).map(|()| asked), "requested"),
    };
    let port = taken.map_err(|refusal| {
        ApiError::internal(format!("failed to allocate {what} HealthCheck NodePort {asked}: {refusal}"))
    })?;
    svc.put(HEALTH_CHECK_PORT, port);
    Ok(())
}

fn change_health_check(svc: &mut Value, old: &Value, claim: &mut Claim) -> ApiResult<()> {
    match (shape::needs_health_check_port(old), shape::needs_health_check_port(svc)) {
        (false, true) => take_health_check(svc, claim),
        (true, false) => {
            claim.free_port(shape::health_check_port(old));
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

    /// Takes for a new Service, for good, and returns its node ports.
    fn taken(pools: &Pools, svc: &mut Value) -> Result<Vec<i64>, String> {
        let mut claim = Claim::new(pools, false);
        take(svc, &mut claim).map_err(|e| e.message)?;
        if let Some(reservation) = claim.into_reservation() {
            reservation.commit();
        }
        Ok(svc.list(PORTS).iter().map(shape::node_port).collect())
    }

    fn changed(pools: &Pools, svc: &mut Value, old: &Value) -> Result<Vec<i64>, String> {
        let mut claim = Claim::new(pools, false);
        change(svc, old, &mut claim).map_err(|e| e.message)?;
        if let Some(reservation) = claim.into_reservation() {
            reservation.commit();
        }
        Ok(svc.list(PORTS).iter().map(shape::node_port).collect())
    }

    #[test]
    fn tcp_and_udp_of_one_port_share_a_node_port() {
        let pools = pools();
        let ports = taken(&pools, &mut service("NodePort", json!([{"port": 53}, {"port": 53}, {"port": 54}]))).unwrap();
        assert_eq!(ports[0], ports[1]);
        assert_ne!(ports[0], ports[2]);

        let late = json!([{"port": 53}, {"port": 53, "nodePort": 30_053}]);
        assert_eq!(taken(&pools, &mut service("NodePort", late)), Ok(vec![30_053, 30_053]));

        let apart = json!([{"port": 53, "nodePort": 30_054}, {"port": 53, "nodePort": 30_055}]);
        assert_eq!(taken(&pools, &mut service("NodePort", apart)), Ok(vec![30_054, 30_055]));
    }

    #[test]
    fn a_refusal_names_the_port_and_gives_the_others_back() {
        let pools = pools();
        let twice = json!([{"port": 80, "nodePort": 30_015}, {"port": 81, "nodePort": 30_015}]);
        assert_eq!(
            taken(&pools, &mut service("NodePort", twice)).unwrap_err(),
            "Service \"a\" is invalid: spec.ports[1].nodePort: Invalid value: 30015: provided port is already allocated"
        );
        assert!(!pools.has_port(30_015));
        assert_eq!(
            taken(&pools, &mut service("NodePort", json!([{"port": 80, "nodePort": 80}]))).unwrap_err(),
            "Service \"a\" is invalid: spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid \
             range. The range of valid ports is 30000-32767"
        );
    }

    #[test]
    fn a_load_balancer_without_allocation_gets_only_what_it_asks_for() {
        let mut svc = service("LoadBalancer", json!([{"port": 80}, {"port": 81, "nodePort": 30_081}]));
        svc["spec"]["allocateLoadBalancerNodePorts"] = false.into();
        assert_eq!(taken(&pools(), &mut svc), Ok(vec![0, 30_081]));
        assert!(svc["spec"]["ports"][0].get("nodePort").is_none());
    }

    #[test]
    fn a_cluster_ip_service_takes_nothing() {
        assert_eq!(taken(&pools(), &mut service("ClusterIP", json!([{"port": 80}]))), Ok(vec![0]));
    }

    #[test]
    fn a_health_check_port_that_is_taken_is_an_internal_error() {
        let pools = pools();
        let mut svc = service("LoadBalancer", json!([]));
        svc["spec"]["externalTrafficPolicy"] = "Local".into();
        taken(&pools, &mut svc).unwrap();
        let port = shape::health_check_port(&svc);
        assert!(pools.has_port(port));
        assert_eq!(
            taken(&pools, &mut svc.clone()).unwrap_err(),
            format!(
                "Internal error occurred: failed to allocate requested HealthCheck NodePort {port}: provided port \
                 is already allocated"
            )
        );
    }

    #[test]
    fn a_change_keeps_what_it_holds_and_frees_the_rest() {
        let pools = pools();
        let mut old = service("NodePort", json!([{"port": 80, "nodePort": 30_025}, {"port": 81, "nodePort": 30_027}]));
        taken(&pools, &mut old).unwrap();
        let mut new = service("NodePort", json!([{"port": 80, "nodePort": 30_026}, {"port": 81, "nodePort": 30_027}]));
        assert_eq!(changed(&pools, &mut new, &old), Ok(vec![30_026, 30_027]));
        assert!(!pools.has_port(30_025) && pools.has_port(30_026) && pools.has_port(30_027));

        let mut plain = service("ClusterIP", json!([{"port": 80}]));
        assert_eq!(changed(&pools, &mut plain, &new), Ok(vec![0]));
        assert!(!pools.has_port(30_026) && !pools.has_port(30_027));
    }

    #[test]
    fn entries_of_a_change_do_not_share_on_their_own() {
        let pools = pools();
        let old = service("ClusterIP", json!([]));
        let mut new = service("NodePort", json!([{"port": 53, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]));
        let ports = changed(&pools, &mut new, &old).unwrap();
        assert_ne!(ports[0], ports[1]);
    }

    #[test]
    fn one_node_port_twice_for_one_protocol_is_a_plain_error() {
        let pools = pools();
        let old = service("NodePort", json!([]));
        let entry = |port: i64, protocol: &str| json!({"port": port, "nodePort": 30_031, "protocol": protocol});
        let mut twice = service("NodePort", json!([entry(80, "TCP"), entry(81, "TCP")]));
        assert_eq!(changed(&pools, &mut twice, &old).unwrap_err(), "duplicate nodePort: {TCP 30031}");
        let mut both = service("NodePort", json!([entry(80, "TCP"), entry(80, "UDP")]));
        assert_eq!(changed(&pools, &mut both, &old), Ok(vec![30_031, 30_031]));
    }

    #[test]
    fn the_health_check_port_comes_and_goes_with_the_local_policy() {
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
