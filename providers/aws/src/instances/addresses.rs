//! Addresses of Nodes, in the order of the configured IP families.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bowline_core::{Address, AddressType, IpFamily};

use crate::api::ec2::{Instance, NetworkInterface};

/// Status of a network interface whose addresses count.
const IN_USE: &str = "in-use";

/// Returns the addresses of an instance. The error is an address that AWS reported and that is invalid.
pub(super) fn of_instance(instance: &Instance, families: &[IpFamily]) -> Result<Vec<Address>, String> {
    // upstream: sorts while it reads IPv4 addresses, so that the order is arbitrary with IPv6 alone or first.
    let mut interfaces: Vec<_> = instance.network_interfaces.iter().filter(|one| one.status == IN_USE).collect();
    interfaces.sort_by_key(|one| one.attachment.as_ref().map_or((true, 0), |place| (false, place.device_index)));
    let mut addresses = Vec::new();
    for family in or_ipv4(families) {
        match family {
            IpFamily::IPv4 => add_ipv4(&mut addresses, instance, &interfaces)?,
            IpFamily::IPv6 => add_ipv6(&mut addresses, instance, &interfaces)?,
        }
    }
    Ok(addresses)
}

/// Returns the addresses of a Fargate Node.
pub(super) fn of_fargate(interface: &NetworkInterface, families: &[IpFamily]) -> Vec<Address> {
    let mut addresses = Vec::new();
    for family in or_ipv4(families) {
        let ip = match family {
            IpFamily::IPv4 => Some(&interface.private_ip_address).filter(|ip| !ip.is_empty()),
            IpFamily::IPv6 => interface.ipv6_addresses.first().map(|one| &one.ipv6_address),
        };
        let Some(ip) = ip else {
            tracing::debug!(
                interface = interface.network_interface_id,
                ?family,
                "the Fargate Node has no such address"
            );
            continue;
        };
        addresses.push(Address::new(AddressType::InternalIP, ip));
        add_name(&mut addresses, AddressType::InternalDNS, &interface.private_dns_name);
    }
    // A Node must not have the same address twice, and both families have the same name.
    let mut seen: Vec<Address> = Vec::new();
    addresses.retain(|one| {
        !seen.contains(one) && {
            seen.push(one.clone());
            true
        }
    });
    addresses
}

fn or_ipv4(families: &[IpFamily]) -> &[IpFamily] {
    if families.is_empty() { &[IpFamily::IPv4] } else { families }
}

fn add_ipv4(to: &mut Vec<Address>, instance: &Instance, interfaces: &[&NetworkInterface]) -> Result<(), String> {
    let id = &instance.instance_id;
    for address in interfaces.iter().flat_map(|one| &one.private_ip_addresses) {
        let text = &address.private_ip_address;
        let ip = ipv4(text).ok_or_else(|| format!("EC2 instance had invalid private address: {id} ({text:?})"))?;
        to.push(Address::new(AddressType::InternalIP, ip.to_string()));
    }
    let public = &instance.public_ip_address;
    if !public.is_empty() {
        let ip = ipv4(public).ok_or_else(|| format!("EC2 instance had invalid public address: {id} ({public})"))?;
        to.push(Address::new(AddressType::ExternalIP, ip.to_string()));
    }
    add_name(to, AddressType::InternalDNS, &instance.private_dns_name);
    add_name(to, AddressType::Hostname, &instance.private_dns_name);
    add_name(to, AddressType::ExternalDNS, &instance.public_dns_name);
    Ok(())
}

fn add_ipv6(to: &mut Vec<Address>, instance: &Instance, interfaces: &[&NetworkInterface]) -> Result<(), String> {
    for address in interfaces.iter().filter_map(|one| one.ipv6_addresses.first()) {
        let text = &address.ipv6_address;
        let ip = text
            .parse::<Ipv6Addr>()
            .map_err(|_| format!("EC2 instance had invalid IPv6 address: {} ({text:?})", instance.instance_id))?;
        to.push(Address::new(AddressType::InternalIP, ip.to_string()));
    }
    Ok(())
}

fn add_name(to: &mut Vec<Address>, kind: AddressType, name: &str) {
    if !name.is_empty() {
        to.push(Address::new(kind, name));
    }
}

