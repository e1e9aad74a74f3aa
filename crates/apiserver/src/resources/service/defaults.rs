//! Defaults of a Service that depend on the object alone.
//!
//! `allocate` and `families` fill in what depends on the cluster: addresses, node ports and IP families.

use serde_json::{Value, json};

use super::shape::{self, ServiceType};
use crate::value::Json;

/// Three hours.
const CLIENT_IP_TIMEOUT_SECONDS: i32 = 10_800;

pub(super) fn apply(svc: &mut Value) {
    default_session_affinity(svc);
    set_if_absent(svc, "spec.type", "ClusterIP");
    default_ports(svc);
    default_traffic_policies(svc);
    default_load_balancer_fields(svc);
}

fn set_if_absent(svc: &mut Value, path: &str, value: impl Into<Value>) {
    if !svc.has(path) {
        svc.put(path, value);
    }
}

fn default_session_affinity(svc: &mut Value) {
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

fn default_ports(svc: &mut Value) {
    for port in svc.list_mut("spec.ports").into_iter().flatten() {
        set_if_absent(port, "protocol", "TCP");
        let target = port.at("targetPort");
        if target.is_null() || *target == 0 || *target == "" {
            let number = port.at("port").clone();
            port.put("targetPort", number);
        }
    }
}

fn default_traffic_policies(svc: &mut Value) {
    if shape::is_external(svc) {
        set_if_absent(svc, "spec.externalTrafficPolicy", "Cluster");
    }
    if matches!(shape::type_of(svc), ServiceType::ClusterIp | ServiceType::NodePort | ServiceType::LoadBalancer) {
        set_if_absent(svc, "spec.internalTrafficPolicy", "Cluster");
    }
}

fn default_load_balancer_fields(svc: &mut Value) {
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
    fn type_defaults_to_cluster_ip() {
        assert_eq!(
            defaulted(json!({"ports": [{"port": 80, "targetPort": 0}]})),
            json!({
                "type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
                "ports": [{"port": 80, "targetPort": 80, "protocol": "TCP"}],
            })
        );
    }

    #[test]
    fn load_balancer_defaults_to_node_ports_and_an_external_policy() {
        let spec = defaulted(json!({"type": "LoadBalancer"}));
        assert_eq!(spec["allocateLoadBalancerNodePorts"], true);
        assert_eq!(spec["externalTrafficPolicy"], "Cluster");
    }

    #[test]
    fn cluster_ip_service_with_external_ips_defaults_to_an_external_policy() {
        assert_eq!(defaulted(json!({"externalIPs": ["192.0.2.5"]}))["externalTrafficPolicy"], "Cluster");
        assert!(defaulted(json!({})).get("externalTrafficPolicy").is_none());
    }

    #[test]
    fn external_name_has_no_default_policies() {
        assert_eq!(
            defaulted(json!({"type": "ExternalName", "externalName": "ex.com"})),
            json!({"type": "ExternalName", "externalName": "ex.com", "sessionAffinity": "None"})
        );
    }

    #[test]
    fn client_ip_affinity_has_a_default_timeout() {
        let config = json!({"clientIP": {"timeoutSeconds": 10_800}});
        assert_eq!(defaulted(json!({"sessionAffinity": "ClientIP"}))["sessionAffinityConfig"], config);
        let half = json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {}}});
        assert_eq!(defaulted(half)["sessionAffinityConfig"], config);
        let none = json!({"sessionAffinity": "None", "sessionAffinityConfig": config});
        assert!(defaulted(none).get("sessionAffinityConfig").is_none());
    }

    #[test]
    fn ip_mode_is_defaulted_only_for_load_balancers() {
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
    fn named_target_port_is_kept() {
        let spec = defaulted(json!({"ports": [{"port": 80, "targetPort": "http"}, {"port": 81, "targetPort": ""}]}));
        assert_eq!(spec["ports"][0]["targetPort"], "http");
        assert_eq!(spec["ports"][1]["targetPort"], 81);
    }
}
