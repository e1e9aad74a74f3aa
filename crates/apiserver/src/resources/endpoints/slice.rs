//! EndpointSlice: a bounded subset of a Service's endpoints, of one address type.

use std::collections::HashSet;
use std::net::IpAddr;

use serde_json::Value;

use super::super::{Resource, Strategy, WriteCx, meta};
use super::app_protocol_errors;
use crate::field_error::FieldError;
use crate::validation::{self, address};
use crate::value::Json;

const ENDPOINTS_MAX: usize = 1000;
const ADDRESSES_MAX: usize = 100;
const PORTS_MAX: usize = 20_000;
const HINTS_MAX: usize = 8;
const ADDRESS_TYPES: &[&str] = &["FQDN", "IPv4", "IPv6"];

const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const CONTROLLERS: &[&str] = &["endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io"];

pub(crate) struct EndpointSlice;

/// Whether endpoints may have loopback addresses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loopback {
    /// Rejected, as upstream does.
    Rejected,
    /// Allowed: endpoints are processes on this machine.
    Allowed,
}

impl Loopback {
    fn of(cx: &WriteCx<'_>) -> Loopback {
        if cx.state.options.loopback_endpoints { Loopback::Allowed } else { Loopback::Rejected }
    }

    fn allows(self, address: Option<IpAddr>) -> bool {
        self == Loopback::Allowed && address.is_some_and(|address| address.is_loopback())
    }
}

impl Strategy for EndpointSlice {
    fn apply_defaults(&self, obj: &mut Value) {
        // upstream: storage does not distinguish empty lists from absent ones.
        for list in ["endpoints", "ports"] {
            if obj.at(list).is_array() && obj.list(list).is_empty() {
                obj.put(list, Value::Null);
            }
        }
        for port in obj.list_mut("ports").into_iter().flatten() {
            for (field, default) in [("name", ""), ("protocol", "TCP")] {
                if !port.has(field) {
                    port.put(field, default);
                }
            }
        }
    }

    fn prepare_create(&self, _cx: &WriteCx<'_>, obj: &mut Value) {
        obj.put("metadata.generation", 1);
        drop_topology(obj);
    }

    fn prepare_update(&self, _cx: &WriteCx<'_>, new: &mut Value, old: &Value) {
        let generation = old.int("metadata.generation").unwrap_or_default() + i64::from(is_changed(new, old));
        new.put("metadata.generation", generation);
        if new.at("endpoints") != old.at("endpoints") {
            drop_topology(new);
        }
    }

    fn validate_create(&self, cx: &WriteCx<'_>, obj: &Value) -> Vec<FieldError> {
        slice_errors(obj, None, Loopback::of(cx))
    }

    fn validate_update(&self, cx: &WriteCx<'_>, new: &Value, old: &Value) -> Vec<FieldError> {
        update_errors(cx.resource, new, old, Loopback::of(cx))
    }

    fn warnings(&self, _cx: &WriteCx<'_>, new: &Value, old: Option<&Value>) -> Vec<String> {
        let mut warnings = Vec::new();
        if old.is_none() && new.text("addressType") == "FQDN" {
            warnings.push("spec.addressType: FQDN endpoints are deprecated".to_owned());
        }
        warnings.extend(address_warnings(new));
        warnings
    }
}

// === Preparation ===

/// Whether an update increments the generation: any change outside metadata, or of the labels, by which consumers select.
fn is_changed(new: &Value, old: &Value) -> bool {
    ["addressType", "endpoints", "ports", "metadata.labels"].iter().any(|field| new.at(field) != old.at(field))
}

/// Drops the topology map of the beta API, which is read-only in `v1`.
fn drop_topology(obj: &mut Value) {
    for endpoint in obj.list_mut("endpoints").into_iter().flatten() {
        endpoint.take_at("deprecatedTopology");
    }
}

// === Validation ===

fn update_errors(resource: &Resource, new: &Value, old: &Value, loopback: Loopback) -> Vec<FieldError> {
    let mut errors = meta::validate_name(resource, new);
    errors.extend(slice_errors(new, Some(old), loopback));
    errors
}

/// upstream: errors of declarative validation come last.
fn slice_errors(new: &Value, old: Option<&Value>, loopback: Loopback) -> Vec<FieldError> {
    let mut errors: Vec<FieldError> = unknown_type_error(new, old).into_iter().collect();
    errors.extend(ports_errors(new.list("ports")));
    let unchanged = old.is_some_and(|old| old.at("endpoints") == new.at("endpoints"));
    // Unchanged endpoints stay valid even if current validation would reject them.
    if !unchanged {
        errors.extend(endpoints_errors(new, loopback));
    }
    errors.extend(type_errors(new, old));
    if !unchanged {
        errors.extend(address_count_errors(new));
    }
    errors
}