/// Parses an IPv4 address. Leading zeros are ignored.
fn ipv4(text: &str) -> Option<IpAddr> {
    let octet = |part: &str| {
        let is_number = !part.is_empty() && part.bytes().all(|digit| digit.is_ascii_digit());
        if is_number { part.parse::<u8>().ok() } else { None }
    };
    let octets: Vec<u8> = text.split('.').map(octet).collect::<Option<_>>()?;
    let octets: [u8; 4] = octets.try_into().ok()?;
    Some(Ipv4Addr::from(octets).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ec2::{Attachment, Ipv6Address, PrivateIpAddress};

    fn interface(index: Option<u32>, status: &str, v4: &[&str], v6: &[&str]) -> NetworkInterface {
        NetworkInterface {
            status: status.to_owned(),
            attachment: index.map(|device_index| Attachment { device_index }),
            private_ip_addresses: v4
                .iter()
                .map(|ip| PrivateIpAddress { private_ip_address: (*ip).to_owned() })
                .collect(),
            ipv6_addresses: v6.iter().map(|ip| Ipv6Address { ipv6_address: (*ip).to_owned() }).collect(),
            ..NetworkInterface::default()
        }
    }

    fn instance(interfaces: Vec<NetworkInterface>, public: bool) -> Instance {
        let text = |text: &str| if public { text.to_owned() } else { String::new() };
        Instance {
            instance_id: "i-1".to_owned(),
            private_dns_name: "ip-10.internal".to_owned(),
            public_dns_name: text("ec2.example"),
            public_ip_address: text("1.2.3.4"),
            network_interfaces: interfaces,
            ..Instance::default()
        }
    }

    fn shown(addresses: &[Address]) -> Vec<String> {
        addresses.iter().map(|one| format!("{}={}", one.kind, one.address)).collect()
    }

    fn addresses(instance: &Instance, families: &[IpFamily]) -> Vec<String> {
        shown(&of_instance(instance, families).unwrap())
    }

    const V4: &[IpFamily] = &[IpFamily::IPv4];

    #[test]
    fn all_kinds_of_addresses_have_a_fixed_order() {
        let all = instance(vec![interface(Some(0), IN_USE, &["192.168.0.1"], &[])], true);
        let expected = [
            "InternalIP=192.168.0.1",
            "ExternalIP=1.2.3.4",
            "InternalDNS=ip-10.internal",
            "Hostname=ip-10.internal",
            "ExternalDNS=ec2.example",
        ];
        assert_eq!(addresses(&all, V4), expected);
        assert_eq!(addresses(&all, &[]), expected);
        let private = instance(vec![interface(Some(0), IN_USE, &["192.168.0.1"], &[])], false);
        assert_eq!(
            addresses(&private, V4),
            ["InternalIP=192.168.0.1", "InternalDNS=ip-10.internal", "Hostname=ip-10.internal"]
        );
    }

    #[test]
    fn interfaces_are_sorted_by_device_index_for_both_families() {
        let two = instance(
            vec![
                interface(None, IN_USE, &["10.0.0.3"], &["fd00::3"]),
                interface(Some(1), IN_USE, &["10.0.0.2"], &["fd00::2", "fd00::22"]),
                interface(Some(0), IN_USE, &["10.0.0.1", "10.0.0.11"], &["fd00::1"]),
                interface(Some(0), "attaching", &["10.0.0.9"], &["fd00::9"]),
                interface(Some(0), "", &["10.0.0.8"], &[]),
            ],
            false,
        );
        let v4 = ["InternalIP=10.0.0.1", "InternalIP=10.0.0.11", "InternalIP=10.0.0.2", "InternalIP=10.0.0.3"];
        let names = ["InternalDNS=ip-10.internal", "Hostname=ip-10.internal"];
        let v6 = ["InternalIP=fd00::1", "InternalIP=fd00::2", "InternalIP=fd00::3"];
        let (v4, v6) = ([v4.as_slice(), &names].concat(), v6.to_vec());
        for (families, expected) in [
            (V4, v4.clone()),
            (&[IpFamily::IPv6], v6.clone()),
            (&[IpFamily::IPv4, IpFamily::IPv6], [v4.clone(), v6.clone()].concat()),
            (&[IpFamily::IPv6, IpFamily::IPv4], [v6, v4].concat()),
        ] {
            assert_eq!(addresses(&two, families), expected, "{families:?}");
        }
    }

    #[test]
    fn invalid_addresses_are_errors() {
        let of = |v4: &str, v6: &str| instance(vec![interface(Some(0), IN_USE, &[v4], &[v6])], false);
        let both = [IpFamily::IPv4, IpFamily::IPv6];
        let error = |one: &Instance| of_instance(one, &both).unwrap_err();
        assert_eq!(error(&of("x", "fd00::1")), "EC2 instance had invalid private address: i-1 (\"x\")");
        assert_eq!(error(&of("10.0.0.1", "x")), "EC2 instance had invalid IPv6 address: i-1 (\"x\")");
        let public = Instance { public_ip_address: "x".to_owned(), ..instance(Vec::new(), false) };
        assert_eq!(error(&public), "EC2 instance had invalid public address: i-1 (x)");
        assert_eq!(addresses(&of("010.0.0.01", "fd00::1"), V4)[0], "InternalIP=10.0.0.1");
    }

    #[test]
    fn a_fargate_node_has_internal_addresses_only() {
        let one = NetworkInterface {
            private_ip_address: "10.0.0.1".to_owned(),
            private_dns_name: "ip-10.internal".to_owned(),
            ..interface(Some(1), IN_USE, &["10.0.0.1"], &["fd00::1", "fd00::2"])
        };
        let both = shown(&of_fargate(&one, &[IpFamily::IPv4, IpFamily::IPv6]));
        assert_eq!(both, ["InternalIP=10.0.0.1", "InternalDNS=ip-10.internal", "InternalIP=fd00::1"]);
        let none = NetworkInterface { ipv6_addresses: Vec::new(), ..one };
        assert_eq!(shown(&of_fargate(&none, &[IpFamily::IPv6])), Vec::<String>::new());
    }
}
