//! Attributes: access log, connection draining, idle timeout and traffic between zones.

use bowline_cloud::{Error, ErrorKind, Result};
use bowline_core::annotations::{Annotation, OrNone, Parsed};
use bowline_core::{FieldChange, FieldChanges};

use super::super::Inputs;
use super::super::annotations as keys;
use crate::api::elb::{AccessLog, Attributes, ConnectionDraining, ConnectionSettings, Enabled};

/// Idle timeout in seconds, of a new load balancer and without an annotation.
const IDLE_TIMEOUT: i32 = 60;

/// Returns the attributes that AWS gives to a new load balancer.
pub(super) fn of_new() -> Attributes {
    Attributes { connection_settings: ConnectionSettings { idle_timeout: Some(IDLE_TIMEOUT) }, ..Attributes::default() }
}

/// Returns the desired attributes. Those that no annotation sets and that have no default are `None`.
pub(super) fn desired(inputs: &Inputs<'_>) -> Result<Attributes> {
    let values = inputs.values;
    let common = inputs.settings.idle_timeout.map(|timeout| i32::try_from(timeout.as_secs()).unwrap_or(i32::MAX));
    // The order of the fields is that of upstream: it decides which of several invalid values is reported.
    Ok(Attributes {
        access_log: AccessLog {
            emit_interval: number(inputs, &keys::ACCESS_LOG_EMIT_INTERVAL)?,
            enabled: flag(inputs, &keys::ACCESS_LOG_ENABLED)?,
            bucket: values.text(&keys::ACCESS_LOG_BUCKET).map(str::to_owned),
            prefix: values.text(&keys::ACCESS_LOG_PREFIX).map(str::to_owned),
        },
        connection_draining: ConnectionDraining {
            enabled: flag(inputs, &keys::CONNECTION_DRAINING_ENABLED)?,
            timeout: number(inputs, &keys::CONNECTION_DRAINING_TIMEOUT)?,
        },
        connection_settings: ConnectionSettings {
            idle_timeout: number(inputs, &keys::CONNECTION_IDLE_TIMEOUT)?.or(common).or(Some(IDLE_TIMEOUT)),
        },
        cross_zone_load_balancing: Enabled { enabled: flag(inputs, &keys::CROSS_ZONE)? },
    })
}

fn flag(inputs: &Inputs<'_>, annotation: &Annotation<OrNone<Parsed<bool>>>) -> Result<bool> {
    let read = inputs.values.get_or(annotation, |text, _| format!("{}={text}", annotation.key));
    read.map(Option::unwrap_or_default).map_err(unreadable)
}

fn number(inputs: &Inputs<'_>, annotation: &Annotation<OrNone<Parsed<i64>>>) -> Result<Option<i32>> {
    let read = inputs.values.get_or(annotation, |text, _| format!("{}={text}", annotation.key)).map_err(unreadable)?;
    let too_large = |number: i64| unreadable(format!("{}={number}", annotation.key));
    read.map(|number| i32::try_from(number).map_err(|_| too_large(number))).transpose()
}

fn unreadable(message: String) -> Error {
    Error::new(ErrorKind::InvalidConfig, "error parsing service annotation", message)
}

/// Returns the attributes that have to be changed. Only those that the Service sets are compared, and those of a feature that is off
/// are not: AWS fills in the others.
// upstream: all are compared, so the attributes are written at every sync.
pub(super) fn changes(observed: &Attributes, desired: &Attributes) -> Vec<FieldChange> {
    let mut changes = FieldChanges::default();
    let (old, new) = (&observed.access_log, &desired.access_log);
    changes.compare("access log", &old.enabled, &new.enabled);
    if new.enabled {
        compare(&mut changes, "access log interval", old.emit_interval.as_ref(), new.emit_interval.as_ref());
        compare(&mut changes, "access log bucket", old.bucket.as_ref(), new.bucket.as_ref());
        compare(&mut changes, "access log prefix", old.prefix.as_ref(), new.prefix.as_ref());
    }
    let (old, new) = (&observed.connection_draining, &desired.connection_draining);
    changes.compare("connection draining", &old.enabled, &new.enabled);
    if new.enabled {
        compare(&mut changes, "connection draining timeout", old.timeout.as_ref(), new.timeout.as_ref());
    }
    let (old, new) = (&observed.connection_settings, &desired.connection_settings);
    compare(&mut changes, "idle timeout", old.idle_timeout.as_ref(), new.idle_timeout.as_ref());
    let (old, new) = (&observed.cross_zone_load_balancing, &desired.cross_zone_load_balancing);
    changes.compare("cross-zone load balancing", &old.enabled, &new.enabled);
    changes.into_vec()
}

