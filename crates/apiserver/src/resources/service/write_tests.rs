//! Tests of complete Service writes, from the decoded object to the response, against recorded responses of kube-apiserver.
//! They use real allocation pools, without metadata and storage.

use serde_json::{Value, json};

use super::{Pools, allocate, carry_over, defaults, validate};
use crate::schema::{decode, schema};
use crate::status::{ApiError, Named};
use crate::value::Json;

const SERVICE: Named<'static> = Named { group: "", kind: "Service" };

fn pools() -> Pools {
    Pools::new("10.96.0.0/16".parse().unwrap(), (30_000, 32_767))
}

fn decoded(body: &Value) -> Value {
    let mut svc = decode(schema().id("core/v1.Service"), body).unwrap().value;
    defaults::apply(&mut svc);
    svc
}

fn into_result(svc: Value, errors: &[crate::field_error::FieldError]) -> Result<Value, ApiError> {
    if errors.is_empty() { Ok(svc) } else { Err(ApiError::invalid(SERVICE, "a", errors)) }
}

/// Returns the spec after a POST, or the error message.
fn create(pools: &Pools, spec: Value) -> Result<Value, String> {
    let mut svc = decoded(&json!({"metadata": {"name": "a"}, "spec": spec}));
    let mut write = || {
        let reservation = allocate::for_create(pools, false, &mut svc)?;
        carry_over::drop_internal_policy_of_external_name(&mut svc);
        let svc = into_result(svc.clone(), &validate::create(&svc))?;
        if let Some(reservation) = reservation {
            reservation.commit();
        }
        Ok(svc)
    };
    write().map(|mut svc| svc["spec"].take()).map_err(|e: ApiError| e.message)
}

/// Returns the spec after a PUT over the old one, or the error message.
fn replace(pools: &Pools, old: &Value, spec: Value) -> Result<Value, String> {
    let old = json!({"metadata": {"name": "a"}, "spec": old, "status": {"loadBalancer": {}}});
    let mut svc = decoded(&json!({"metadata": {"name": "a"}, "spec": spec}));
    let mut write = || {
        let reservation = allocate::for_update(pools, false, &mut svc, &old)?;
        carry_over::drop_type_dependent(&mut svc, &old);
        carry_over::drop_internal_policy_of_external_name(&mut svc);
        let svc = into_result(svc.clone(), &validate::update(&svc, &old))?;
        if let Some(reservation) = reservation {
            reservation.commit();
        }
        Ok(svc)
    };
    write().map(|mut svc| svc["spec"].take()).map_err(|e: ApiError| e.message)
}

/// Returns the spec of a variant of [`VARIANTS`].
fn spec_of(variant: &str) -> Value {
    match variant {
        "clusterip" => json!({"ports": [{"port": 80}]}),
        "nodeport" => json!({"type": "NodePort", "ports": [{"port": 80}]}),
        "lb" => json!({"type": "LoadBalancer", "ports": [{"port": 80}]}),
        "lblocal" => json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": 80}]}),
        "extname" => json!({"type": "ExternalName", "externalName": "ex.com", "ports": [{"port": 80}]}),
        _ => json!({"clusterIP": "None", "ports": [{"port": 80}]}),
    }
}

const VARIANTS: [&str; 6] = ["clusterip", "nodeport", "lb", "lblocal", "extname", "headless"];

#[test]
fn every_type_change_works_except_from_and_to_headless() {
    for from in VARIANTS {
        for to in VARIANTS {
            let pools = pools();
            let old = create(&pools, spec_of(from)).unwrap();
            let new = replace(&pools, &old, spec_of(to));
            let has_cluster_ip = |variant: &str| !matches!(variant, "extname" | "headless");
            match (from, to) {
                ("headless", "nodeport" | "lb" | "lblocal") => {
                    let text = new.unwrap_err();
                    assert!(
                        text.contains("spec.clusterIPs[0]: Invalid value: \"None\": may not be set to 'None'"),
                        "{text}"
                    );
                }
                (from, "headless") if has_cluster_ip(from) => assert_eq!(
                    new.unwrap_err(),
                    "Service \"a\" is invalid: spec.clusterIPs[0]: Invalid value: [\"None\"]: may not change once set"
                ),
                ("headless", "clusterip") => assert_eq!(new.unwrap(), old, "clusterIP None is inherited"),
                _ => assert_equal_except_allocations(&new.unwrap(), &create(&pools, spec_of(to)).unwrap(), from, to),
            }
        }
    }
}

