//! Node: taints, pod CIDRs, provider ID, and the status that a kubelet sets when it registers.

use serde_json::{Value, json};

use super::strategy::{keep_all_but_status, keep_status};
use super::{Resource, Strategy, WriteCx, meta};
use crate::field_error::{FieldError, go_struct};
use crate::quantity;
use crate::status::ApiResult;
use crate::validation::{self, address};
use crate::value::Json;

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];
/// Resources with integer quantities. Extended resources have them, too.
const COUNTED: &[&str] = &[
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

pub(crate) struct Node;

impl Strategy for Node {
    fn apply_defaults(&self, obj: &mut Value) {
        mirror_pod_cidrs(obj);
        if !obj.has("status.allocatable") && obj.has("status.capacity") {
            let capacity = obj.at("status.capacity").clone();
            obj.put("status.allocatable", capacity);
        }
        for list in ["status.capacity", "status.allocatable"] {
            quantity::round_list(obj.at_mut(list));
        }
    }

    /// Adds the not-ready taint to every new Node. Without it the scheduler could place Pods before the Node's readiness is
    /// known.
    fn admit_create(&self, cx: &WriteCx<'_>, obj: &mut Value) -> ApiResult<()> {
        if cx.subresource.is_none() {
            add_not_ready_taint(obj);
        }
        Ok(())
    }

    /// Keeps `status`, because kubelets set it when they register.
    fn prepare_create(&self, _cx: &WriteCx<'_>, obj: &mut Value) {
        drop_disabled_spec(obj, &Value::Null);
        obj.take_at("status.config");
    }

    fn prepare_update(&self, cx: &WriteCx<'_>, new: &mut Value, old: &Value) {
        keep_status(cx, new, old);
        drop_disabled_spec(new, old);
    }

    fn prepare_status_update(&self, _cx: &WriteCx<'_>, new: &mut Value, old: &Value) {
        keep_all_but_status(new, old);
        if !old.has("status.config") {
            new.take_at("status.config");
        }
    }

    fn validate_create(&self, _cx: &WriteCx<'_>, obj: &Value) -> Vec<FieldError> {
        node_errors(obj)
    }

    fn validate_update(&self, cx: &WriteCx<'_>, new: &Value, old: &Value) -> Vec<FieldError> {
        update_errors(cx.resource, new, old)
    }

    fn validate_status_update(&self, _cx: &WriteCx<'_>, new: &Value, old: &Value) -> Vec<FieldError> {
        status_errors(new, old)
    }

    fn warnings(&self, cx: &WriteCx<'_>, new: &Value, _old: Option<&Value>) -> Vec<String> {
        match cx.subresource {
            None => node_warnings(new),
            Some(_) => Vec::new(),
        }
    }

    fn field_labels(&self) -> Option<&'static [&'static str]> {
        Some(&["spec.unschedulable"])
    }

    fn field_value(&self, obj: &Value, label: &str) -> String {
        match label {
            "spec.unschedulable" => obj.at(label).as_bool().unwrap_or_default().to_string(),
            _ => String::new(),
        }
    }
}

// === Defaults and preparation ===

/// Makes `podCIDR` equal to the first of `podCIDRs`. If they differ, the legacy field `podCIDR` takes precedence, because
/// old clients only set that one.
fn mirror_pod_cidrs(obj: &mut Value) {
    let single = obj.text("spec.podCIDR");
    let first = obj.texts("spec.podCIDRs").first().copied().unwrap_or_default();
    if single == first {
        return;
    }
    match single {
        "" => obj.put("spec.podCIDR", first.to_owned()),
        _ => obj.put("spec.podCIDRs", json!([single])),
    }
}

fn add_not_ready_taint(obj: &mut Value) {
    let is_not_ready = |taint: &Value| taint.text("key") == NOT_READY && taint.text("effect") == "NoSchedule";
    if obj.list("spec.taints").iter().any(is_not_ready) {
        return;
    }
    let taint = json!({"key": NOT_READY, "effect": "NoSchedule"});
    match obj.list_mut("spec.taints") {
        Some(taints) => taints.push(taint),
        None => obj.put("spec.taints", json!([taint])),
    }
}

