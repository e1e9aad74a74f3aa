use super::*;
use crate::api::network::FixedIp;

fn port(status: &str, addresses: &[&str]) -> Port {
    let fixed = |address: &&str| FixedIp { ip_address: (*address).to_owned(), ..FixedIp::default() };
    Port { status: status.to_owned(), fixed_ips: addresses.iter().map(fixed).collect(), ..Port::default() }
}

/// A server with these addresses: network, type and address.
fn server(addresses: &[(&str, &str, &str)]) -> Server {
    let mut server = Server::default();
    for (network, kind, addr) in addresses {
        let entry = ServerAddress { addr: (*addr).to_owned(), kind: (*kind).to_owned() };
        server.addresses.entry((*network).to_owned()).or_default().push(entry);
    }
    server
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Returns the addresses as text.
fn addresses_of(server: &Server, ports: &[Port], options: &Networking) -> Vec<String> {
    addresses_with_trunk(server, ports, &[], options)
}

fn addresses_with_trunk(
    server: &Server,
    ports: &[Port],
    trunk_ports: &[TrunkPort],
    options: &Networking,
) -> Vec<String> {
    let ports: Vec<_> = ports.iter().collect();
    let addresses_of = addresses(server, &ports, trunk_ports, options);
    addresses_of.iter().map(|entry| format!("{:?} {}", entry.kind, entry.address)).collect()
}

#[test]
fn case_047_addresses_follow_the_order_of_ports_without_duplicates() {
    let server = server(&[("a", "fixed", "10.0.0.5"), ("b", "fixed", "10.1.0.5")]);
    let ports = [port("ACTIVE", &["10.1.0.5"]), port("ACTIVE", &["10.0.0.5"])];
    assert_eq!(addresses_of(&server, &ports, &Networking::default()), ["InternalIP 10.1.0.5", "InternalIP 10.0.0.5"]);
}

#[test]
fn case_048_an_address_of_a_port_that_is_down_is_last() {
    let server = server(&[("a", "fixed", "10.0.0.5"), ("b", "fixed", "10.1.0.5")]);
    let ports = [port("DOWN", &["10.0.0.5"]), port("ACTIVE", &["10.1.0.5"])];
    assert_eq!(addresses_of(&server, &ports, &Networking::default()), ["InternalIP 10.1.0.5", "InternalIP 10.0.0.5"]);
}

#[test]
fn case_049_a_floating_address_is_external() {
    let server = server(&[("a", "fixed", "10.0.0.5"), ("a", "floating", "203.0.113.7")]);
    let addresses_of = addresses_of(&server, &[port("ACTIVE", &["10.0.0.5"])], &Networking::default());
    assert_eq!(addresses_of, ["InternalIP 10.0.0.5", "ExternalIP 203.0.113.7"]);
}

#[test]
fn case_050_an_access_address_that_is_a_floating_ip_occurs_once() {
    let mut server =
        server(&[("a", "fixed", "10.0.0.5"), ("a", "floating", "203.0.113.7"), ("a", "fixed", "10.0.0.6")]);
    server.access_ipv4 = "203.0.113.7".to_owned();
    let addresses_of = addresses_of(&server, &[port("ACTIVE", &["10.0.0.5"])], &Networking::default());
    assert_eq!(addresses_of, ["InternalIP 10.0.0.5", "ExternalIP 203.0.113.7", "InternalIP 10.0.0.6"]);
}

#[test]
fn case_051_an_unlisted_network_loses_only_its_fixed_address() {
    let server = server(&[("x", "fixed", "10.0.0.5"), ("y", "fixed", "10.1.0.5"), ("y", "floating", "203.0.113.7")]);
    let options = Networking { internal_networks: names(&["x"]), ..Networking::default() };
    let addresses_of = addresses_of(&server, &[port("ACTIVE", &["10.1.0.5"]), port("ACTIVE", &["10.0.0.5"])], &options);
    assert_eq!(addresses_of, ["InternalIP 10.0.0.5", "ExternalIP 203.0.113.7"]);
}

#[test]
fn case_052_an_access_address_on_an_unlisted_network_is_removed() {
    let mut server = server(&[("x", "fixed", "10.0.0.5"), ("y", "fixed", "10.1.0.5")]);
    server.access_ipv4 = "10.1.0.5".to_owned();
    let options = Networking { internal_networks: names(&["x"]), ..Networking::default() };
    assert_eq!(addresses_of(&server, &[port("ACTIVE", &["10.1.0.5"])], &options), ["InternalIP 10.0.0.5"]);
}

#[test]
fn case_053_an_address_of_a_public_network_is_only_external() {
    let server = server(&[("a", "fixed", "10.0.0.5"), ("pub", "fixed", "198.51.100.4")]);
    let options = Networking { public_networks: names(&["pub"]), ..Networking::default() };
    let ports = [port("ACTIVE", &["198.51.100.4"]), port("ACTIVE", &["10.0.0.5"])];
    assert_eq!(addresses_of(&server, &ports, &options), ["InternalIP 10.0.0.5", "ExternalIP 198.51.100.4"]);
}

#[test]
fn case_054_a_network_listed_as_both_is_public() {
    let server = server(&[("both", "fixed", "198.51.100.4")]);
    let options =
        Networking { public_networks: names(&["both"]), internal_networks: names(&["both"]), ..Networking::default() };
    assert_eq!(addresses_of(&server, &[port("ACTIVE", &["198.51.100.4"])], &options), ["ExternalIP 198.51.100.4"]);
}

#[test]
fn case_055_the_hostname_is_between_access_addresses_and_networks() {
    let mut server = server(&[("a", "fixed", "10.0.0.5"), ("a", "floating", "203.0.113.7")]);
    server.access_ipv4 = "203.0.113.9".to_owned();
    server.metadata.insert("hostname".to_owned(), "h.example".to_owned());
    let addresses_of = addresses_of(&server, &[], &Networking::default());
    assert_eq!(
        addresses_of,
        ["ExternalIP 203.0.113.9", "Hostname h.example", "InternalIP 10.0.0.5", "ExternalIP 203.0.113.7"]
    );
}

#[test]
fn an_empty_hostname_is_none() {
    let mut server = server(&[("a", "fixed", "10.0.0.5")]);
    server.metadata.insert("hostname".to_owned(), String::new());
    assert_eq!(addresses_of(&server, &[], &Networking::default()), ["InternalIP 10.0.0.5"]);
}

#[test]
fn case_056_a_trunk_subport_is_ordered_by_its_network_name() {
    let server = server(&[("a", "fixed", "10.0.0.5"), ("z", "fixed", "10.2.0.5")]);
    let trunk = TrunkPort { network: "vlan9".to_owned(), port: port("ACTIVE", &["10.9.0.3"]) };
    let addresses_of =
        addresses_with_trunk(&server, &[port("ACTIVE", &["10.0.0.5"])], &[trunk], &Networking::default());
    assert_eq!(addresses_of, ["InternalIP 10.0.0.5", "InternalIP 10.9.0.3", "InternalIP 10.2.0.5"]);
}

#[test]
fn a_trunk_subport_of_an_unlisted_network_is_left_out() {
    let server = server(&[("a", "fixed", "10.0.0.5")]);
    let trunk = TrunkPort { network: "vlan9".to_owned(), port: port("ACTIVE", &["10.9.0.3"]) };
    let options = Networking { internal_networks: names(&["a"]), ..Networking::default() };
    assert_eq!(addresses_with_trunk(&server, &[], &[trunk], &options), ["InternalIP 10.0.0.5"]);
}

#[test]
fn case_058_with_ipv6_disabled_no_source_adds_ipv6() {
    let mut server = server(&[("a", "fixed", "fd00::5"), ("a", "floating", "fd00::6"), ("a", "fixed", "10.0.0.5")]);
    server.access_ipv6 = "fd00::7".to_owned();
    let trunk = TrunkPort { network: "vlan9".to_owned(), port: port("ACTIVE", &["fd00::9", "10.9.0.3"]) };
    let options = Networking { ipv6_disabled: true, ..Networking::default() };
    let addresses_of = addresses_with_trunk(&server, &[port("ACTIVE", &["fd00::5", "10.0.0.5"])], &[trunk], &options);
    assert_eq!(addresses_of, ["InternalIP 10.0.0.5", "InternalIP 10.9.0.3"]);
}

#[test]
fn case_059_cidrs_sort_addresses_and_the_others_keep_their_order() {
    let addresses = ["10.0.0.9", "172.16.0.2", "203.0.113.1", "10.0.0.3"];
    let options = Networking {
        sort_order: ["172.16.0.0/12", "10.0.0.0/8"].map(|range| range.parse().unwrap()).to_vec(),
        ..Networking::default()
    };
    assert_eq!(
        addresses_of(&server(&[]), &[port("ACTIVE", &addresses)], &options),
        ["InternalIP 172.16.0.2", "InternalIP 10.0.0.3", "InternalIP 10.0.0.9", "InternalIP 203.0.113.1"]
    );
}

#[test]
fn addresses_outside_the_sort_order_are_last_in_their_order() {
    let mut server = server(&[("a", "floating", "203.0.113.7")]);
    server.access_ipv4 = "203.0.113.9".to_owned();
    server.metadata.insert("hostname".to_owned(), "h.example".to_owned());
    let options = Networking { sort_order: vec!["fd00::/8".parse().unwrap()], ..Networking::default() };
    let addresses_of = addresses_of(&server, &[port("ACTIVE", &["10.0.0.9", "fd00::9", "fd00::10"])], &options);
    assert_eq!(
        addresses_of,
        [
            "InternalIP fd00::9",
            "InternalIP fd00::10",
            "InternalIP 10.0.0.9",
            "ExternalIP 203.0.113.9",
            "Hostname h.example",
            "ExternalIP 203.0.113.7"
        ]
    );
}

#[test]
fn case_060_without_a_sort_order_a_port_with_both_families_keeps_its_order() {
    let addresses_of = addresses_of(&server(&[]), &[port("ACTIVE", &["fd00::5", "10.0.0.5"])], &Networking::default());
    assert_eq!(addresses_of, ["InternalIP fd00::5", "InternalIP 10.0.0.5"]);
}
