//! Validation of `clusterIP`, `clusterIPs`, `ipFamilies` and `ipFamilyPolicy`, which depend on each other.

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

// === Create and update ===

/// Validates one object. Also runs before an address is allocated, where these errors end the write.
pub(super) fn cluster_ips(svc: &Value, old: Option<&Value>) -> Vec<FieldError> {
    if shape::is_external_name(svc) {
        return Vec::new();
    }
    let mut errors = Vec::from_iter(mirror_error(svc));
    errors.extend(families_errors(svc));
    if svc.has(POLICY) && !POLICIES.contains(&svc.text(POLICY)) {
        errors.push(FieldError::not_supported(POLICY, svc.text(POLICY), POLICIES));
    }
    let address_errors = addresses_errors(svc, old);
    let addresses_valid = address_errors.is_empty();
    errors.extend(address_errors);
    if svc.list(CLUSTER_IPS).len() > 2 {
        errors.push(list_error(svc, "may only hold up to 2 values"));
    }
    if addresses_valid {
        errors.extend(one_per_family_error(svc));
        errors.extend(family_mismatch_errors(svc));
    }
    errors
}

fn list_error(svc: &Value, detail: &str) -> FieldError {
    FieldError::invalid(CLUSTER_IPS, svc.at(CLUSTER_IPS).clone(), detail)
}

/// `clusterIP` must be the first of `clusterIPs`.
fn mirror_error(svc: &Value) -> Option<FieldError> {
    match (svc.text("spec.clusterIP"), svc.texts(CLUSTER_IPS).first()) {
        ("", None) => None,
        ("", Some(_)) => Some(list_error(svc, "must be empty when `clusterIP` is not specified")),
        (_, None) => Some(FieldError::required(CLUSTER_IPS, "")),
        (single, Some(first)) => (single != *first).then(|| list_error(svc, "first value must match `clusterIP`")),
    }
}

fn families_errors(svc: &Value) -> Vec<FieldError> {
    const SUPPORTED: &[&str] = &["IPv4", "IPv6"];
    let mut errors = Vec::new();
    let families = svc.texts(FAMILIES);
    for (i, family) in families.iter().enumerate() {
        let field = || format!("{FAMILIES}[{i}]");
        if !SUPPORTED.contains(family) {
            errors.push(FieldError::not_supported(field(), *family, SUPPORTED));
        }
        if families.iter().take(i).any(|earlier| earlier == family) {
            errors.push(FieldError::duplicate(field(), *family));
        }
    }
    errors
}

/// Each entry must be an address; `None` is valid as the only entry.
fn addresses_errors(svc: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let accepted = old.map(|old| old.texts(CLUSTER_IPS)).unwrap_or_default();
    let given = svc.texts(CLUSTER_IPS);
    let mut errors = Vec::new();
    for (i, ip) in given.iter().enumerate() {
        if i > 0 || *ip != NONE {
            errors.extend(is_valid_ip_legacy(&format!("{CLUSTER_IPS}[{i}]"), ip, &accepted));
        } else if given.len() > 1 {
            errors.push(list_error(svc, "'None' must be the first and only value"));
        }
    }
    errors
}

fn one_per_family_error(svc: &Value) -> Option<FieldError> {
    let given: Vec<Family> = svc.texts(CLUSTER_IPS).into_iter().filter_map(parse_ip).map(Family::of).collect();
    let both = given.contains(&Family::V4) && given.contains(&Family::V6);
    // upstream: three addresses of both families pass here; the limit of two is reported separately.
    (svc.list(CLUSTER_IPS).len() > 1 && !both)
        .then(|| list_error(svc, "may specify no more than one IP for each IP family"))
}

fn family_mismatch_errors(svc: &Value) -> Vec<FieldError> {
    if shape::is_headless(svc) {
        return Vec::new();
    }
    let pairs = svc.texts(CLUSTER_IPS).into_iter().zip(svc.texts(FAMILIES));
    let mut errors = Vec::new();
    for (i, (ip, expected)) in pairs.enumerate() {
        let actual = parse_ip(ip).map_or(Family::V4, Family::of);
        if expected == actual.other().name() {
            let detail = format!("expected an {expected} value as indicated by `ipFamilies[{i}]`");
            errors.push(FieldError::invalid(format!("{CLUSTER_IPS}[{i}]"), ip, detail));
        }
    }
    errors
}

// === Update ===

/// Validates an update: the primary address and family are immutable. The secondary ones can be added, and removed with
/// the policy `SingleStack` only.
pub(super) fn update(svc: &Value, old: &Value) -> Vec<FieldError> {
    if shape::is_external_name(svc) || shape::is_external_name(old) {
        return Vec::new();
    }
    let headless = (shape::is_headless(old), shape::is_headless(svc));
    let mut errors = Vec::new();
    if headless != (true, true) {
        errors.extend(changed_addresses_errors(svc, old));
    }
    if headless == (false, false) {
        errors.extend(changed_families_errors(svc, old));
    }
    errors
}