/// Drops fields of a removed feature (dynamic kubelet configuration) and of a disabled one.
fn drop_disabled_spec(new: &mut Value, old: &Value) {
    for field in ["spec.configSource", "spec.podPreemptionPolicy"] {
        if !old.has(field) {
            new.take_at(field);
        }
    }
}

// === Validation ===

fn node_errors(obj: &Value) -> Vec<FieldError> {
    let mut errors = taints_errors(obj.list("spec.taints"));
    errors.extend(resources_errors(obj));
    errors.extend(swap_error(obj));
    errors.extend(features_errors(&obj.texts("status.declaredFeatures")));
    errors.extend(pod_cidrs_errors(obj));
    errors
}

fn update_errors(resource: &Resource, new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = meta::validate_name(resource, new);
    errors.extend(node_errors(new));
    errors.extend(immutable_errors(new, old));
    errors
}

fn status_errors(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = resources_errors(new);
    errors.extend(features_errors(&new.texts("status.declaredFeatures")));
    errors.extend(immutable_errors(new, old));
    errors
}

fn immutable_errors(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = duplicate_addresses(new.list("status.addresses"));
    if old.has("spec.podCIDRs") && new.at("spec.podCIDRs") != old.at("spec.podCIDRs") {
        let detail = "node updates may not change podCIDR except from \"\" to valid";
        errors.push(FieldError::forbidden("spec.podCIDRs", detail));
    }
    errors.extend(provider_id_error(new.text("spec.providerID"), old.text("spec.providerID")));
    if new.text("spec.externalID") != old.text("spec.externalID") {
        errors.push(FieldError::forbidden("spec.externalID", "may not be updated"));
    }
    errors
}

/// Rejects a change of the provider ID once it is set, because it identifies the Node's machine.
fn provider_id_error(new: &str, old: &str) -> Option<FieldError> {
    let detail = match (old, new) {
        ("", _) => return None,
        (_, "") => "field cannot be cleared once set",
        _ if old != new => "field cannot be modified once set",
        _ => return None,
    };
    // upstream: the error does not contain the rejected value.
    Some(FieldError::invalid("spec.providerID", Value::Null, detail))
}

// upstream: only updates are checked; a Node can be created with duplicate addresses.
fn duplicate_addresses(addresses: &[Value]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (i, address) in addresses.iter().enumerate() {
        if addresses.iter().take(i).any(|earlier| earlier == address) {
            let shown =
                go_struct(&[("Type", address.text("type").into()), ("Address", address.text("address").into())]);
            errors.push(FieldError::duplicate_as(format!("status.addresses[{i}]"), shown, ""));
        }
    }
    errors
}

// upstream: errors about taints name `metadata.taints`.
fn taints_errors(taints: &[Value]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (i, taint) in taints.iter().enumerate() {
        let field = format!("metadata.taints[{i}]");
        errors.extend(taint_errors(&field, taint));
        let same =
            |other: &Value| other.text("key") == taint.text("key") && other.text("effect") == taint.text("effect");
        if taints.iter().take(i).any(same) {
            let detail = "taints must be unique by key and effect pair";
            errors.push(FieldError::duplicate_as(field, format_taint(taint), detail));
        }
    }
    errors
}

fn taint_errors(field: &str, taint: &Value) -> Vec<FieldError> {
    let (key, value, effect) = (taint.text("key"), taint.text("value"), taint.text("effect"));
    let mut errors = validation::invalid_each(&format!("{field}.key"), key, validation::qualified_name(key));
    let details = validation::label_value(value);
    if !details.is_empty() {
        errors.push(FieldError::invalid(format!("{field}.value"), value, details.join(";")));
    }
    match effect {
        "" => errors.push(FieldError::required(format!("{field}.effect"), "")),
        known if EFFECTS.contains(&known) => {}
        other => errors.push(FieldError::not_supported(format!("{field}.effect"), other, EFFECTS)),
    }
    errors
}