/// Reports an address type that is both changed and unknown. upstream: handwritten validation reports it, before
/// declarative validation reports the change.
fn unknown_type_error(new: &Value, old: Option<&Value>) -> Option<FieldError> {
    let kind = new.text("addressType");
    let changed = old.is_some_and(|old| old.text("addressType") != kind);
    (changed && !kind.is_empty() && !ADDRESS_TYPES.contains(&kind)).then(|| unsupported_type(kind))
}

fn unsupported_type(kind: &str) -> FieldError {
    FieldError::not_supported("addressType", kind, ADDRESS_TYPES)
}

fn type_errors(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let kind = new.text("addressType");
    let mut errors = Vec::new();
    if kind.is_empty() {
        errors.push(FieldError::required("addressType", ""));
    }
    match old {
        Some(old) if old.text("addressType") != kind => {
            errors.push(FieldError::invalid("addressType", Value::Null, validation::FIELD_IMMUTABLE));
        }
        None if !kind.is_empty() && !ADDRESS_TYPES.contains(&kind) => errors.push(unsupported_type(kind)),
        _ => {}
    }
    errors
}

fn address_count_errors(obj: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (i, endpoint) in obj.list("endpoints").iter().enumerate() {
        match endpoint.list("addresses").len() {
            0 => errors.push(FieldError::required(format!("endpoints[{i}].addresses"), "")),
            count if count > ADDRESSES_MAX => {
                errors.push(FieldError::too_many(format!("endpoints[{i}].addresses"), count, ADDRESSES_MAX));
            }
            _ => {}
        }
    }
    errors
}

fn endpoints_errors(obj: &Value, loopback: Loopback) -> Vec<FieldError> {
    let endpoints = obj.list("endpoints");
    if endpoints.len() > ENDPOINTS_MAX {
        return vec![FieldError::too_many("endpoints", endpoints.len(), ENDPOINTS_MAX)];
    }
    let kind = obj.text("addressType");
    let numbered = endpoints.iter().enumerate();
    numbered.flat_map(|(i, endpoint)| endpoint_errors(&format!("endpoints[{i}]"), endpoint, kind, loopback)).collect()
}

fn endpoint_errors(field: &str, endpoint: &Value, kind: &str, loopback: Loopback) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let list = format!("{field}.addresses");
    for (i, address) in endpoint.texts("addresses").into_iter().enumerate() {
        errors.extend(address_errors(&list, i, address, kind, loopback));
    }
    if let Some(node) = endpoint.at("nodeName").as_str() {
        errors.extend(validation::invalid_each(&format!("{field}.nodeName"), node, validation::dns_subdomain(node)));
    }
    if let Some(hostname) = endpoint.at("hostname").as_str() {
        let texts = validation::dns_label(hostname);
        errors.extend(validation::invalid_each(&format!("{field}.hostname"), hostname, texts));
    }
    errors.extend(hints_errors(&format!("{field}.hints"), endpoint.at("hints")));
    errors
}

fn address_errors(list: &str, i: usize, address: &str, kind: &str, loopback: Loopback) -> Vec<FieldError> {
    let field = format!("{list}[{i}]");
    let (errors, of_family): (_, fn(&IpAddr) -> bool) = match kind {
        "IPv4" => (address::is_valid_ip_legacy(&field, address, &[]), IpAddr::is_ipv4),
        "IPv6" => (address::is_valid_ip(&field, address), IpAddr::is_ipv6),
        "FQDN" => return validation::fully_qualified_domain(&field, address),
        _ => return Vec::new(),
    };
    if !errors.is_empty() {
        return errors;
    }
    let mut errors = Vec::new();
    let parsed = address::parse_ip(address);
    if !parsed.is_some_and(|ip| of_family(&ip)) {
        errors.push(FieldError::invalid(list, address, format!("must be an {kind} address")));
    }
    if !loopback.allows(parsed) {
        errors.extend(address::endpoint_ip(&field, address));
    }
    errors
}

/// Returns the errors of a name.
type NameValidator = fn(&str) -> Vec<String>;