/// Asserts that the updated spec equals that of a new Service, except for allocated values.
fn assert_equal_except_allocations(changed: &Value, created: &Value, from: &str, to: &str) {
    let blank = |spec: &Value| {
        let mut spec = spec.clone();
        for path in ["clusterIP", "clusterIPs", "healthCheckNodePort"] {
            if spec.has(path) {
                spec.put(path, "set");
            }
        }
        for port in spec.list_mut("ports").into_iter().flatten() {
            if port.has("nodePort") {
                port.put("nodePort", "set");
            }
        }
        spec
    };
    assert_eq!(blank(changed), blank(created), "{from} to {to}");
}

#[test]
fn allocations_survive_a_type_change_that_still_needs_them() {
    let pools = pools();
    let old = create(&pools, spec_of("lblocal")).unwrap();
    let new = replace(&pools, &old, spec_of("nodeport")).unwrap();
    assert_eq!(new["clusterIP"], old["clusterIP"]);
    assert_eq!(new["ports"], old["ports"]);
    assert!(pools.has_port(new["ports"][0]["nodePort"].as_i64().unwrap()));
    assert!(!pools.has_port(old["healthCheckNodePort"].as_i64().unwrap()), "released");
}

#[test]
fn rejected_write_releases_its_allocations() {
    let pools = pools();
    let bad = json!({"type": "NodePort", "clusterIP": "10.96.0.7", "sessionAffinity": "Z", "ports": [{"port": 80, "nodePort": 30_007}]});
    create(&pools, bad).unwrap_err();
    create(&pools, json!({"type": "NodePort", "clusterIP": "10.96.0.7", "ports": [{"port": 80, "nodePort": 30_007}]}))
        .unwrap();
}

proptest::proptest! {
    #[test]
    fn pools_match_the_allocations_of_all_services(steps in proptest::collection::vec((0..4_usize, 0..8_usize), 1..60)) {
        let pools = pools();
        let mut services: [Option<Value>; 4] = Default::default();
        for (service, step) in steps {
            let current = &mut services[service];
            match (current.as_ref(), VARIANTS.get(step)) {
                (None, Some(variant)) => *current = create(&pools, spec_of(variant)).ok(),
                (Some(old), Some(variant)) => *current = replace(&pools, old, spec_of(variant)).ok().or(Some(old.clone())),
                (Some(old), None) => {
                    allocate::release(&pools, &json!({"spec": old}));
                    *current = None;
                }
                (None, None) => {}
            }
            let counts: Vec<(usize, usize)> = services.iter().flatten().map(allocations).collect();
            let total = counts.iter().fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1));
            proptest::prop_assert_eq!(pools.in_use(), total);
        }
    }
}

/// Returns the number of allocated addresses and ports of a spec.
fn allocations(spec: &Value) -> (usize, usize) {
    let addresses = spec.texts("clusterIPs").iter().filter(|ip| **ip != "None").count();
    let ports = spec.list("ports").iter().filter(|port| port.has("nodePort")).count();
    (addresses, ports + usize::from(spec.has("healthCheckNodePort")))
}