/// Adds a field that the Service sets.
fn compare<T: PartialEq + std::fmt::Debug>(changes: &mut FieldChanges, field: &str, old: Option<&T>, new: Option<&T>) {
    match (old, new) {
        (Some(old), Some(new)) => changes.compare(field, old, new),
        (None, Some(new)) => changes.set(field, new),
        (_, None) => {}
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::tests::Fixture;
    use super::*;

    const PREFIX: &str = "service.beta.kubernetes.io/aws-load-balancer-";

    fn fixture(annotations: &[(&str, &str)]) -> Fixture {
        let annotated =
            |fixture: Fixture, (key, value): &(&str, &str)| fixture.annotated(&format!("{PREFIX}{key}"), value);
        annotations.iter().fold(Fixture::new(), annotated)
    }

    fn changed(observed: &Attributes, annotations: &[(&str, &str)]) -> Vec<String> {
        let desired = desired(&fixture(annotations).inputs()).unwrap();
        changes(observed, &desired).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn defaults_are_those_of_a_new_load_balancer() {
        assert_eq!(desired(&Fixture::new().inputs()).unwrap(), of_new());
        assert_eq!(changed(&of_new(), &[("connection-idle-timeout", ""), ("access-log-enabled", "")]), [""; 0]);
    }

    #[test]
    fn annotations_set_attributes() {
        for (annotations, expected) in [
            (&[("connection-idle-timeout", "120")][..], &["idle timeout: 60 -> 120"][..]),
            (&[("cross-zone-load-balancing-enabled", "T")], &["cross-zone load balancing: false -> true"]),
            (
                &[("connection-draining-enabled", "true"), ("connection-draining-timeout", "30")],
                &["connection draining: false -> true", "connection draining timeout: 30"],
            ),
            (
                &[
                    ("access-log-enabled", "1"),
                    ("access-log-emit-interval", "5"),
                    ("access-log-s3-bucket-name", "logs"),
                    ("access-log-s3-bucket-prefix", "a/b"),
                ],
                &[
                    "access log: false -> true",
                    "access log interval: 5",
                    "access log bucket: logs",
                    "access log prefix: a/b",
                ],
            ),
            (&[("connection-draining-timeout", "30"), ("access-log-s3-bucket-name", "logs")], &[]),
        ] {
            assert_eq!(changed(&of_new(), annotations), expected, "{annotations:?}");
        }
    }

    #[test]
    fn values_that_aws_fills_in_are_no_change() {
        let mut observed = of_new();
        observed.connection_draining = ConnectionDraining { enabled: true, timeout: Some(300) };
        observed.access_log =
            AccessLog { enabled: true, emit_interval: Some(60), bucket: Some("logs".to_owned()), prefix: None };
        let annotations = [
            ("connection-draining-enabled", "true"),
            ("access-log-enabled", "true"),
            ("access-log-s3-bucket-name", "logs"),
        ];
        assert_eq!(changed(&observed, &annotations), [""; 0]);
    }

    #[test]
    fn the_common_idle_timeout_counts_without_the_annotation() {
        let mut fixture = fixture(&[]);
        fixture.settings.idle_timeout = Some(Duration::from_secs(600));
        let timeout = |fixture: &Fixture| desired(&fixture.inputs()).unwrap().connection_settings.idle_timeout;
        assert_eq!(timeout(&fixture), Some(600));
        assert_eq!(timeout(&fixture.annotated(keys::CONNECTION_IDLE_TIMEOUT.key, "90")), Some(90));
    }

    #[test]
    fn the_first_invalid_value_is_reported() {
        for (annotations, expected) in [
            (&[("access-log-enabled", "yes")][..], "access-log-enabled=yes"),
            (&[("access-log-enabled", "yes"), ("access-log-emit-interval", "x")], "access-log-emit-interval=x"),
            (&[("connection-idle-timeout", "4294967296")], "connection-idle-timeout=4294967296"),
            (
                &[("cross-zone-load-balancing-enabled", "on"), ("connection-draining-timeout", "1m")],
                "connection-draining-timeout=1m",
            ),
        ] {
            let error = desired(&fixture(annotations).inputs()).unwrap_err();
            let expected = format!("error parsing service annotation: {PREFIX}{expected}");
            assert_eq!(error.to_string(), expected, "{annotations:?}");
        }
    }
}
