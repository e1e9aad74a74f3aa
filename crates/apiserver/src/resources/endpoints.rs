//! Endpoints, the deprecated list of a Service's addresses, and its successor [`EndpointSlice`](slice).

mod slice;

use serde_json::Value;

use super::{Resource, Strategy, WriteCx, meta};
use crate::field_error::FieldError;
use crate::validation::{self, address};
use crate::value::Json;

pub(crate) use slice::EndpointSlice;

const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const CONTROLLER: &str = "endpoint-controller";

pub(crate) struct Endpoints;

impl Strategy for Endpoints {
    fn apply_defaults(&self, obj: &mut Value) {
        for subset in obj.list_mut("subsets").into_iter().flatten() {
            for port in subset.list_mut("ports").into_iter().flatten() {
                if port.text("protocol").is_empty() {
                    port.put("protocol", "TCP");
                }
            }
        }
    }

    fn validate_create(&self, _cx: &WriteCx<'_>, obj: &Value) -> Vec<FieldError> {
        subsets_errors(obj)
    }

    fn validate_update(&self, cx: &WriteCx<'_>, new: &Value, old: &Value) -> Vec<FieldError> {
        update_errors(cx.resource, new, old)
    }

    fn warnings(&self, _cx: &WriteCx<'_>, new: &Value, _old: Option<&Value>) -> Vec<String> {
        address_warnings(new)
    }
}

fn update_errors(resource: &Resource, new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = meta::validate_name(resource, new);
    // Unchanged subsets stay valid even if current validation would reject them.
    if new.at("subsets") != old.at("subsets") {
        errors.extend(subsets_errors(new));
    }
    errors
}

fn subsets_errors(obj: &Value) -> Vec<FieldError> {
    let subsets = obj.list("subsets").iter().enumerate();
    subsets.flat_map(|(i, subset)| subset_errors(&format!("subsets[{i}]"), subset)).collect()
}

fn subset_errors(field: &str, subset: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let lists = ["addresses", "notReadyAddresses"];
    if lists.iter().all(|list| subset.list(list).is_empty()) {
        errors.push(FieldError::required(field, "must specify `addresses` or `notReadyAddresses`"));
    }
    for list in lists {
        for (i, address) in subset.list(list).iter().enumerate() {
            errors.extend(address_errors(&format!("{field}.{list}[{i}]"), address));
        }
    }
    let ports = subset.list("ports");
    for (i, port) in ports.iter().enumerate() {
        errors.extend(port_errors(&format!("{field}.ports[{i}]"), port, ports.len() > 1));
    }
    errors
}

fn address_errors(field: &str, address: &Value) -> Vec<FieldError> {
    let (ip_field, ip) = (format!("{field}.ip"), address.text("ip"));
    let mut errors = address::is_valid_ip_legacy(&ip_field, ip, &[]);
    if let Some(hostname) = address.at("hostname").as_str().filter(|h| !h.is_empty()) {
        errors.extend(validation::invalid_each(
            &format!("{field}.hostname"),
            hostname,
            validation::dns_label(hostname),
        ));
    }
    if let Some(node) = address.at("nodeName").as_str() {
        errors.extend(validation::invalid_each(&format!("{field}.nodeName"), node, validation::dns_subdomain(node)));
    }
    errors.extend(address::endpoint_ip(&ip_field, ip));
    errors
}

fn port_errors(field: &str, port: &Value, needs_name: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    match port.text("name") {
        "" if needs_name => errors.push(FieldError::required(format!("{field}.name"), "")),
        "" => {}
        name => {
            errors.extend(validation::invalid_each(&format!("{field}.name"), name, validation::dns_label(name)));
        }
    }
    let number = port.int("port").unwrap_or_default();
    let details = validation::port_number(number).into_iter();
    errors.extend(details.map(|detail| FieldError::invalid(format!("{field}.port"), number, detail)));
    errors.extend(validation::protocol(&format!("{field}.protocol"), port.text("protocol")));
    errors.extend(app_protocol_errors(field, port));
    errors
}

