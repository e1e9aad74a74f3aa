//! Attributes of the load balancer and of its target groups.

use std::collections::BTreeSet;

use bowline_cloud::Result;
use bowline_core::annotations::{Annotation, OrNone, Parsed, ProxyProtocol};

use super::super::Inputs;
use super::super::annotations::{self as keys, Values, pairs};
use super::super::checks::invalid;
use crate::api::Tags;
use crate::api::elbv2::Attributes;

const CROSS_ZONE: &str = "load_balancing.cross_zone.enabled";
const ACCESS_LOGS: &str = "access_logs.s3.enabled";
const BUCKET: &str = "access_logs.s3.bucket";
const PREFIX: &str = "access_logs.s3.prefix";

/// Attributes of a target group that a Service may set, with their values in a new group.
const PRESERVE_CLIENT_IP: &str = "preserve_client_ip.enabled";
const PROXY_PROTOCOL: &str = "proxy_protocol_v2.enabled";
const GROUP_DEFAULTS: [(&str, &str); 2] = [(PRESERVE_CLIENT_IP, "true"), (PROXY_PROTOCOL, "false")];

/// Tag of a load balancer whose target groups have the PROXY protocol because of the common annotation. Without the tag, the removal
/// of that annotation could only be noticed by reading the attributes at every sync.
pub(super) const PROXY_MARK: &str = "bowline.dev/proxy-protocol";

/// Returns the attributes of the load balancer that annotations determine.
pub(super) fn of_load_balancer(values: Values<'_>) -> Result<Attributes> {
    let (has_logs, cross_zone) = (flag(values, &keys::ACCESS_LOG_ENABLED)?, flag(values, &keys::CROSS_ZONE)?);
    let text = |annotation| values.text(annotation).unwrap_or_default().to_owned();
    let always = [(CROSS_ZONE, cross_zone.to_string()), (ACCESS_LOGS, has_logs.to_string())];
    let while_enabled = [(BUCKET, text(&keys::ACCESS_LOG_BUCKET)), (PREFIX, text(&keys::ACCESS_LOG_PREFIX))];
    let all = always.into_iter().chain(while_enabled.into_iter().filter(|_| has_logs));
    Ok(all.map(|(key, value)| (key.to_owned(), value)).collect())
}

fn flag(values: Values<'_>, annotation: &Annotation<OrNone<Parsed<bool>>>) -> Result<bool> {
    let error = |text: &str| format!("error parsing service annotation: {}={text}", annotation.key);
    values.get_or(annotation, |text, _| error(text)).map(Option::unwrap_or_default).map_err(invalid)
}