fn hints_errors(field: &str, hints: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let lists: [(&str, NameValidator); 2] =
        [("forZones", validation::label_value), ("forNodes", validation::dns_subdomain)];
    for (list, validate) in lists {
        let (field, hints) = (format!("{field}.{list}"), hints.list(list));
        if hints.len() > HINTS_MAX {
            errors.push(FieldError::too_many(field, hints.len(), HINTS_MAX));
            return errors;
        }
        for (i, hint) in hints.iter().enumerate() {
            let (field, name) = (format!("{field}[{i}].name"), hint.text("name"));
            if hints.iter().take(i).any(|earlier| earlier.text("name") == name) {
                errors.push(FieldError::duplicate(field.as_str(), name));
            }
            errors.extend(validation::invalid_each(&field, name, validate(name)));
        }
    }
    errors
}

fn ports_errors(ports: &[Value]) -> Vec<FieldError> {
    if ports.len() > PORTS_MAX {
        return vec![FieldError::too_many("ports", ports.len(), PORTS_MAX)];
    }
    let mut errors = Vec::new();
    let mut names = HashSet::new();
    for (i, port) in ports.iter().enumerate() {
        let (field, name) = (format!("ports[{i}]"), port.text("name"));
        if !name.is_empty() {
            errors.extend(validation::invalid_each(&format!("{field}.name"), name, validation::dns_label(name)));
        }
        if !names.insert(name) {
            errors.push(FieldError::duplicate(format!("{field}.name"), name));
        }
        errors.extend(protocol_error(&field, port));
        errors.extend(app_protocol_errors(&field, port));
    }
    errors
}

/// An empty protocol is unsupported: only an absent one is defaulted.
fn protocol_error(port_field: &str, port: &Value) -> Option<FieldError> {
    let protocol = port.text("protocol");
    (!validation::PROTOCOLS.contains(&protocol))
        .then(|| FieldError::not_supported(format!("{port_field}.protocol"), protocol, validation::PROTOCOLS))
}

