//! Where a pod may run: affinity, tolerations, spreading.

use serde_json::Value;

use crate::resources::check::{Findings, Path};
use crate::validation;
use crate::value::Json;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

fn label_name(name: &str, at: Path<'_>, found: &mut Findings) {
    found.form(at, name, validation::qualified_name(name));
}

fn label_selector(selector: &Value, at: Path<'_>, found: &mut Findings) {
    if !selector.is_null() {
        found.extend(validation::label_selector(&at.to_string(), selector));
    }
}

// === Affinity ===

pub(super) fn affinity(affinity: &Value, at: Path<'_>, found: &mut Findings) {
    node_affinity(affinity.at("nodeAffinity"), at.child("nodeAffinity"), found);
    for kind in ["podAffinity", "podAntiAffinity"] {
        pod_affinity(affinity.at(kind), at.child(kind), found);
    }
}

fn node_affinity(affinity: &Value, at: Path<'_>, found: &mut Findings) {
    let required_at = at.child(REQUIRED);
    if let Some(required) = affinity.get(REQUIRED) {
        let terms_at = required_at.child("nodeSelectorTerms");
        let terms = required.list("nodeSelectorTerms");
        if terms.is_empty() {
            found.required(terms_at, "must have at least one node selector term");
        }
        for (i, term) in terms.iter().enumerate() {
            node_selector_term(term, true, terms_at.index(i), found);
        }
    }
    let preferred_at = at.child(PREFERRED);
    for (i, preference) in affinity.list(PREFERRED).iter().enumerate() {
        let at = preferred_at.index(i);
        weight(preference, at, found);
        // upstream: values that cannot be labels are tolerated here, they only match nothing.
        node_selector_term(preference.at("preference"), false, at.child("preference"), found);
    }
}

fn weight(term: &Value, at: Path<'_>, found: &mut Findings) {
    let weight = term.int("weight").unwrap_or(0);
    if !(1..=100).contains(&weight) {
        found.invalid(at.child("weight"), weight, "must be in the range 1-100");
    }
}

fn node_selector_term(term: &Value, check_values: bool, at: Path<'_>, found: &mut Findings) {
    let expressions = at.child("matchExpressions");
    for (i, requirement) in term.list("matchExpressions").iter().enumerate() {
        node_requirement(requirement, check_values, expressions.index(i), found);
    }
    let fields = at.child("matchFields");
    for (i, requirement) in term.list("matchFields").iter().enumerate() {
        node_field_requirement(requirement, fields.index(i), found);
    }
}

