//! Checks of `clusterIP`, `clusterIPs`, `ipFamilies` and `ipFamilyPolicy`, which hang together.

use serde_json::Value;

use super::shape::{self, Family, NONE};
use crate::field_error::FieldError;
use crate::validation::address::{is_valid_ip_legacy, parse_ip};
use crate::value::Json;

const CLUSTER_IPS: &str = "spec.clusterIPs";
const FAMILIES: &str = "spec.ipFamilies";
const POLICY: &str = "spec.ipFamilyPolicy";

const POLICIES: &[&str] = &["PreferDualStack", "RequireDualStack", "SingleStack"];
const FIXED: &str = "may not change once set";

// === An object by itself ===

/// Also run before an address is taken, where these errors end the write.
pub(super) fn cluster_ips(svc: &Value, old: Option<&Value>) -> Vec<FieldError> {
    if shape::is_external_name(svc) {
        return Vec::new();
    }
    let mut errors = Vec::from_iter(single_and_list(svc));
    errors.extend(families(svc));
    if svc.has(POLICY) && !POLICIES.contains(&svc.text(POLICY)) {
        errors.push(FieldError::not_supported(POLICY, svc.text(POLICY), POLICIES));
    }
    let bad_addresses = addresses(svc, old);
    let readable = bad_addresses.is_empty();
    errors.extend(bad_addresses);
    if svc.list(CLUSTER_IPS).len() > 2 {
        errors.push(wrong_list(svc, "may only hold up to 2 values"));
    }
    if readable {
        errors.extend(one_per_family(svc));
        errors.extend(addresses_of_families(svc));
    }
    errors
}

fn wrong_list(svc: &Value, detail: &str) -> FieldError {
    FieldError::invalid(CLUSTER_IPS, svc.at(CLUSTER_IPS).clone(), detail)
}

/// The single field is the first of the list.
fn single_and_list(svc: &Value) -> Option<FieldError> {
    match (svc.text("spec.clusterIP"), svc.texts(CLUSTER_IPS).first()) {
        ("", None) => None,
        ("", Some(_)) => Some(wrong_list(svc, "must be empty when `clusterIP` is not specified")),
        (_, None) => Some(FieldError::required(CLUSTER_IPS, "")),
        (single, Some(first)) => (single != *first).then(|| wrong_list(svc, "first value must match `clusterIP`")),
    }
}

fn families(svc: &Value) -> Vec<FieldError> {
    const SUPPORTED: &[&str] = &["IPv4", "IPv6"];
    let mut errors = Vec::new();
    let families = svc.texts(FAMILIES);
    for (i, family) in families.iter().enumerate() {
        let field = || format!("{FAMILIES}[{i}]");
        if !SUPPORTED.contains(family) {
            errors.push(FieldError::not_supported(field(), *family, SUPPORTED));
        }
        if families.iter().take(i).any(|before| before == family) {
            errors.push(FieldError::duplicate(field(), *family));
        }
    }
    errors
}

/// Each is an address, or `None` alone.
fn addresses(svc: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let accepted = old.map(|old| old.texts(CLUSTER_IPS)).unwrap_or_default();
    let given = svc.texts(CLUSTER_IPS);
    let mut errors = Vec::new();
    for (i, ip) in given.iter().enumerate() {
        if i > 0 || *ip != NONE {
            errors.extend(is_valid_ip_legacy(&format!("{CLUSTER_IPS}[{i}]"), ip, &accepted));
        } else if given.len() > 1 {
            errors.push(wrong_list(svc, "'None' must be the first and only value"));
        }
    }
    errors
}

fn one_per_family(svc: &Value) -> Option<FieldError> {
    let given: Vec<Family> = svc.texts(CLUSTER_IPS).into_iter().filter_map(parse_ip).map(Family::of).collect();
    let both = given.contains(&Family::V4) && given.contains(&Family::V6);
    // upstream: three addresses of both families pass here; that there are three is said elsewhere.
    (svc.list(CLUSTER_IPS).len() > 1 && !both)
        .then(|| wrong_list(svc, "may specify no more than one IP for each IP family"))
}