/// Warns of non-canonical addresses. Slices of the built-in controllers are skipped, because their addresses are
/// canonical.
fn address_warnings(obj: &Value) -> Vec<String> {
    let writer = obj.at("metadata.labels").get(MANAGED_BY).and_then(Value::as_str);
    if writer.is_some_and(|writer| CONTROLLERS.contains(&writer)) {
        return Vec::new();
    }
    let mut warnings = Vec::new();
    for (i, endpoint) in obj.list("endpoints").iter().enumerate() {
        let addresses = endpoint.texts("addresses").into_iter().enumerate();
        warnings
            .extend(addresses.filter_map(|(j, a)| address::ip_warning(&format!("endpoints[{i}].addresses[{j}]"), a)));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn slice(kind: &str, addresses: &[&str]) -> Value {
        json!({"metadata": {"name": "a"}, "addressType": kind, "endpoints": [{"addresses": addresses, "conditions": {}}],
            "ports": [{"name": "", "port": 80, "protocol": "TCP"}]})
    }

    fn created(obj: &Value) -> Vec<String> {
        slice_errors(obj, None, Loopback::Rejected).iter().map(ToString::to_string).collect()
    }

    fn changed(new: &Value, old: &Value) -> Vec<String> {
        slice_errors(new, Some(old), Loopback::Rejected).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn port_names_and_protocols_are_defaulted_and_empty_lists_become_null() {
        let mut obj = json!({"endpoints": [], "ports": [{"port": 80}]});
        EndpointSlice.apply_defaults(&mut obj);
        assert_eq!(obj, json!({"endpoints": null, "ports": [{"name": "", "port": 80, "protocol": "TCP"}]}));
    }

    #[test]
    fn loopback_endpoints_need_the_server_option() {
        let loopback = slice("IPv4", &["127.128.0.2"]);
        assert_eq!(slice_errors(&loopback, None, Loopback::Rejected).len(), 1);
        assert_eq!(slice_errors(&loopback, None, Loopback::Allowed), []);
        assert_eq!(
            slice_errors(&slice("IPv4", &["169.254.0.1"]), None, Loopback::Allowed).len(),
            1,
            "link-local addresses stay rejected"
        );
        assert_eq!(
            slice_errors(&slice("IPv6", &["127.128.0.2"]), None, Loopback::Allowed).len(),
            1,
            "the family must match"
        );
    }

    #[test]
    fn addresses_match_the_address_type() {
        let cases: &[(&str, &str, &[&str])] = &[
            ("IPv4", "10.1.2.3", &[]),
            (
                "IPv4",
                "x",
                &[
                    "endpoints[0].addresses[0]: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
                ],
            ),
            (
                "IPv4",
                "2001:db8::1",
                &["endpoints[0].addresses: Invalid value: \"2001:db8::1\": must be an IPv4 address"],
            ),
            (
                "IPv4",
                "127.0.0.1",
                &[
                    "endpoints[0].addresses[0]: Invalid value: \"127.0.0.1\": may not be in the loopback range (127.0.0.0/8, ::1/128)",
                ],
            ),
            (
                "IPv6",
                "2001:DB8::1",
                &[
                    "endpoints[0].addresses[0]: Invalid value: \"2001:DB8::1\": must be in canonical form (\"2001:db8::1\")",
                ],
            ),
            ("IPv6", "10.1.2.3", &["endpoints[0].addresses: Invalid value: \"10.1.2.3\": must be an IPv6 address"]),
            ("FQDN", "a.example.com", &[]),
            (
                "Bogus",
                "x",
                &["addressType: Unsupported value: \"Bogus\": supported values: \"FQDN\", \"IPv4\", \"IPv6\""],
            ),
            ("", "x", &["addressType: Required value"]),
        ];
        for (kind, address, expected) in cases {
            assert_eq!(created(&slice(kind, &[address])), *expected, "{kind} {address}");
        }
    }

    #[test]
    fn lists_are_bounded() {
        assert_eq!(created(&slice("IPv4", &[])), ["endpoints[0].addresses: Required value"]);
        let many: Vec<String> = (0..101).map(|i| format!("10.1.0.{i}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(
            created(&slice("IPv4", &many)),
            ["endpoints[0].addresses: Too many: 101: must have at most 100 items"]
        );
        let mut big = slice("IPv4", &["10.1.2.3"]);
        big["endpoints"] = vec![big["endpoints"][0].clone(); 1001].into();
        assert_eq!(created(&big), ["endpoints: Too many: 1001: must have at most 1000 items"]);
    }

    #[test]
    fn port_names_are_unique() {
        let mut obj = slice("IPv4", &["10.1.2.3"]);
        obj["ports"] = json!([{"name": "", "protocol": "TCP"}, {"name": "", "protocol": "x"}]);
        assert_eq!(
            created(&obj),
            [
                "ports[1].name: Duplicate value: \"\"",
                "ports[1].protocol: Unsupported value: \"x\": supported values: \"SCTP\", \"TCP\", \"UDP\""
            ]
        );
    }

    #[test]
    fn hints_are_validated() {
        let mut obj = slice("IPv4", &["10.1.2.3"]);
        obj["endpoints"][0]["hints"] = json!({"forZones": [{"name": "a"}, {"name": "a"}], "forNodes": [{"name": "N"}]});
        let found = created(&obj);
        assert_eq!(found[0], "endpoints[0].hints.forZones[1].name: Duplicate value: \"a\"");
        assert!(found[1].starts_with("endpoints[0].hints.forNodes[0].name: Invalid value: \"N\": a lowercase"));
    }

    #[test]
    fn address_type_is_immutable() {
        let old = slice("IPv4", &["10.1.2.3"]);
        let mut new = json!({"addressType": "IPv6", "endpoints": null, "ports": null});
        assert_eq!(changed(&new, &old), ["addressType: Invalid value: null: field is immutable"]);
        new["addressType"] = "Bogus".into();
        assert_eq!(
            changed(&new, &old),
            [
                "addressType: Unsupported value: \"Bogus\": supported values: \"FQDN\", \"IPv4\", \"IPv6\"",
                "addressType: Invalid value: null: field is immutable"
            ]
        );
    }

    #[test]
    fn labels_and_content_increment_the_generation_and_annotations_do_not() {
        let old = slice("IPv4", &["10.1.2.3"]);
        let mut new = old.clone();
        new["metadata"]["annotations"] = json!({"a": "b"});
        assert!(!is_changed(&new, &old));
        new["metadata"]["labels"] = json!({"a": "b"});
        assert!(is_changed(&new, &old));
        assert!(is_changed(&slice("IPv4", &["10.1.2.4"]), &old));
    }

    #[test]
    fn deprecated_topology_is_dropped() {
        let mut obj =
            json!({"endpoints": [{"addresses": ["10.1.2.3"], "deprecatedTopology": {"kubernetes.io/hostname": "n"}}]});
        drop_topology(&mut obj);
        assert_eq!(obj, json!({"endpoints": [{"addresses": ["10.1.2.3"]}]}));
    }
}