fn node_requirement(requirement: &Value, check_values: bool, at: Path<'_>, found: &mut Findings) {
    let values = requirement.texts("values");
    let values_at = at.child("values");
    match requirement.text("operator") {
        "In" | "NotIn" if values.is_empty() => {
            found.required(values_at, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            found.forbidden(values_at, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
        }
        "Gt" | "Lt" if values.len() != 1 => {
            found.required(values_at, "must be specified single value when `operator` is 'Lt' or 'Gt'");
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => found.invalid(at.child("operator"), other, "not a valid selector operator"),
    }
    label_name(requirement.text("key"), at.child("key"), found);
    for (i, value) in values.iter().enumerate().filter(|_| check_values) {
        found.form(values_at.index(i), value, validation::label_value(value));
    }
}

fn node_field_requirement(requirement: &Value, at: Path<'_>, found: &mut Findings) {
    let values = requirement.texts("values");
    let values_at = at.child("values");
    match requirement.text("operator") {
        "In" | "NotIn" if values.len() != 1 => {
            let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            found.required(values_at, detail);
        }
        "In" | "NotIn" => {}
        other => found.invalid(at.child("operator"), other, "not a valid selector operator"),
    }
    match requirement.text("key") {
        "metadata.name" => {
            for (i, value) in values.iter().enumerate() {
                found.form(values_at.index(i), value, validation::dns_subdomain(value));
            }
        }
        other => found.invalid(at.child("key"), other, "not a valid field selector key"),
    }
}

fn pod_affinity(affinity: &Value, at: Path<'_>, found: &mut Findings) {
    let required_at = at.child(REQUIRED);
    for (i, term) in affinity.list(REQUIRED).iter().enumerate() {
        pod_affinity_term(term, required_at.index(i), found);
    }
    let preferred_at = at.child(PREFERRED);
    for (i, term) in affinity.list(PREFERRED).iter().enumerate() {
        let at = preferred_at.index(i);
        weight(term, at, found);
        pod_affinity_term(term.at("podAffinityTerm"), at.child("podAffinityTerm"), found);
    }
}

fn pod_affinity_term(term: &Value, at: Path<'_>, found: &mut Findings) {
    label_selector(term.at("labelSelector"), at.child("labelSelector"), found);
    label_selector(term.at("namespaceSelector"), at.child("namespaceSelector"), found);
    for namespace in term.texts("namespaces") {
        found.form(at.child("namespace"), namespace, validation::dns_label(namespace));
    }
    label_keys(term, at, found);
    let key = term.text("topologyKey");
    if key.is_empty() {
        found.required(at.child("topologyKey"), "can not be empty");
    }
    label_name(key, at.child("topologyKey"), found);
}

/// Checks `matchLabelKeys` and `mismatchLabelKeys`: keys whose values come from the pod itself.
fn label_keys(term: &Value, at: Path<'_>, found: &mut Findings) {
    for field in ["matchLabelKeys", "mismatchLabelKeys"] {
        let keys_at = at.child(field);
        let keys = term.texts(field);
        if !keys.is_empty() && !term.has("labelSelector") {
            found.forbidden(keys_at, "must not be specified when labelSelector is not set");
            continue;
        }
        for (i, key) in keys.iter().enumerate() {
            label_name(key, keys_at.index(i), found);
        }
    }
    let keys_at = at.child("matchLabelKeys");
    let mismatched = term.texts("mismatchLabelKeys");
    for (i, key) in term.texts("matchLabelKeys").into_iter().enumerate() {
        if selected_twice(term.at("labelSelector"), key) {
            found.invalid(at.index(i), key, "exists in both matchLabelKeys and labelSelector");
        }
        if mismatched.contains(&key) {
            found.invalid(keys_at.index(i), key, "exists in both matchLabelKeys and mismatchLabelKeys");
        }
    }
}

/// The requirement that was made from a key is one; a second one is the author's.
fn selected_twice(selector: &Value, key: &str) -> bool {
    let expressions = selector.list("matchExpressions").iter().filter(|e| e.text("key") == key).count();
    let labels = usize::from(selector.map("matchLabels").is_some_and(|l| l.contains_key(key)));
    expressions > 0 && expressions + labels > 1
}

// === Tolerations ===

const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub(in crate::resources::pod) fn tolerations(tolerations: &[Value], at: Path<'_>, found: &mut Findings) {
    for (i, toleration) in tolerations.iter().enumerate() {
        one_toleration(toleration, at.index(i), found);
    }
}

fn one_toleration(toleration: &Value, at: Path<'_>, found: &mut Findings) {
    let (key, operator, value) = (toleration.text("key"), toleration.text("operator"), toleration.text("value"));
    let effect = toleration.text("effect");
    if !key.is_empty() {
        label_name(key, at.child("key"), found);
    } else if operator != "Exists" {
        let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        found.invalid(at.child("operator"), operator, detail);
    }
    if toleration.has("tolerationSeconds") && effect != "NoExecute" {
        found.invalid(at.child("effect"), effect, "effect must be 'NoExecute' when `tolerationSeconds` is set");
    }
    let operator_at = at.child("operator");
    match operator {
        "" | "Equal" => {
            let complaints = validation::label_value(value);
            if !complaints.is_empty() {
                found.invalid(operator_at, value, complaints.join(";"));
            }
        }
        "Exists" if !value.is_empty() => {
            found.invalid(operator_at, value, "value must be empty when `operator` is 'Exists'");
        }
        "Exists" => {}
        "Lt" | "Gt" => whole_number(value, at.child("value"), found),
        _ => found.one_of(operator_at, operator, &["Equal", "Exists"]),
    }
    if !effect.is_empty() {
        found.one_of(at.child("effect"), effect, EFFECTS);
    }
}

fn whole_number(text: &str, at: Path<'_>, found: &mut Findings) {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let canonical = text == "0"
        || (digits.starts_with(|c: char| matches!(c, '1'..='9')) && digits.bytes().all(|b| b.is_ascii_digit()));
    match canonical {
        true => {}
        false if text.is_empty() => found.invalid(at, text, "must be non-empty"),
        false => found.invalid(at, text, "must be a valid decimal integer in canonical form"),
    }
    if text.parse::<i64>().is_err() {
        let why = if canonical { "value out of range" } else { "invalid syntax" };
        found.invalid(at, text, format!("strconv.ParseInt: parsing {text:?}: {why}"));
    }
}

// === Spreading ===

pub(super) fn spread_constraints(constraints: &[Value], at: Path<'_>, found: &mut Findings) {
    const ACTIONS: &[&str] = &["DoNotSchedule", "ScheduleAnyway"];
    for (i, constraint) in constraints.iter().enumerate() {
        let at = at.index(i);
        let (key, action) = (constraint.text("topologyKey"), constraint.text("whenUnsatisfiable"));
        positive(constraint.int("maxSkew").unwrap_or(0), at.child("maxSkew"), found);
        if key.is_empty() {
            found.required(at.child("topologyKey"), "can not be empty");
        }
        found.one_of(at.child("whenUnsatisfiable"), action, ACTIONS);
        let same = |c: &Value| c.text("topologyKey") == key && c.text("whenUnsatisfiable") == action;
        if constraints.iter().skip(i + 1).any(same) {
            found.duplicate(at.child("{topologyKey, whenUnsatisfiable}"), format!("{{{key}, {action}}}"));
        }
        min_domains(constraint, action, at.child("minDomains"), found);
        for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            if let Some(value) = constraint.get(policy).and_then(Value::as_str) {
                found.one_of(at.child(policy), value, &["Honor", "Ignore"]);
            }
        }
        label_keys(constraint, at, found);
        label_selector(constraint.at("labelSelector"), at.child("labelSelector"), found);
    }
}

fn positive(number: i64, at: Path<'_>, found: &mut Findings) {
    if number <= 0 {
        found.invalid(at, number, validation::POSITIVE);
    }
}

fn min_domains(constraint: &Value, action: &str, at: Path<'_>, found: &mut Findings) {
    let Some(domains) = constraint.int("minDomains") else { return };
    positive(domains, at, found);
    if action != "DoNotSchedule" {
        let detail = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
        found.invalid(at, domains, detail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn complaints(check: impl FnOnce(&mut Findings)) -> Vec<String> {
        let mut found = Findings::default();
        check(&mut found);
        found.into_errors().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn tolerations_fit_together() {
        let table = [
            (json!({"operator": "Exists"}), 0),
            (json!({"key": "a", "value": "b", "effect": "NoSchedule"}), 0),
            (json!({"operator": "Equal", "value": "b"}), 1),
            (json!({"key": "a", "operator": "Exists", "value": "b"}), 1),
            (json!({"key": "a", "effect": "NoSchedule", "tolerationSeconds": 1}), 1),
            (json!({"key": "a b"}), 1),
            (json!({"key": "a", "operator": "Like"}), 1),
            (json!({"key": "a", "effect": "Odd"}), 1),
            (json!({"key": "a", "operator": "Gt", "value": "x"}), 2),
            (json!({"key": "a", "operator": "Lt", "value": "-5"}), 0),
        ];
        for (toleration, expected) in table {
            let got = complaints(|found| tolerations(std::slice::from_ref(&toleration), Path::new("t"), found));
            assert_eq!(got.len(), expected, "{toleration} {got:?}");
        }
    }

    #[test]
    fn node_affinity_needs_terms() {
        let check = |required: Value| {
            let given = json!({"nodeAffinity": {REQUIRED: required}});
            complaints(|found| affinity(&given, Path::new("a"), found))
        };
        assert_eq!(
            check(json!({"nodeSelectorTerms": []})),
            ["a.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Required value: must \
              have at least one node selector term"]
        );
        let expression = |e: Value| check(json!({"nodeSelectorTerms": [{"matchExpressions": [e]}]})).len();
        assert_eq!(expression(json!({"key": "k", "operator": "In", "values": ["v"]})), 0);
        assert_eq!(expression(json!({"key": "k", "operator": "Gt", "values": ["1", "2"]})), 1);
        assert_eq!(expression(json!({"key": "k", "operator": "Odd"})), 1);
        assert_eq!(expression(json!({"key": "k", "operator": "In", "values": ["not a label"]})), 1);
        let field = |f: Value| check(json!({"nodeSelectorTerms": [{"matchFields": [f]}]})).len();
        assert_eq!(field(json!({"key": "metadata.name", "operator": "In", "values": ["n"]})), 0);
        assert_eq!(field(json!({"key": "metadata.uid", "operator": "In", "values": ["n"]})), 1);
    }

    #[test]
    fn pod_affinity_needs_a_topology() {
        let check = |term: Value| {
            let given = json!({"podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": term}]}});
            complaints(|found| affinity(&given, Path::new("a"), found)).len()
        };
        assert_eq!(check(json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}})), 0);
        // Missing, and not a label's name.
        assert_eq!(check(json!({"topologyKey": ""})), 3);
        assert_eq!(check(json!({"topologyKey": "zone", "matchLabelKeys": ["a"]})), 1);
        assert_eq!(
            check(
                json!({"topologyKey": "zone", "labelSelector": {}, "matchLabelKeys": ["a"], "mismatchLabelKeys": ["a"]})
            ),
            1
        );
    }

    #[test]
    fn spread_constraints_are_distinct() {
        let good = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"});
        let check = |list: Value| {
            let list = list.as_array().cloned().unwrap_or_default();
            complaints(|found| spread_constraints(&list, Path::new("s"), found))
        };
        assert_eq!(check(json!([good])), Vec::<String>::new());
        assert_eq!(
            check(json!([good, good])),
            ["s[0].{topologyKey, whenUnsatisfiable}: Duplicate value: \"{zone, DoNotSchedule}\""]
        );
        let bad = json!({"maxSkew": 0, "topologyKey": "", "whenUnsatisfiable": "Odd", "minDomains": 0});
        assert_eq!(check(json!([bad])).len(), 5);
    }
}