fn format_taint(taint: &Value) -> String {
    go_struct(&[
        ("Key", taint.text("key").into()),
        ("Value", taint.text("value").into()),
        ("Effect", taint.text("effect").into()),
        ("TimeAdded", taint.at("timeAdded").clone()),
    ])
}

fn resources_errors(obj: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for list in ["status.capacity", "status.allocatable"] {
        for (name, amount) in obj.map(list).into_iter().flatten() {
            let amount = amount.as_str().unwrap_or_default();
            if quantity::is_negative(amount) {
                errors.push(FieldError::invalid(format!("{list}.{name}"), amount, validation::NOT_NEGATIVE));
            }
            if is_counted(name) && !quantity::is_integer(amount) {
                errors.push(FieldError::invalid(format!("{list}.{name}"), amount, "must be an integer"));
            }
        }
    }
    errors
}

fn is_counted(name: &str) -> bool {
    COUNTED.contains(&name) || validation::is_extended_resource(name)
}

// upstream: the path in the error differs from the field's path.
fn swap_error(obj: &Value) -> Option<FieldError> {
    let capacity = obj.int("status.nodeInfo.swap.capacity").filter(|&bytes| bytes <= 0)?;
    Some(FieldError::invalid("metadata.nodeSwapStatus.capacity", capacity, validation::POSITIVE))
}

/// Declared features must be well-formed, sorted and unique.
fn features_errors(features: &[&str]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (i, feature) in features.iter().enumerate() {
        if let Some(detail) = feature_name_error(feature) {
            errors.push(FieldError::invalid(format!("status.declaredFeatures[{i}]"), *feature, detail));
        }
        let Some(next) = features.get(i + 1) else { continue };
        let field = format!("status.declaredFeatures[{}]", i + 1);
        match feature.cmp(next) {
            std::cmp::Ordering::Less => {}
            std::cmp::Ordering::Equal => errors.push(FieldError::duplicate(field, *next)),
            std::cmp::Ordering::Greater => {
                errors.push(FieldError::invalid(field, *next, "list must be sorted alphabetically"));
            }
        }
    }
    errors
}

fn feature_name_error(name: &str) -> Option<String> {
    if name.len() > 253 {
        return Some(format!("invalid feature name {name:?}: must be no more than 253 characters"));
    }
    let segment =
        |s: &str| s.starts_with(|c: char| c.is_ascii_alphabetic()) && s.bytes().all(|b| b.is_ascii_alphanumeric());
    let well_formed = name.starts_with(|c: char| c.is_ascii_uppercase()) && name.split('/').all(segment);
    (!well_formed).then(|| {
        format!(
            "invalid feature name {name:?}: must start with an UpperCamelCase segment, with subsequent segments \
             separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters \
             and slashes"
        )
    })
}

/// Pod CIDRs must be valid, at most one per IP family.
fn pod_cidrs_errors(obj: &Value) -> Vec<FieldError> {
    const FIELD: &str = "spec.podCIDRs";
    let cidrs = obj.texts(FIELD);
    let numbered = cidrs.iter().enumerate();
    let mut errors: Vec<FieldError> =
        numbered.flat_map(|(i, cidr)| validation::is_valid_cidr_legacy(&format!("{FIELD}[{i}]"), cidr, &[])).collect();
    if cidrs.len() < 2 {
        return errors;
    }
    let parsed: Vec<Option<address::Cidr>> = cidrs.iter().map(|cidr| address::parse_cidr(cidr)).collect();
    if let Some((i, bad)) = cidrs.iter().enumerate().find(|(i, _)| parsed.get(*i).is_none_or(Option::is_none)) {
        let detail = format!(
            "invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[{i}]: <nil> (invalid CIDR \
             address: {bad})"
        );
        errors.push(FieldError::internal(FIELD, detail));
    }
    let families: Vec<bool> = parsed.iter().flatten().map(address::Cidr::is_ipv4).collect();
    if cidrs.len() != 2 || families.len() != 2 || families.first() == families.last() {
        let detail = "may specify no more than one CIDR for each IP family";
        errors.push(FieldError::invalid(FIELD, obj.at(FIELD).clone(), detail));
    }
    errors
}