fn addresses_of_families(svc: &Value) -> Vec<FieldError> {
    if shape::is_headless(svc) {
        return Vec::new();
    }
    let pairs = svc.texts(CLUSTER_IPS).into_iter().zip(svc.texts(FAMILIES));
    let mut errors = Vec::new();
    for (i, (ip, wanted)) in pairs.enumerate() {
        let actual = parse_ip(ip).map_or(Family::V4, Family::of);
        if wanted == actual.other().name() {
            let detail = format!("expected an {wanted} value as indicated by `ipFamilies[{i}]`");
            errors.push(FieldError::invalid(format!("{CLUSTER_IPS}[{i}]"), ip, detail));
        }
    }
    errors
}

// === A change ===

/// The first address and family stay. A second may come; it may go only with a single-stack policy.
pub(super) fn change(svc: &Value, old: &Value) -> Vec<FieldError> {
    if shape::is_external_name(svc) || shape::is_external_name(old) {
        return Vec::new();
    }
    let headless = (shape::is_headless(old), shape::is_headless(svc));
    let mut errors = Vec::new();
    if headless != (true, true) {
        errors.extend(changed_addresses(svc, old));
    }
    if headless == (false, false) {
        errors.extend(changed_families(svc, old));
    }
    errors
}

fn changed_addresses(svc: &Value, old: &Value) -> Vec<FieldError> {
    let (new, before) = (svc.list(CLUSTER_IPS), old.list(CLUSTER_IPS));
    let wrong = |i: usize, detail: &str| {
        FieldError::invalid(format!("{CLUSTER_IPS}[{i}]"), svc.at(CLUSTER_IPS).clone(), detail)
    };
    if new.len() == before.len() {
        return differing(new, before).map(|i| wrong(i, FIXED)).collect();
    }
    let mut errors = Vec::new();
    if new.is_empty() {
        errors.push(wrong(0, "primary clusterIP can not be unset"));
    }
    errors.extend(differing(new, before).next().filter(|i| *i == 0).map(|_| wrong(0, FIXED)));
    if new.len() < before.len() {
        errors.extend(released_second(svc, new, "clusterIP"));
    }
    errors
}

fn changed_families(svc: &Value, old: &Value) -> Vec<FieldError> {
    let (new, before) = (svc.list(FAMILIES), old.list(FAMILIES));
    // upstream: the field is always the first family, and the value shown is sometimes the addresses.
    let wrong =
        |shown: &str, detail: &str| FieldError::invalid(format!("{FAMILIES}[0]"), svc.at(shown).clone(), detail);
    if new.len() == before.len() {
        return differing(new, before).map(|_| wrong(FAMILIES, FIXED)).collect();
    }
    let mut errors = Vec::new();
    if new.len() < before.len() && svc.list(CLUSTER_IPS).is_empty() {
        errors.push(wrong(FAMILIES, "primary ipFamily can not be unset"));
    }
    errors.extend(differing(new, before).next().filter(|i| *i == 0).map(|_| wrong(CLUSTER_IPS, FIXED)));
    if new.len() < before.len() {
        errors.extend(released_second(svc, new, "ipFamily"));
    }
    errors
}

fn differing<'a>(new: &'a [Value], old: &'a [Value]) -> impl Iterator<Item = usize> + 'a {
    new.iter().zip(old).enumerate().filter(|(_, (new, old))| new != old).map(|(i, _)| i)
}

