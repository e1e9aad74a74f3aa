//! Field and label selectors in access reviews. RBAC ignores them, but the API validates them, and the status reports
//! selectors that cannot be parsed.

use serde_json::Value;

use crate::field_error::FieldError;
use crate::selectors::LabelSelector;
use crate::validation;
use crate::value::Json;

const BASE: &str = "spec.resourceAttributes";

/// Validates the form of the selectors.
pub(super) fn validate(review: &Value) -> Vec<FieldError> {
    let mut errors = validate_selector(review, "fieldSelector", field_requirement);
    errors.extend(validate_selector(review, "labelSelector", label_requirement));
    errors
}

fn validate_selector(review: &Value, name: &str, requirement: fn(&Value, &str) -> Vec<FieldError>) -> Vec<FieldError> {
    let path = format!("{BASE}.{name}");
    let selector = review.at(&path);
    if selector.is_null() {
        return Vec::new();
    }
    let (raw, requirements) = (selector.text("rawSelector"), selector.list("requirements"));
    let mut errors = Vec::new();
    match (raw.is_empty(), requirements.is_empty()) {
        (false, false) => {
            let why = "may not specified at the same time as requirements";
            errors.push(FieldError::invalid(format!("{path}.rawSelector"), raw, why));
        }
        (true, true) => {
            let why = format!("when {path} is specified, requirements or rawSelector is required");
            errors.push(FieldError::required(format!("{path}.requirements"), why));
        }
        _ => {}
    }
    for (i, item) in requirements.iter().enumerate() {
        errors.extend(requirement(item, &format!("{path}.requirements[{i}]")));
    }
    errors
}

fn field_requirement(item: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if item.text("key").is_empty() {
        errors.push(FieldError::required(format!("{path}.key"), "must be specified"));
    }
    errors.extend(operator(item, path));
    errors
}

fn label_requirement(item: &Value, path: &str) -> Vec<FieldError> {
    let mut errors: Vec<FieldError> = operator(item, path).into_iter().collect();
    let key = item.text("key");
    errors.extend(
        validation::qualified_name(key).into_iter().map(|m| FieldError::invalid(format!("{path}.key"), key, m)),
    );
    for (i, value) in item.texts("values").into_iter().enumerate() {
        let invalid = |m: String| FieldError::invalid(format!("{path}.values[{i}]"), value, m);
        errors.extend(validation::label_value(value).into_iter().map(invalid));
    }
    errors
}

/// Unknown operators are accepted, because newer clients may send them.
fn operator(item: &Value, path: &str) -> Option<FieldError> {
    let none = item.list("values").is_empty();
    let field = format!("{path}.values");
    match item.text("operator") {
        "In" | "NotIn" if none => {
            Some(FieldError::required(field, "must be specified when `operator` is 'In' or 'NotIn'"))
        }
        "Exists" | "DoesNotExist" if !none => {
            Some(FieldError::forbidden(field, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"))
        }
        _ => None,
    }
}

/// Names the selectors that are ignored, fully or partially.
pub(super) fn evaluation_error(review: &Value) -> String {
    type Parses = fn(&str) -> bool;
    type Supports = fn(&Value) -> bool;
    let selectors: [(&str, Parses, Supports); 2] = [
        ("fieldSelector", is_field_selector, is_supported_field_requirement),
        ("labelSelector", |raw| LabelSelector::parse(raw).is_ok(), |item| is_known_operator(item.text("operator"))),
    ];
    let mut errors = Vec::new();
    for (name, parses, supported) in selectors {
        let path = format!("{BASE}.{name}");
        let (raw, items) = (review.at(&path).text("rawSelector"), review.at(&path).list("requirements"));
        let supported_count = items.iter().filter(|item| supported(item)).count();
        match () {
            () if !items.is_empty() && supported_count == items.len() => {}
            () if supported_count > 0 => errors.push(format!("{path} partially ignored due to parse error")),
            () if !items.is_empty() || !parses(raw) => errors.push(format!("{path} ignored due to parse error")),
            () => {}
        }
    }
    errors.join("; ")
}

fn is_known_operator(operator: &str) -> bool {
    matches!(operator, "In" | "NotIn" | "Exists" | "DoesNotExist")
}

/// Field requirements support only comparison with one value.
fn is_supported_field_requirement(item: &Value) -> bool {
    matches!(item.text("operator"), "In" | "NotIn") && item.list("values").len() == 1
}

/// Whether a text is a list of `field=value` and `field!=value`.
fn is_field_selector(text: &str) -> bool {
    terms(text).iter().filter(|term| !term.is_empty()).all(|term| {
        let found = term.find(['=', '!']).map(|at| term.split_at(at).1);
        let value = found.and_then(|rest| ["!=", "==", "="].iter().find_map(|op| rest.strip_prefix(op)));
        value.is_some_and(is_field_value)
    })
}

/// Splits at commas that are not escaped by a backslash.
fn terms(text: &str) -> Vec<&str> {
    let mut escaped = false;
    text.split(|c: char| {
        let ends = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    })
    .collect()
}

/// A backslash may escape itself, a comma or `=`; commas and `=` must be escaped.
fn is_field_value(value: &str) -> bool {
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        let fine = match c {
            '\\' => matches!(chars.next(), Some('\\' | ',' | '=')),
            ',' | '=' => false,
            _ => true,
        };
        if !fine {
            return false;
        }
    }
    true
}