fn node_warnings(obj: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    if !obj.text("spec.externalID").is_empty() {
        warnings.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
    }
    let cidrs = obj.texts("spec.podCIDRs").into_iter().enumerate();
    warnings.extend(cidrs.filter_map(|(i, cidr)| address::cidr_warning(&format!("spec.podCIDRs[{i}]"), cidr)));
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(errors: Vec<FieldError>) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    const NONE: [&str; 0] = [];

    #[test]
    fn pod_cidr_and_pod_cidrs_mirror_each_other_and_pod_cidr_takes_precedence() {
        let cases = [
            (json!({"podCIDR": "a"}), json!({"podCIDR": "a", "podCIDRs": ["a"]})),
            (json!({"podCIDRs": ["a", "b"]}), json!({"podCIDR": "a", "podCIDRs": ["a", "b"]})),
            (json!({"podCIDR": "a", "podCIDRs": ["b", "c"]}), json!({"podCIDR": "a", "podCIDRs": ["a"]})),
            (json!({}), json!({})),
        ];
        for (given, expected) in cases {
            let mut obj = json!({"spec": given});
            Node.apply_defaults(&mut obj);
            assert_eq!(obj["spec"], expected);
        }
    }

    #[test]
    fn allocatable_defaults_to_capacity() {
        let mut obj = json!({"spec": {}, "status": {"capacity": {"cpu": "4"}}});
        Node.apply_defaults(&mut obj);
        assert_eq!(obj["status"], json!({"capacity": {"cpu": "4"}, "allocatable": {"cpu": "4"}}));
    }

    #[test]
    fn not_ready_taint_is_added_once() {
        let mut obj = json!({"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}});
        add_not_ready_taint(&mut obj);
        add_not_ready_taint(&mut obj);
        let taint = json!({"key": NOT_READY, "effect": "NoSchedule"});
        assert_eq!(obj["spec"]["taints"], json!([{"key": "a", "effect": "NoExecute"}, taint]));
        let mut bare = json!({"spec": {}});
        add_not_ready_taint(&mut bare);
        assert_eq!(bare["spec"]["taints"], json!([taint]));
    }

    #[test]
    fn taints_have_an_effect_and_are_unique() {
        let errors = |taints: Value| texts(node_errors(&json!({"spec": {"taints": taints}})));
        assert_eq!(errors(json!([{"key": "a", "effect": ""}])), ["metadata.taints[0].effect: Required value"]);
        assert_eq!(
            errors(json!([{"key": "a", "effect": "Odd"}])),
            [
                "metadata.taints[0].effect: Unsupported value: \"Odd\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\""
            ]
        );
        assert_eq!(
            errors(
                json!([{"key": "a", "value": "1", "effect": "NoSchedule"}, {"key": "a", "value": "2", "effect": "NoSchedule"}, {"key": "a", "effect": "NoExecute"}])
            ),
            [
                r#"metadata.taints[1]: Duplicate value: {"Key":"a","Value":"2","Effect":"NoSchedule","TimeAdded":null}: taints must be unique by key and effect pair"#
            ]
        );
        let bad = errors(json!([{"key": "a", "value": "b c", "effect": "NoSchedule"}]));
        assert!(bad[0].starts_with("metadata.taints[0].value: Invalid value: \"b c\": a valid label must"), "{bad:?}");
    }

    #[test]
    fn pod_cidrs_have_at_most_one_of_each_ip_family() {
        let errors = |cidrs: &[&str]| texts(node_errors(&json!({"spec": {"podCIDRs": cidrs}})));
        assert_eq!(errors(&["10.244.1.0/24", "2001:db8::/64"]), NONE);
        assert_eq!(
            errors(&["bad"]),
            [
                "spec.podCIDRs[0]: Invalid value: \"bad\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
            ]
        );
        assert_eq!(
            errors(&["10.244.2.0/24", "10.244.3.0/24"]),
            [
                r#"spec.podCIDRs: Invalid value: ["10.244.2.0/24","10.244.3.0/24"]: may specify no more than one CIDR for each IP family"#
            ]
        );
        let broken = errors(&["10.244.2.0/24", "x"]);
        assert_eq!(
            broken[1..],
            [
                "spec.podCIDRs: Internal error: invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[1]: <nil> (invalid CIDR address: x)",
                r#"spec.podCIDRs: Invalid value: ["10.244.2.0/24","x"]: may specify no more than one CIDR for each IP family"#
            ]
        );
    }

    #[test]
    fn quantities_are_not_negative_and_counts_are_integers() {
        let capacity = json!({"cpu": "-1", "pods": "1500m", "memory": "500m", "ex.com/gpu": "500m"});
        let errors = texts(node_errors(&json!({"status": {"capacity": capacity}})));
        assert_eq!(
            errors,
            [
                "status.capacity.cpu: Invalid value: \"-1\": must be greater than or equal to 0",
                "status.capacity.ex.com/gpu: Invalid value: \"500m\": must be an integer",
                "status.capacity.pods: Invalid value: \"1500m\": must be an integer",
            ]
        );
    }

    #[test]
    fn declared_features_are_sorted_camel_case_names() {
        assert_eq!(features_errors(&["A", "B/c"]), []);
        assert_eq!(
            texts(features_errors(&["B", "A", "A"])),
            [
                "status.declaredFeatures[1]: Invalid value: \"A\": list must be sorted alphabetically",
                "status.declaredFeatures[2]: Duplicate value: \"A\""
            ]
        );
        assert_eq!(features_errors(&["a"]).len(), 1);
    }

    #[test]
    fn provider_id_and_pod_cidrs_are_immutable_once_set() {
        let changed = |new: Value, old: Value| texts(immutable_errors(&json!({"spec": new}), &json!({"spec": old})));
        assert_eq!(changed(json!({"providerID": "x://1", "podCIDRs": ["10.0.0.0/24"]}), json!({})), NONE);
        assert_eq!(
            changed(json!({"providerID": "x://2"}), json!({"providerID": "x://1", "podCIDRs": ["10.0.0.0/24"]})),
            [
                "spec.podCIDRs: Forbidden: node updates may not change podCIDR except from \"\" to valid",
                "spec.providerID: Invalid value: null: field cannot be modified once set"
            ]
        );
        assert_eq!(
            changed(json!({}), json!({"providerID": "x://1"})),
            ["spec.providerID: Invalid value: null: field cannot be cleared once set"]
        );
        assert_eq!(changed(json!({"externalID": "c"}), json!({})), ["spec.externalID: Forbidden: may not be updated"]);
    }

    #[test]
    fn update_rejects_duplicate_addresses() {
        let address = json!({"type": "InternalIP", "address": "10.0.0.1"});
        let node = json!({"status": {"addresses": [address, {"type": "InternalIP", "address": "10.0.0.2"}, address]}});
        assert_eq!(node_errors(&node), []);
        assert_eq!(
            texts(status_errors(&node, &json!({}))),
            [r#"status.addresses[2]: Duplicate value: {"Type":"InternalIP","Address":"10.0.0.1"}"#]
        );
    }

    #[test]
    fn external_ids_and_non_canonical_cidrs_return_warnings() {
        let node = json!({"spec": {"externalID": "x", "podCIDRs": ["2001:DB8::/64"]}});
        assert_eq!(node_warnings(&node).len(), 2);
    }

    #[test]
    fn unschedulable_field_label_defaults_to_false() {
        assert_eq!(Node.field_value(&json!({"spec": {}}), "spec.unschedulable"), "false");
        assert_eq!(Node.field_value(&json!({"spec": {"unschedulable": true}}), "spec.unschedulable"), "true");
    }
}
