//! How many pods may be missing or too many while they are replaced.

use serde_json::Value;

use crate::field_error::{FieldError, go_struct};
use crate::resources::check::{Findings, Path};
use crate::validation;
use crate::value::Json;

/// A number, or a share such as `25%`.
pub(in crate::resources) fn amount(value: &Value, at: Path<'_>, found: &mut Findings) {
    match value {
        Value::String(text) => found.form(at, text, validation::percent(text)),
        number => found.not_negative(at, number.as_i64().unwrap_or(0)),
    }
}

/// The number in front of a percent sign.
fn percent(value: &Value) -> Option<i64> {
    let text = value.as_str().filter(|text| validation::percent(text).is_empty())?;
    text.trim_end_matches('%').parse().ok()
}

/// upstream: a share counts by its number alone, and so does a text that is merely a number.
fn number(value: &Value) -> i64 {
    let plain = || value.as_str().and_then(|text| text.parse().ok());
    percent(value).or_else(|| value.as_i64()).or_else(plain).unwrap_or(0)
}

pub(in crate::resources) fn at_most_all(value: &Value, at: Path<'_>, found: &mut Findings) {
    if percent(value).is_some_and(|percent| percent > 100) {
        found.invalid(at, value.clone(), "must not be greater than 100%");
    }
}

/// Checks the rolling update of a Deployment.
pub(super) fn deployment(rolling: &Value, at: Path<'_>, found: &mut Findings) {
    let (missing, extra) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
    amount(missing, at.child("maxUnavailable"), found);
    amount(extra, at.child("maxSurge"), found);
    if number(missing) == 0 && number(extra) == 0 {
        found.invalid(at.child("maxUnavailable"), missing.clone(), "may not be 0 when `maxSurge` is 0");
    }
    at_most_all(missing, at.child("maxUnavailable"), found);
}

/// Checks the rolling update of a DaemonSet, which replaces a pod either before or after its successor starts.
pub(super) fn daemon_set(rolling: &Value, at: Path<'_>, found: &mut Findings) {
    let (missing, extra) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
    amount(missing, at.child("maxUnavailable"), found);
    amount(extra, at.child("maxSurge"), found);
    at_most_all(missing, at.child("maxUnavailable"), found);
    at_most_all(extra, at.child("maxSurge"), found);
    match (number(missing) != 0, number(extra) != 0) {
        (true, true) => {
            found.invalid(at.child("maxSurge"), extra.clone(), "may not be set when maxUnavailable is non-zero");
        }
        (false, false) => found.required(at.child("maxUnavailable"), "cannot be 0 when maxSurge is 0"),
        _ => {}
    }
}

/// The error for an unknown way of replacing pods.
pub(super) fn unknown_type(strategy: &Value, field: &str, supported: &[&str]) -> FieldError {
    let rolling = match strategy.at("rollingUpdate") {
        Value::Null => "null".to_owned(),
        rolling => go_struct(&[
            ("MaxUnavailable", rolling.at("maxUnavailable").clone()),
            ("MaxSurge", rolling.at("maxSurge").clone()),
        ]),
    };
    let kind = Value::from(strategy.text("type"));
    FieldError::not_supported_as(field, format!("{{\"Type\":{kind},\"RollingUpdate\":{rolling}}}"), supported)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    type Check = fn(&Value, Path<'_>, &mut Findings);

    fn complaints(check: Check, missing: Value, extra: Value) -> Vec<String> {
        let mut found = Findings::default();
        check(&json!({"maxUnavailable": missing, "maxSurge": extra}), Path::new("r"), &mut found);
        found.into_errors().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_deployment_must_be_able_to_move() {
        assert_eq!(complaints(deployment, json!("25%"), json!("25%")), Vec::<String>::new());
        assert_eq!(
            complaints(deployment, json!(0), json!("0%")),
            ["r.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0"]
        );
        assert_eq!(
            complaints(deployment, json!("150%"), json!(1)),
            ["r.maxUnavailable: Invalid value: \"150%\": must not be greater than 100%"]
        );
        assert_eq!(complaints(deployment, json!("lots"), json!(-1)).len(), 2);
    }

    #[test]
    fn a_daemon_set_moves_one_way() {
        assert_eq!(complaints(daemon_set, json!(1), json!(0)), Vec::<String>::new());
        assert_eq!(complaints(daemon_set, json!(1), json!(1)).len(), 1);
        assert_eq!(
            complaints(daemon_set, json!(0), json!(0)),
            ["r.maxUnavailable: Required value: cannot be 0 when maxSurge is 0"]
        );
    }

    #[test]
    fn an_unknown_strategy_is_shown_whole() {
        assert_eq!(
            unknown_type(&json!({"type": "Odd"}), "spec.strategy", &["Recreate"]).to_string(),
            "spec.strategy: Unsupported value: {\"Type\":\"Odd\",\"RollingUpdate\":null}: supported values: \"Recreate\""
        );
    }
}
