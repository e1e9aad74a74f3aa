//! Resolves `ipFamilyPolicy` and `ipFamilies` of a Service on a single-stack cluster.
//!
//! Runs before addresses are allocated. Its errors end the write before all other validation, because an address cannot
//! be allocated for an unknown family.

use serde_json::Value;

use super::shape::{self, Family, NONE, ServiceType};
use super::validate_ips;
use crate::field_error::FieldError;
use crate::validation::address::parse_ip;
use crate::value::Json;

const CLUSTER_IPS: &str = "spec.clusterIPs";
const FAMILIES: &str = "spec.ipFamilies";
const POLICY: &str = "spec.ipFamilyPolicy";

const SINGLE: &str = "SingleStack";
const PREFER: &str = "PreferDualStack";
const REQUIRE: &str = "RequireDualStack";

type FieldResult = Result<(), Vec<FieldError>>;

/// Fills in both fields. `old` is `None` for a new object.
pub(super) fn resolve(svc: &mut Value, old: Option<&Value>, cluster: Family) -> FieldResult {
    if shape::is_external_name(svc) || old.is_some_and(|old| keeps_preferred_dual_stack(svc, old)) {
        return Ok(());
    }
    default_policy(svc, old);
    ensure_empty(validate_ips::cluster_ips(svc, old))?;
    ensure_empty(resolve_with_addresses(svc, old, cluster))?;
    if shape::is_headless_without_selector(svc) {
        // Its endpoints can be of any family, so both are valid even on a single-stack cluster.
        default_headless_families(svc, cluster);
        return Ok(());
    }
    ensure_empty(unsupported_by_cluster(svc, cluster))?;
    if svc.list(FAMILIES).is_empty() {
        svc.put(FAMILIES, vec![cluster.name()]);
    }
    Ok(())
}

fn ensure_empty(errors: Vec<FieldError>) -> FieldResult {
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// True if an update changes none of these fields of a Service that prefers dual-stack. It must not convert the Service,
/// even if the cluster's IP families have changed since.
pub(super) fn keeps_preferred_dual_stack(svc: &Value, old: &Value) -> bool {
    let has_cluster_ip = [ServiceType::ClusterIp, ServiceType::NodePort, ServiceType::LoadBalancer];
    svc.text(POLICY) == PREFER
        && (!old.has(POLICY) || old.text(POLICY) == PREFER)
        && has_cluster_ip.contains(&shape::type_of(svc))
        && shape::same(svc, old, "spec.type")
        && shape::same(svc, old, CLUSTER_IPS)
        && shape::same(svc, old, FAMILIES)
}

/// Sets an absent policy: that of the old object, else the default of this kind of Service.
fn default_policy(svc: &mut Value, old: Option<&Value>) {
    if svc.has(POLICY) {
        return;
    }
    let policy = match old.map(|old| old.text(POLICY)) {
        Some(previous) if !previous.is_empty() => previous,
        _ if shape::is_headless_without_selector(svc) => REQUIRE,
        _ => SINGLE,
    };
    svc.put(POLICY, policy);
}

/// Makes policy, families and requested addresses consistent.
fn resolve_with_addresses(svc: &mut Value, old: Option<&Value>, cluster: Family) -> Vec<FieldError> {
    let mut errors = old.map(|old| resolve_downgrade(svc, old)).unwrap_or_default();
    if svc.text(POLICY) == SINGLE {
        for (path, what) in [(CLUSTER_IPS, "cluster IPs"), (FAMILIES, "IP families")] {
            if svc.list(path).len() == 2 {
                let detail = format!("must be '{REQUIRE}' or '{PREFER}' when multiple {what} are specified");
                errors.push(FieldError::invalid(POLICY, SINGLE, detail));
            }
        }
    }
    errors.extend(infer_families(svc, cluster));
    errors
}

/// Removing the secondary address or family requires the policy `SingleStack`. With that policy they are removed from
/// lists that the client did not change.
fn resolve_downgrade(svc: &mut Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (path, what) in [(CLUSTER_IPS, "cluster IP"), (FAMILIES, "IP family")] {
        let (new_len, old_len) = (svc.list(path).len(), old.list(path).len());
        if svc.text(POLICY) == SINGLE {
            if shape::same(svc, old, path)
                && let Some(list) = svc.list_mut(path)
            {
                list.truncate(1);
            }
        } else if new_len > 0 && new_len < old_len {
            let detail = format!("must be '{SINGLE}' to release the secondary {what}");
            errors.push(FieldError::invalid(POLICY, svc.text(POLICY), detail));
        }
    }
    errors
}

/// Adds families of requested addresses that `ipFamilies` lacks.
fn infer_families(svc: &mut Value, cluster: Family) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut families: Vec<Value> = svc.list(FAMILIES).to_vec();
    for (i, ip) in svc.texts(CLUSTER_IPS).into_iter().enumerate().take_while(|(_, ip)| *ip != NONE) {
        // The addresses are already validated.
        let Some(family) = parse_ip(ip).map(Family::of) else { continue };
        if i < families.len() {
            continue;
        }
        if family == cluster {
            families.push(family.name().into());
        } else {
            let detail = format!("{} is not configured on this cluster", family.name());
            errors.push(FieldError::invalid(format!("{CLUSTER_IPS}[{i}]"), svc.at(CLUSTER_IPS).clone(), detail));
        }
    }
    if !families.is_empty() {
        svc.put(FAMILIES, families);
    }
    errors
}