fn app_protocol_errors(port_field: &str, port: &Value) -> Vec<FieldError> {
    let Some(protocol) = port.at("appProtocol").as_str() else { return Vec::new() };
    let texts = validation::qualified_name(protocol);
    validation::invalid_each(&format!("{port_field}.appProtocol"), protocol, texts)
}

/// Warns of non-canonical addresses. Objects of the endpoints controller are skipped, because their addresses are
/// canonical.
fn address_warnings(obj: &Value) -> Vec<String> {
    if obj.at("metadata.labels").get(MANAGED_BY).is_some_and(|by| by == CONTROLLER) {
        return Vec::new();
    }
    let mut warnings = Vec::new();
    for (i, subset) in obj.list("subsets").iter().enumerate() {
        for list in ["addresses", "notReadyAddresses"] {
            let addresses = subset.list(list).iter().enumerate();
            warnings.extend(
                addresses
                    .filter_map(|(j, a)| address::ip_warning(&format!("subsets[{i}].{list}[{j}].ip"), a.text("ip"))),
            );
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::find;
    use serde_json::json;

    fn texts(errors: Vec<FieldError>) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn ports_default_to_tcp() {
        let mut obj = json!({"subsets": [{"ports": [{"port": 80}, {"port": 53, "protocol": "UDP"}]}]});
        Endpoints.apply_defaults(&mut obj);
        assert_eq!(
            obj["subsets"][0]["ports"],
            json!([{"port": 80, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}])
        );
    }

    #[test]
    fn invalid_address_is_reported_twice() {
        let obj = json!({"subsets": [{"addresses": [{"ip": "bad"}], "ports": [{"port": 80, "protocol": "TCP"}]}]});
        assert_eq!(
            texts(subsets_errors(&obj)),
            [
                "subsets[0].addresses[0].ip: Invalid value: \"bad\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
                "subsets[0].addresses[0].ip: Invalid value: \"bad\": must be a valid IP address"
            ]
        );
    }

    #[test]
    fn subset_needs_addresses_and_port_names() {
        let obj = json!({"subsets": [{"ports": [{"port": 0, "protocol": "X"}, {"port": 1, "name": "A", "protocol": "TCP"}]}]});
        let found = texts(subsets_errors(&obj));
        assert_eq!(
            found[..4],
            [
                "subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`",
                "subsets[0].ports[0].name: Required value",
                "subsets[0].ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
                "subsets[0].ports[0].protocol: Unsupported value: \"X\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
            ]
        );
        assert!(found[4].starts_with("subsets[0].ports[1].name: Invalid value: \"A\""), "{found:?}");
    }

    #[test]
    fn unchanged_subsets_are_not_validated_again() {
        let resource = find("", "v1", "endpoints").unwrap();
        let old = json!({"metadata": {"name": "a"}, "subsets": [{"addresses": [{"ip": "bad"}]}]});
        let mut new = old.clone();
        new["metadata"]["labels"] = json!({"x": "y"});
        assert_eq!(update_errors(resource, &new, &old), []);
        new["subsets"][0]["addresses"] = json!([{"ip": "worse"}]);
        assert_eq!(update_errors(resource, &new, &old).len(), 2);
    }

    #[test]
    fn non_canonical_ipv6_returns_a_warning_unless_the_controller_wrote_it() {
        let mut obj = json!({"subsets": [{"notReadyAddresses": [{"ip": "2001:DB8::1"}]}]});
        assert_eq!(
            address_warnings(&obj),
            [
                "subsets[0].notReadyAddresses[0].ip: IPv6 address \"2001:DB8::1\" should be in RFC 5952 canonical format (\"2001:db8::1\")"
            ]
        );
        obj["metadata"] = json!({"labels": {MANAGED_BY: CONTROLLER}});
        assert_eq!(address_warnings(&obj), [""; 0]);
    }
}
