//! Printers of Endpoints and EndpointSlice.

use serde_json::Value;

use super::{AGE, NAME, Printer, first_three, name, or, text};
use crate::value::Json;

pub(super) static ENDPOINTS: Printer =
    Printer::new(&[NAME, text("Endpoints", "Ready addresses and ports."), AGE], |endpoints, clock| {
        vec![name(endpoints), subsets(endpoints).into(), clock.age(endpoints)]
    });

pub(super) static ENDPOINT_SLICE: Printer = Printer::new(
    &[
        NAME,
        text("AddressType", "Address type of the endpoints: IPv4, IPv6 or FQDN."),
        text("Ports", "Ports of every endpoint."),
        text("Endpoints", "Addresses of the endpoints."),
        AGE,
    ],
    |slice, clock| {
        vec![
            name(slice),
            slice.text("addressType").into(),
            or(&slice_ports(slice), "<unset>").into(),
            or(&slice_addresses(slice), "<unset>").into(),
            clock.age(slice),
        ]
    },
);

fn subsets(endpoints: &Value) -> String {
    match endpoints.list("subsets") {
        [] => "<none>".to_owned(),
        subsets => first_three(&subsets.iter().flat_map(address_ports).collect::<Vec<_>>()),
    }
}

/// Returns every ready address with every port, or addresses alone if there are no ports.
fn address_ports(subset: &Value) -> Vec<String> {
    let addresses = || subset.list("addresses").iter().map(|a| a.text("ip"));
    match subset.list("ports") {
        [] => addresses().map(str::to_owned).collect(),
        ports => ports.iter().flat_map(|port| addresses().map(|ip| address_port(ip, port))).collect(),
    }
}

fn address_port(ip: &str, port: &Value) -> String {
    let port = port.int("port").unwrap_or(0);
    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
}

fn slice_ports(slice: &Value) -> String {
    let ports = slice.list("ports").iter().map(|port| match port.int("port") {
        Some(number) => number.to_string(),
        None => port.at("name").as_str().unwrap_or("*").to_owned(),
    });
    first_three(&Vec::from_iter(ports))
}

fn slice_addresses(slice: &Value) -> String {
    let addresses = slice.list("endpoints").iter().flat_map(|e| e.texts("addresses")).map(str::to_owned);
    first_three(&Vec::from_iter(addresses))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn endpoints_column_combines_addresses_and_ports() {
        let cases = [
            (json!([]), "<none>"),
            (json!([{"notReadyAddresses": [{"ip": "10.0.0.1"}]}]), ""),
            (json!([{"addresses": [{"ip": "10.0.0.1"}]}]), "10.0.0.1"),
            (
                json!([{"addresses": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}], "ports": [{"port": 80}]}]),
                "10.0.0.1:80,[fd00::1]:80",
            ),
            (
                json!([{"addresses": [{"ip": "1.1.1.1"}, {"ip": "1.1.1.2"}], "ports": [{"port": 80}, {"port": 81}]},
                    {"addresses": [{"ip": "1.1.1.3"}], "ports": [{"port": 1}]}]),
                "1.1.1.1:80,1.1.1.2:80,1.1.1.1:81 + 2 more...",
            ),
        ];
        for (subsets_of, text) in cases {
            assert_eq!(subsets(&json!({"subsets": subsets_of})), text, "{subsets_of}");
        }
    }

    #[test]
    fn slice_columns_have_at_most_three_addresses_and_ports() {
        let slice = json!({
            "endpoints": [{"addresses": ["a", "b"]}, {"addresses": ["c"]}, {"addresses": ["d"]}],
            "ports": [{"name": "x", "port": 80}, {"name": "y"}, {}]});
        assert_eq!(slice_addresses(&slice), "a,b,c + 1 more...");
        assert_eq!(slice_ports(&slice), "80,y,*");
    }
}