fn released_second(svc: &Value, left: &[Value], what: &str) -> Option<FieldError> {
    (left.len() == 1 && svc.text(POLICY) != "SingleStack").then(|| {
        let detail = format!("must be set to 'SingleStack' when releasing the secondary {what}");
        FieldError::invalid(POLICY, svc.at(POLICY).clone(), detail)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(spec: Value) -> Vec<String> {
        cluster_ips(&json!({ "spec": spec }), None).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_fields_must_agree() {
        let cases = [
            (json!({}), vec![]),
            (json!({"clusterIP": "None", "clusterIPs": ["None"]}), vec![]),
            (json!({"clusterIP": "10.0.0.1"}), vec!["spec.clusterIPs: Required value"]),
            (
                json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.2"]}),
                vec!["spec.clusterIPs: Invalid value: [\"10.0.0.2\"]: first value must match `clusterIP`"],
            ),
            (
                json!({"clusterIP": "None", "clusterIPs": ["None", "10.0.0.2"]}),
                vec![
                    "spec.clusterIPs: Invalid value: [\"None\",\"10.0.0.2\"]: 'None' must be the first and only value",
                ],
            ),
            (
                json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv6"]}),
                vec![
                    "spec.clusterIPs[0]: Invalid value: \"10.0.0.1\": expected an IPv6 value as indicated by \
                     `ipFamilies[0]`",
                ],
            ),
            (
                json!({"ipFamilies": ["IPv5", "IPv5"]}),
                vec![
                    "spec.ipFamilies[0]: Unsupported value: \"IPv5\": supported values: \"IPv4\", \"IPv6\"",
                    "spec.ipFamilies[1]: Unsupported value: \"IPv5\": supported values: \"IPv4\", \"IPv6\"",
                    "spec.ipFamilies[1]: Duplicate value: \"IPv5\"",
                ],
            ),
            (
                json!({"ipFamilyPolicy": "Bogus"}),
                vec![
                    "spec.ipFamilyPolicy: Unsupported value: \"Bogus\": supported values: \"PreferDualStack\", \
                     \"RequireDualStack\", \"SingleStack\"",
                ],
            ),
            (json!({"type": "ExternalName", "clusterIP": "x"}), vec![]),
        ];
        for (spec, errors) in cases {
            assert_eq!(found(spec.clone()), errors, "{spec}");
        }
    }

    #[test]
    fn three_addresses_of_one_family_are_wrong_in_three_ways() {
        let list = "[\"10.96.0.81\",\"10.96.0.82\",\"10.96.0.83\"]";
        assert_eq!(
            found(json!({"clusterIPs": ["10.96.0.81", "10.96.0.82", "10.96.0.83"]})),
            [
                format!("spec.clusterIPs: Invalid value: {list}: must be empty when `clusterIP` is not specified"),
                format!("spec.clusterIPs: Invalid value: {list}: may only hold up to 2 values"),
                format!("spec.clusterIPs: Invalid value: {list}: may specify no more than one IP for each IP family"),
            ]
        );
    }

    #[test]
    fn addresses_that_cannot_be_read_end_the_check() {
        assert_eq!(
            found(json!({"clusterIP": "nope", "clusterIPs": ["nope", "nope"]})).len(),
            2,
            "one per address, nothing about families"
        );
    }

    fn change_found(new: Value, old: Value) -> Vec<String> {
        change(&json!({ "spec": new }), &json!({ "spec": old })).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_first_address_and_family_stay() {
        let old = json!({"clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"});
        assert!(change_found(old.clone(), old.clone()).is_empty());
        let cases = [
            (
                json!({"clusterIPs": ["10.0.0.2"], "ipFamilies": ["IPv4"]}),
                vec!["spec.clusterIPs[0]: Invalid value: [\"10.0.0.2\"]: may not change once set"],
            ),
            (
                json!({"clusterIPs": ["None"], "ipFamilies": ["IPv6"]}),
                vec!["spec.clusterIPs[0]: Invalid value: [\"None\"]: may not change once set"],
            ),
            (
                json!({"clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv6"]}),
                vec!["spec.ipFamilies[0]: Invalid value: [\"IPv6\"]: may not change once set"],
            ),
            (
                json!({"ipFamilies": ["IPv4"]}),
                vec!["spec.clusterIPs[0]: Invalid value: null: primary clusterIP can not be unset"],
            ),
            (json!({"type": "ExternalName"}), vec![]),
        ];
        for (new, errors) in cases {
            assert_eq!(change_found(new.clone(), old.clone()), errors, "{new}");
        }
    }

    #[test]
    fn a_second_address_goes_only_with_a_single_stack_policy() {
        let old = json!({"clusterIPs": ["10.0.0.1", "fd00::1"], "ipFamilies": ["IPv4", "IPv6"]});
        let one = |policy: &str| json!({"clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv4"], "ipFamilyPolicy": policy});
        assert!(change_found(one("SingleStack"), old.clone()).is_empty());
        let shown =
            "spec.ipFamilyPolicy: Invalid value: \"PreferDualStack\": must be set to 'SingleStack' when releasing";
        assert_eq!(
            change_found(one("PreferDualStack"), old.clone()),
            [format!("{shown} the secondary clusterIP"), format!("{shown} the secondary ipFamily")]
        );
        assert!(change_found(old.clone(), one("SingleStack")).is_empty());
    }

    #[test]
    fn a_headless_service_may_change_its_families() {
        let headless = |families: Value| json!({"clusterIPs": ["None"], "ipFamilies": families});
        assert!(change_found(headless(json!(["IPv6"])), headless(json!(["IPv4", "IPv6"]))).is_empty());
    }
}