/// Returns the attributes that differ. One that AWS does not report has its default.
pub(super) fn of_load_balancer_to_set(desired: &Attributes, observed: &Attributes) -> Attributes {
    let default = |key: &str| if matches!(key, CROSS_ZONE | ACCESS_LOGS) { "false" } else { "" };
    let differs = |key: &str, value: &str| observed.get(key).map_or(default(key), String::as_str) != value;
    desired.iter().filter(|(key, value)| differs(key, value)).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Returns whether the attributes of the target groups must be read.
pub(super) fn needs_groups(values: Values<'_>, proxy_protocol: Option<ProxyProtocol>, tags: &Tags) -> bool {
    let is_annotated = values.text(&keys::TARGET_GROUP_ATTRIBUTES).is_some_and(|text| !pairs(text).is_empty());
    is_annotated || proxy_protocol.is_some() || tags.contains_key(PROXY_MARK)
}

/// Returns whether the common annotation requests the PROXY protocol, and no annotation of AWS decides it.
pub(super) fn has_common_proxy_protocol(inputs: &Inputs<'_>) -> bool {
    inputs.settings.proxy_protocol == Some(ProxyProtocol::V2) && !annotated(inputs).contains_key(PROXY_PROTOCOL)
}

/// Returns the attributes that the target groups are to have. `tags` are those of the load balancer.
// upstream: without the annotation, the attributes stay as they are.
pub(super) fn of_groups(inputs: &Inputs<'_>, tags: &Tags) -> Attributes {
    let mut attributes = annotated(inputs);
    if has_common_proxy_protocol(inputs) {
        attributes.insert(PROXY_PROTOCOL.to_owned(), "true".to_owned());
    } else if tags.contains_key(PROXY_MARK) {
        attributes.entry(PROXY_PROTOCOL.to_owned()).or_insert_with(|| "false".to_owned());
    }
    attributes
}

fn annotated(inputs: &Inputs<'_>) -> Attributes {
    inputs.values.text(&keys::TARGET_GROUP_ATTRIBUTES).map(pairs).unwrap_or_default()
}

/// Returns the attributes of an existing group that differ. Those that AWS does not report cannot be set.
pub(super) fn of_group_to_set(desired: &Attributes, observed: &Attributes) -> Attributes {
    let differs = |key: &String, value: &String| observed.get(key).is_some_and(|old| old != value);
    desired.iter().filter(|(key, value)| differs(key, value)).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Returns the attributes of a new group that differ from the defaults.
pub(super) fn of_new_group(desired: &Attributes) -> Attributes {
    let defaults: BTreeSet<(&str, &str)> = GROUP_DEFAULTS.into_iter().collect();
    let differing = desired.iter().filter(|(key, value)| !defaults.contains(&(key.as_str(), value.as_str())));
    differing.map(|(key, value)| (key.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::annotated;
    use super::*;

    fn attributes(pairs: &[(&str, &str)]) -> Attributes {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn cross_zone_and_access_logs_are_off_unless_annotated() {
        let (logs, bucket) = ((keys::ACCESS_LOG_ENABLED.key, "true"), (keys::ACCESS_LOG_BUCKET.key, "logs"));
        let off = [(ACCESS_LOGS, "false"), (CROSS_ZONE, "false")];
        for (pairs, expected) in [
            (&[][..], &off[..]),
            (&[bucket], &off),
            (&[(keys::CROSS_ZONE.key, "T")], &[(ACCESS_LOGS, "false"), (CROSS_ZONE, "true")]),
            (&[logs, bucket], &[(ACCESS_LOGS, "true"), (BUCKET, "logs"), (PREFIX, ""), (CROSS_ZONE, "false")]),
        ] {
            let annotations = annotated(pairs);
            assert_eq!(of_load_balancer(Values(&annotations)).unwrap(), attributes(expected), "{pairs:?}");
        }
        let annotations = annotated(&[(keys::CROSS_ZONE.key, "yes")]);
        let error = of_load_balancer(Values(&annotations)).unwrap_err();
        let text = "error parsing service annotation: \
                    service.beta.kubernetes.io/aws-load-balancer-cross-zone-load-balancing-enabled=yes";
        assert_eq!(error.message(), text);
    }

    #[test]
    fn only_differing_attributes_are_set() {
        let desired = attributes(&[(ACCESS_LOGS, "true"), (BUCKET, "logs"), (PREFIX, ""), (CROSS_ZONE, "false")]);
        let expected = attributes(&[(ACCESS_LOGS, "true"), (BUCKET, "logs")]);
        assert_eq!(of_load_balancer_to_set(&desired, &Attributes::new()), expected);
        let observed = attributes(&[(ACCESS_LOGS, "true"), (BUCKET, "logs"), (PREFIX, "old"), (CROSS_ZONE, "false")]);
        assert_eq!(of_load_balancer_to_set(&desired, &observed), attributes(&[(PREFIX, "")]));
        assert_eq!(of_load_balancer_to_set(&desired, &desired), Attributes::new());
    }

    #[test]
    fn only_reported_attributes_of_a_group_are_set() {
        let desired = attributes(&[(PRESERVE_CLIENT_IP, "true"), (PROXY_PROTOCOL, "true")]);
        assert_eq!(of_group_to_set(&desired, &attributes(&[(PRESERVE_CLIENT_IP, "true")])), Attributes::new());
        let observed = attributes(&[(PRESERVE_CLIENT_IP, "false"), (PROXY_PROTOCOL, "true")]);
        assert_eq!(of_group_to_set(&desired, &observed), attributes(&[(PRESERVE_CLIENT_IP, "true")]));
        assert_eq!(of_new_group(&desired), attributes(&[(PROXY_PROTOCOL, "true")]));
    }
}
