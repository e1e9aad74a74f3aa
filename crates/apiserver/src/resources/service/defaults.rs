//! The defaults of a Service that need nothing but the object itself.
//!
//! What depends on the cluster (addresses, ports, IP families) is filled in when a write begins, in
//! `allocate` and `families`.

use serde_json::{Value, json};

use super::shape::{self, ServiceType};
use crate::value::Json;

/// Three hours.
const CLIENT_IP_TIMEOUT_SECONDS: i32 = 10_800;

pub(super) fn apply(svc: &mut Value) {
    session_affinity(svc);
    set_if_absent(svc, "spec.type", "ClusterIP");
    ports(svc);
    traffic_policies(svc);
    load_balancer(svc);
}

fn set_if_absent(svc: &mut Value, path: &str, value: impl Into<Value>) {
    if !svc.has(path) {
        svc.put(path, value);
    }
}

fn session_affinity(svc: &mut Value) {
    set_if_absent(svc, "spec.sessionAffinity", "None");
    match svc.text("spec.sessionAffinity") {
        "None" => {
            svc.take_at("spec.sessionAffinityConfig");
        }
        "ClientIP" if !svc.has("spec.sessionAffinityConfig.clientIP.timeoutSeconds") => {
            let config = json!({"clientIP": {"timeoutSeconds": CLIENT_IP_TIMEOUT_SECONDS}});
            svc.put("spec.sessionAffinityConfig", config);
        }
        _ => {}
    }
}

fn ports(svc: &mut Value) {
    for port in svc.list_mut("spec.ports").into_iter().flatten() {
        set_if_absent(port, "protocol", "TCP");
        let target = port.at("targetPort");
        if target.is_null() || *target == 0 || *target == "" {
            let number = port.at("port").clone();
            port.put("targetPort", number);
        }
    }
}

fn traffic_policies(svc: &mut Value) {
    if shape::is_external(svc) {
        set_if_absent(svc, "spec.externalTrafficPolicy", "Cluster");
    }
    if matches!(shape::type_of(svc), ServiceType::ClusterIp | ServiceType::NodePort | ServiceType::LoadBalancer) {
        set_if_absent(svc, "spec.internalTrafficPolicy", "Cluster");
    }
}

fn load_balancer(svc: &mut Value) {
    if !shape::is_load_balancer(svc) {
        return;
    }
    set_if_absent(svc, "spec.allocateLoadBalancerNodePorts", true);
    for ingress in svc.list_mut("status.loadBalancer.ingress").into_iter().flatten() {
        if ingress.has("ip") {
            set_if_absent(ingress, "ipMode", "VIP");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defaulted(spec: Value) -> Value {
        let mut svc = json!({ "spec": spec });
        apply(&mut svc);
        svc["spec"].take()
    }

    #[test]
    fn a_bare_service_becomes_a_cluster_ip_one() {
        assert_eq!(
            defaulted(json!({"ports": [{"port": 80, "targetPort": 0}]})),
            json!({
                "type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
                "ports": [{"port": 80, "targetPort": 80, "protocol": "TCP"}],
            })
        );
    }

    #[test]
    fn a_load_balancer_gets_node_ports_and_an_external_policy() {
        let spec = defaulted(json!({"type": "LoadBalancer"}));
        assert_eq!(spec["allocateLoadBalancerNodePorts"], true);
        assert_eq!(spec["externalTrafficPolicy"], "Cluster");
    }

    #[test]
    fn external_ips_bring_an_external_policy_to_a_cluster_ip_service() {
        assert_eq!(defaulted(json!({"externalIPs": ["192.0.2.5"]}))["externalTrafficPolicy"], "Cluster");
        assert!(defaulted(json!({})).get("externalTrafficPolicy").is_none());
    }

    #[test]
    fn an_external_name_gets_no_policies() {
        assert_eq!(
            defaulted(json!({"type": "ExternalName", "externalName": "ex.com"})),
            json!({"type": "ExternalName", "externalName": "ex.com", "sessionAffinity": "None"})
        );
    }

    #[test]
    fn affinity_brings_a_timeout_and_its_absence_drops_it() {
        let config = json!({"clientIP": {"timeoutSeconds": 10_800}});
        assert_eq!(defaulted(json!({"sessionAffinity": "ClientIP"}))["sessionAffinityConfig"], config);
        let half = json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {}}});
        assert_eq!(defaulted(half)["sessionAffinityConfig"], config);
        let none = json!({"sessionAffinity": "None", "sessionAffinityConfig": config});
        assert!(defaulted(none).get("sessionAffinityConfig").is_none());
    }

    #[test]
    fn an_ingress_ip_gets_a_mode_only_on_a_load_balancer() {
        let mode = |kind: &str| {
            let status = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}, {"hostname": "a.b"}]}});
            let mut svc = json!({"spec": {"type": kind}, "status": status});
            apply(&mut svc);
            svc["status"]["loadBalancer"]["ingress"].take()
        };
        assert_eq!(mode("LoadBalancer"), json!([{"ip": "192.0.2.1", "ipMode": "VIP"}, {"hostname": "a.b"}]));
        assert_eq!(mode("NodePort"), json!([{"ip": "192.0.2.1"}, {"hostname": "a.b"}]));
    }

    #[test]
    fn a_named_target_port_is_kept() {
        let spec = defaulted(json!({"ports": [{"port": 80, "targetPort": "http"}, {"port": 81, "targetPort": ""}]}));
        assert_eq!(spec["ports"][0]["targetPort"], "http");
        assert_eq!(spec["ports"][1]["targetPort"], 81);
    }
}