#[test]
fn create_reports_errors_in_order() {
    let invalid: &[(Value, &str)] = &[
        (json!({}), "spec.ports: Required value"),
        (
            json!({"ports": [{"port": 0}]}),
            "[spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive, \
             spec.ports[0].targetPort: Invalid value: 0: must be between 1 and 65535, inclusive]",
        ),
        (
            json!({"type": "Bogus", "ports": [{"port": 80}]}),
            "spec.type: Unsupported value: \"Bogus\": supported values: \"ClusterIP\", \"ExternalName\", \
             \"LoadBalancer\", \"NodePort\"",
        ),
        (json!({"type": "ExternalName"}), "spec.externalName: Required value"),
        (
            json!({"type": "ExternalName", "externalName": "ex.com", "clusterIP": "None"}),
            "spec.clusterIPs: Forbidden: may not be set for ExternalName services",
        ),
        (
            json!({"type": "ExternalName", "externalName": "ex.com", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"}),
            "[spec.ipFamilies: Forbidden: may not be set for ExternalName services, \
             spec.ipFamilyPolicy: Forbidden: may not be set for ExternalName services]",
        ),
        (
            json!({"externalTrafficPolicy": "Cluster", "ports": [{"port": 80}]}),
            "spec.externalTrafficPolicy: Invalid value: \"Cluster\": may only be set for externally-accessible services",
        ),
        (
            json!({"type": "NodePort", "externalTrafficPolicy": "Bogus", "ports": [{"port": 80}]}),
            "spec.externalTrafficPolicy: Unsupported value: \"Bogus\": supported values: \"Cluster\", \"Local\"",
        ),
        (
            json!({"internalTrafficPolicy": "Bogus", "ports": [{"port": 80}]}),
            "spec.internalTrafficPolicy: Unsupported value: \"Bogus\": supported values: \"Cluster\", \"Local\"",
        ),
        (
            json!({"healthCheckNodePort": 30_016, "ports": [{"port": 80}]}),
            "spec.healthCheckNodePort: Invalid value: 30016: may only be set when `type` is 'LoadBalancer' and \
             `externalTrafficPolicy` is 'Local'",
        ),
        (
            json!({"allocateLoadBalancerNodePorts": true, "ports": [{"port": 80}]}),
            "spec.allocateLoadBalancerNodePorts: Forbidden: may only be used when `type` is 'LoadBalancer'",
        ),
        (
            json!({"loadBalancerClass": "ex.com/a", "ports": [{"port": 80}]}),
            "spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'",
        ),
        (
            json!({"loadBalancerSourceRanges": ["10.0.0.1/8"], "ports": [{"port": 80}]}),
            "[spec.LoadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer', \
             spec.LoadBalancerSourceRanges[0]: Invalid value: \"10.0.0.1/8\": must not have bits set beyond the prefix length]",
        ),
        (
            json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 86_401}}, "ports": [{"port": 80}]}),
            "spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 86401: must be greater than 0 and less than 86400",
        ),
        (
            json!({"externalIPs": ["x", "127.0.0.1"], "ports": [{"port": 80}]}),
            "[spec.externalIPs[0]: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff), \
             spec.externalIPs[1]: Invalid value: \"127.0.0.1\": may not be in the loopback range (127.0.0.0/8, ::1/128)]",
        ),
        (
            json!({"trafficDistribution": "Bogus", "ports": [{"port": 80}]}),
            "spec.trafficDistribution: Unsupported value: \"Bogus\": supported values: \"PreferClose\", \
             \"PreferSameZone\", \"PreferSameNode\"",
        ),
        (
            json!({"type": "NodePort", "clusterIP": "None", "ports": [{"port": 80, "protocol": "X"}], "sessionAffinity": "Z"}),
            "[spec.clusterIPs[0]: Invalid value: \"None\": may not be set to 'None' for NodePort services, \
             spec.ports[0].protocol: Unsupported value: \"X\": supported values: \"SCTP\", \"TCP\", \"UDP\", \
             spec.sessionAffinity: Unsupported value: \"Z\": supported values: \"ClientIP\", \"None\"]",
        ),
    ];
    for (spec, expected) in invalid {
        let message = create(&pools(), spec.clone()).unwrap_err();
        assert_eq!(message, format!("Service \"a\" is invalid: {expected}"), "{spec}");
    }
}