fn changed_addresses_errors(svc: &Value, old: &Value) -> Vec<FieldError> {
    let (new, previous) = (svc.list(CLUSTER_IPS), old.list(CLUSTER_IPS));
    let error = |i: usize, detail: &str| {
        FieldError::invalid(format!("{CLUSTER_IPS}[{i}]"), svc.at(CLUSTER_IPS).clone(), detail)
    };
    if new.len() == previous.len() {
        return differing_indexes(new, previous).map(|i| error(i, FIXED)).collect();
    }
    let mut errors = Vec::new();
    if new.is_empty() {
        errors.push(error(0, "primary clusterIP can not be unset"));
    }
    errors.extend(differing_indexes(new, previous).next().filter(|i| *i == 0).map(|_| error(0, FIXED)));
    if new.len() < previous.len() {
        errors.extend(secondary_release_error(svc, new, "clusterIP"));
    }
    errors
}

fn changed_families_errors(svc: &Value, old: &Value) -> Vec<FieldError> {
    let (new, previous) = (svc.list(FAMILIES), old.list(FAMILIES));
    // upstream: the error is always reported for the first family, and sometimes with the addresses as its value.
    let error =
        |shown: &str, detail: &str| FieldError::invalid(format!("{FAMILIES}[0]"), svc.at(shown).clone(), detail);
    if new.len() == previous.len() {
        return differing_indexes(new, previous).map(|_| error(FAMILIES, FIXED)).collect();
    }
    let mut errors = Vec::new();
    if new.len() < previous.len() && svc.list(CLUSTER_IPS).is_empty() {
        errors.push(error(FAMILIES, "primary ipFamily can not be unset"));
    }
    errors.extend(differing_indexes(new, previous).next().filter(|i| *i == 0).map(|_| error(CLUSTER_IPS, FIXED)));
    if new.len() < previous.len() {
        errors.extend(secondary_release_error(svc, new, "ipFamily"));
    }
    errors
}

fn differing_indexes<'a>(new: &'a [Value], old: &'a [Value]) -> impl Iterator<Item = usize> + 'a {
    new.iter().zip(old).enumerate().filter(|(_, (new, old))| new != old).map(|(i, _)| i)
}

fn secondary_release_error(svc: &Value, left: &[Value], what: &str) -> Option<FieldError> {
    (left.len() == 1 && svc.text(POLICY) != "SingleStack").then(|| {
        let detail = format!("must be set to 'SingleStack' when releasing the secondary {what}");
        FieldError::invalid(POLICY, svc.at(POLICY).clone(), detail)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn errors(spec: Value) -> Vec<String> {
        cluster_ips(&json!({ "spec": spec }), None).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn fields_must_be_consistent() {
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
        for (spec, expected) in cases {
            assert_eq!(errors(spec.clone()), expected, "{spec}");
        }
    }

    #[test]
    fn three_addresses_of_one_family_return_three_errors() {
        let list = "[\"10.96.0.81\",\"10.96.0.82\",\"10.96.0.83\"]";
        assert_eq!(
            errors(json!({"clusterIPs": ["10.96.0.81", "10.96.0.82", "10.96.0.83"]})),
            [
                format!("spec.clusterIPs: Invalid value: {list}: must be empty when `clusterIP` is not specified"),
                format!("spec.clusterIPs: Invalid value: {list}: may only hold up to 2 values"),
                format!("spec.clusterIPs: Invalid value: {list}: may specify no more than one IP for each IP family"),
            ]
        );
    }

    #[test]
    fn invalid_addresses_skip_the_family_checks() {
        assert_eq!(
            errors(json!({"clusterIP": "nope", "clusterIPs": ["nope", "nope"]})).len(),
            2,
            "one per address, nothing about families"
        );
    }

    fn update_errors(new: Value, old: Value) -> Vec<String> {
        update(&json!({ "spec": new }), &json!({ "spec": old })).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn primary_address_and_family_are_immutable() {
        let old = json!({"clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"});
        assert!(update_errors(old.clone(), old.clone()).is_empty());
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
            assert_eq!(update_errors(new.clone(), old.clone()), errors, "{new}");
        }
    }

    #[test]
    fn removing_the_secondary_address_requires_single_stack() {
        let old = json!({"clusterIPs": ["10.0.0.1", "fd00::1"], "ipFamilies": ["IPv4", "IPv6"]});
        let one = |policy: &str| json!({"clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv4"], "ipFamilyPolicy": policy});
        assert!(update_errors(one("SingleStack"), old.clone()).is_empty());
        let shown =
            "spec.ipFamilyPolicy: Invalid value: \"PreferDualStack\": must be set to 'SingleStack' when releasing";
        assert_eq!(
            update_errors(one("PreferDualStack"), old.clone()),
            [format!("{shown} the secondary clusterIP"), format!("{shown} the secondary ipFamily")]
        );
        assert!(update_errors(old.clone(), one("SingleStack")).is_empty());
    }

    #[test]
    fn headless_service_can_change_its_families() {
        let headless = |families: Value| json!({"clusterIPs": ["None"], "ipFamilies": families});
        assert!(update_errors(headless(json!(["IPv6"])), headless(json!(["IPv4", "IPv6"]))).is_empty());
    }
}