fn default_headless_families(svc: &mut Value, cluster: Family) {
    let mut families: Vec<Value> = svc.list(FAMILIES).to_vec();
    if families.is_empty() {
        families.push(cluster.name().into());
    }
    if let [only] = families.as_slice()
        && svc.text(POLICY) != SINGLE
    {
        let given = if only == Family::V4.name() { Family::V4 } else { Family::V6 };
        families.push(given.other().name().into());
    }
    svc.put(FAMILIES, families);
}

fn unsupported_by_cluster(svc: &Value, cluster: Family) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if svc.text(POLICY) == REQUIRE {
        errors.push(FieldError::invalid(POLICY, REQUIRE, "this cluster is not configured for dual-stack services"));
    }
    for (i, family) in svc.texts(FAMILIES).into_iter().enumerate().filter(|(_, f)| *f != cluster.name()) {
        errors.push(FieldError::invalid(format!("{FAMILIES}[{i}]"), family, "not configured on this cluster"));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Returns the resolved fields, or the errors.
    fn resolved(spec: Value, old: Option<Value>) -> Result<(Value, Value), Vec<String>> {
        let mut svc = json!({ "spec": spec });
        let old = old.map(|spec| json!({ "spec": spec }));
        resolve(&mut svc, old.as_ref(), Family::V4)
            .map(|()| (svc.at(FAMILIES).clone(), svc.at(POLICY).clone()))
            .map_err(|errors| errors.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn new_services_default_to_the_family_of_the_cluster() {
        let single = Ok((json!(["IPv4"]), json!("SingleStack")));
        assert_eq!(resolved(json!({"type": "ClusterIP"}), None), single);
        let headless =
            json!({"type": "ClusterIP", "clusterIP": "None", "clusterIPs": ["None"], "selector": {"a": "b"}});
        assert_eq!(resolved(headless, None), single);
        let prefer = json!({"type": "ClusterIP", "ipFamilyPolicy": "PreferDualStack"});
        assert_eq!(resolved(prefer, None), Ok((json!(["IPv4"]), json!("PreferDualStack"))));
        assert_eq!(resolved(json!({"type": "ExternalName"}), None), Ok((Value::Null, Value::Null)));
    }

    #[test]
    fn headless_without_selector_has_both_families_even_on_a_single_stack_cluster() {
        let headless = |more: Value| {
            let mut spec = json!({"type": "ClusterIP", "clusterIP": "None", "clusterIPs": ["None"]});
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            resolved(spec, None)
        };
        assert_eq!(headless(json!({})), Ok((json!(["IPv4", "IPv6"]), json!("RequireDualStack"))));
        assert_eq!(headless(json!({"ipFamilies": ["IPv6"]})), Ok((json!(["IPv6", "IPv4"]), json!("RequireDualStack"))));
        assert_eq!(
            headless(json!({"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv6"]})),
            Ok((json!(["IPv6"]), json!("SingleStack")))
        );
    }

    #[test]
    fn families_unsupported_by_the_cluster_are_rejected() {
        let cases = [
            (
                json!({"ipFamilyPolicy": "RequireDualStack"}),
                vec![
                    "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for \
                     dual-stack services",
                ],
            ),
            (
                json!({"ipFamilies": ["IPv6"]}),
                vec!["spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster"],
            ),
            (
                json!({"clusterIP": "fd00::1", "clusterIPs": ["fd00::1"]}),
                vec!["spec.clusterIPs[0]: Invalid value: [\"fd00::1\"]: IPv6 is not configured on this cluster"],
            ),
            (
                json!({"ipFamilies": ["IPv4", "IPv6"]}),
                vec![
                    "spec.ipFamilyPolicy: Invalid value: \"SingleStack\": must be 'RequireDualStack' or \
                     'PreferDualStack' when multiple IP families are specified",
                ],
            ),
        ];
        for (mut spec, errors) in cases {
            spec["type"] = "ClusterIP".into();
            assert_eq!(resolved(spec.clone(), None).unwrap_err(), errors, "{spec}");
        }
    }

    #[test]
    fn update_inherits_the_policy_and_drops_a_family_only_with_single_stack() {
        let old = json!({
            "type": "ClusterIP", "clusterIP": "None", "clusterIPs": ["None"],
            "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack",
        });
        let mut new = old.clone();
        new.as_object_mut().unwrap().remove("ipFamilyPolicy");
        new["ipFamilies"] = json!(["IPv4"]);
        assert_eq!(
            resolved(new.clone(), Some(old.clone())).unwrap_err(),
            ["spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": must be 'SingleStack' to release the \
                 secondary IP family"]
        );
        new["ipFamilyPolicy"] = "SingleStack".into();
        assert_eq!(resolved(new.clone(), Some(old.clone())), Ok((json!(["IPv4"]), json!("SingleStack"))));
        new["ipFamilies"] = json!(["IPv4", "IPv6"]);
        assert_eq!(resolved(new, Some(old)), Ok((json!(["IPv4"]), json!("SingleStack"))));
    }
}