#[test]
fn immutable_fields_cannot_change() {
    let pools = pools();
    let class = |class: Value| json!({"type": "LoadBalancer", "loadBalancerClass": class, "ports": [{"port": 80}]});
    let old = create(&pools, class(json!("ex.com/a"))).unwrap();
    let rejected = |class_shown: &str| {
        format!(
            "Service \"a\" is invalid: spec.loadBalancerClass: Invalid value: {class_shown}: may not change once set"
        )
    };
    assert_eq!(replace(&pools, &old, class(json!("ex.com/b"))).unwrap_err(), rejected("\"ex.com/b\""));
    assert_eq!(replace(&pools, &old, class(Value::Null)).unwrap_err(), rejected("null"));

    let local = |port: i64| json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": port, "ports": [{"port": 80}]});
    let old = create(&pools, local(30_023)).unwrap();
    assert_eq!(
        replace(&pools, &old, local(30_024)).unwrap_err(),
        "Service \"a\" is invalid: spec.healthCheckNodePort: Forbidden: field is immutable"
    );
    assert_eq!(replace(&pools, &old, local(0)).unwrap()["healthCheckNodePort"], 30_023);
}

#[test]
fn annotations_are_validated_like_their_fields() {
    let errors = |annotations: Value, kind: &str| {
        let svc = decoded(&json!({
            "metadata": {"name": "a", "annotations": annotations}, "spec": {"type": kind, "ports": [{"port": 80}]},
        }));
        validate::create(&svc).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let ranges = "service.beta.kubernetes.io/load-balancer-source-ranges";
    let field = format!("metadata.annotations[{ranges}]");
    assert_eq!(errors(json!({ranges: " 10.0.0.0/8 , 192.0.2.0/24"}), "LoadBalancer"), [""; 0]);
    assert_eq!(
        errors(json!({ranges: "bad"}), "NodePort"),
        [
            format!("{field}: Forbidden: may only be used when `type` is 'LoadBalancer'"),
            format!("{field}: Invalid value: \"bad\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"),
        ]
    );
    let hints = "service.kubernetes.io/topology-aware-hints";
    let mode = "service.kubernetes.io/topology-mode";
    assert_eq!(
        errors(json!({hints: "auto", mode: "disabled"}), "ClusterIP"),
        [format!(
            "metadata.annotations[{mode}]: Invalid value: \"disabled\": must match annotations[{hints}] when both are specified"
        )]
    );
}

#[test]
fn ingress_is_validated_and_needs_type_load_balancer() {
    let errors = |kind: &str, ingress: Value| {
        let svc = json!({"spec": {"type": kind}, "status": {"loadBalancer": {"ingress": [ingress]}}});
        validate::status_update(&svc, &json!({})).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let at = "status.loadBalancer.ingress";
    assert_eq!(
        errors("ClusterIP", json!({"ip": "192.0.2.1"})),
        [format!("{at}: Forbidden: may only be used when `spec.type` is 'LoadBalancer'")]
    );
    let cases = [
        (json!({}), vec![]),
        (json!({"ip": "192.0.2.1", "ipMode": "Proxy"}), vec![]),
        (json!({"ip": "192.0.2.1"}), vec![".ipMode: Required value: must be specified when `ip` is set"]),
        (
            json!({"ip": "192.0.2.1", "ipMode": "Bogus"}),
            vec![".ipMode: Unsupported value: \"Bogus\": supported values: \"Proxy\", \"VIP\""],
        ),
        (
            json!({"hostname": "1.2.3.4", "ipMode": "VIP"}),
            vec![
                ".ipMode: Forbidden: may not be specified when `ip` is not set",
                ".hostname: Invalid value: \"1.2.3.4\": must be a DNS name, not an IP address",
            ],
        ),
    ];
    for (ingress, expected) in cases {
        let expected: Vec<String> = expected.iter().map(|text| format!("{at}[0]{text}")).collect();
        assert_eq!(errors("LoadBalancer", ingress.clone()), expected, "{ingress}");
    }
}
