//! Selection of addresses: the tables of the Go manager.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::*;
use crate::soap::ManagedObject;
use crate::vcenter::Power;

/// A case: settings, NICs and the expected addresses.
#[derive(Default, Clone)]
struct Case {
    families: &'static str,
    /// Preferred subnets of the internal and the external address, separated by commas.
    subnets: [&'static str; 2],
    excluded: [&'static str; 2],
    networks: [&'static str; 2],
    /// NICs, each `NETWORK[#DEVICE] ADDRESS …`.
    nics: &'static [&'static str],
    /// Addresses in the metadata, separated by commas.
    metadata: Option<&'static str>,
}

const DUAL: Case = Case {
    families: "ipv4,ipv6",
    subnets: ["10.10.0.0/16,fd00:cccc::/64", "172.15.0.0/16,fd00:dddd::/64"],
    excluded: ["", ""],
    networks: ["", ""],
    nics: &[],
    metadata: None,
};

impl Case {
    fn select(&self) -> Result<Vec<Address>, String> {
        let list = |text: &str| text.split(',').filter(|one| !one.is_empty()).map(|one| one.parse().unwrap()).collect();
        let rule = |side: usize| AddressRule {
            subnets: list(self.subnets[side]),
            excluded: list(self.excluded[side]),
            network: self.networks[side].to_owned(),
        };
        let rules = AddressRules { internal: rule(0), external: rule(1) };
        let families = self.families.split(',').filter(|family| !family.is_empty());
        let families = families.map(|family| if family == "ipv6" { IpFamily::IPv6 } else { IpFamily::IPv4 });
        let families: Vec<_> = families.collect();
        let families = if families.is_empty() { vec![IpFamily::IPv4] } else { families };
        select(&self.machine(), &rules, &families, "node-1")
    }

    fn machine(&self) -> Machine {
        let nic = |text: &&str| {
            let (network, addresses) = text.split_once(' ').unwrap();
            let (network, device) = network.split_once('#').unwrap_or((network, "4000"));
            let addresses = addresses.split(' ').map(str::to_owned).collect();
            Nic { network: network.replace('_', " "), device: device.parse().unwrap(), addresses }
        };
        let metadata = self.metadata.map(|addresses| {
            let quoted: Vec<_> = addresses.split(',').map(|address| format!("'{address}'")).collect();
            STANDARD.encode(format!("network:\n  ethernets:\n    nics:\n      addresses: [{}]\n", quoted.join(",")))
        });
        with_metadata(self.nics.iter().map(nic).collect(), metadata)
    }

    /// Selected addresses without the host name: `I10.0.0.1 E10.0.0.1`, or the error.
    fn selected(&self) -> String {
        match self.select() {
            Err(error) => error,
            Ok(addresses) => {
                assert_eq!(addresses[0], Address::new(AddressType::Hostname, "host-1"));
                let short = |address: &Address| format!("{}{}", &address.kind.to_string()[..1], address.address);
                addresses[1..].iter().map(short).collect::<Vec<_>>().join(" ")
            }
        }
    }
}

fn with_metadata(nics: Vec<Nic>, metadata: Option<String>) -> Machine {
    Machine {
        object: ManagedObject::new("VirtualMachine", "vm-1"),
        name: "vm".to_owned(),
        uuid: String::new(),
        host_name: "host-1".to_owned(),
        os_id: String::new(),
        cpus: 1,
        memory_mb: 1024,
        is_template: false,
        power: Power::On,
        connection: "connected".to_owned(),
        host: None,
        pool: None,
        nics,
        metadata,
        metadata_encoding: "base64".to_owned(),
        lacks_settings: false,
    }
}

fn check(rows: &[(&str, Case, &str)]) {
    for (name, case, expected) in rows {
        assert_eq!(case.selected(), *expected, "{name}");
    }
}

#[test]
fn vs_75_77_and_84_the_first_address_is_used_without_rules() {
    check(&[
        (
            "default",
            Case { nics: &["netA 127.0.0.6 10.10.1.22 10.10.1.23", "netB 172.15.108.11"], ..Case::default() },
            "I10.10.1.22 E10.10.1.22",
        ),
        (
            "unparsable",
            Case { nics: &["netA blarg 127.0.0.6 10.10.1.22 10.10.1.23"], ..Case::default() },
            "I10.10.1.22 E10.10.1.22",
        ),
        (
            "link-local addresses",
            Case {
                families: "ipv6",
                nics: &["netA fe80::1 169.254.1.1 ff02::1 224.0.0.5 0.0.0.0 :: fd01::1"],
                ..Case::default()
            },
            "Ifd01::1 Efd01::1",
        ),
        (
            "only unreachable",
            Case { nics: &["netA 127.0.0.1 fe80::1"], ..Case::default() },
            "unable to find suitable IP address for node after filtering out localhost IPs",
        ),
        (
            "no family",
            Case { nics: &["netA fd01::1"], ..Case::default() },
            "unable to find suitable IP address for node node-1 with IP family ipv4",
        ),
    ]);
}

const SUBNETS: [&str; 2] = ["10.10.0.0/16", "172.15.0.0/16"];

#[test]
fn vs_78_and_79_subnets_select_in_their_order() {
    const NICS: &[&str] = &["net 127.0.0.6 20.30.40.50 10.10.1.22 10.10.1.23 172.15.108.10 172.15.108.11"];
    check(&[
        ("both", Case { subnets: SUBNETS, nics: NICS, ..Case::default() }, "I10.10.1.22 E172.15.108.10"),
        (
            "the first subnet counts, not the first address",
            Case { subnets: ["172.15.0.0/16,10.10.0.0/16", "20.0.0.0/8"], nics: NICS, ..Case::default() },
            "I172.15.108.10 E20.30.40.50",
        ),
        (
            "external without hit",
            Case { subnets: ["10.10.0.0/16", "9.0.0.0/8"], nics: NICS, ..Case::default() },
            "I10.10.1.22",
        ),
        ("external unset", Case { subnets: ["10.10.0.0/16", ""], nics: NICS, ..Case::default() }, "I10.10.1.22"),
        ("internal unset", Case { subnets: ["", "172.15.0.0/16"], nics: NICS, ..Case::default() }, "E172.15.108.10"),
        (
            "neither has a hit",
            Case { subnets: ["9.0.0.0/8", "9.0.0.0/8"], nics: NICS, ..Case::default() },
            "I20.30.40.50 E20.30.40.50",
        ),
    ]);
}

#[test]
fn vs_76_80_and_81_networks_select_if_no_subnet_does() {
    const NETWORKS: [&str; 2] = ["Internal Net", "external net"];
    const NICS: &[&str] = &["internal_net 10.10.1.22 10.10.1.23", "external_net 172.15.108.11"];
    let named = |networks, subnets, nics| Case { networks, subnets, nics, ..Case::default() };
    check(&[
        ("by name, in any case", named(NETWORKS, ["", ""], NICS), "I10.10.1.22 E172.15.108.11"),
        (
            "neither network",
            named(NETWORKS, ["", ""], &["net_a 10.10.1.22", "net_b 172.15.108.11"]),
            "unable to find suitable IP address for node: it is in the networks [\"net a\", \"net b\"], and neither of \
             [\"Internal Net\", \"external net\"] is one of them",
        ),
        ("only the external name", named(["", "external net"], ["", ""], NICS), "E172.15.108.11"),
        ("subnets without hit", named(NETWORKS, ["9.0.0.0/8", "9.0.0.0/8"], NICS), "I10.10.1.22 E172.15.108.11"),
        (
            "subnets before names",
            named(NETWORKS, ["172.15.0.0/16", "10.10.1.23/32"], NICS),
            "I172.15.108.11 E10.10.1.23",
        ),
        (
            "a device that is no NIC",
            named(
                NETWORKS,
                SUBNETS,
                &["bridge#-1 10.10.9.9 172.15.9.9", "internal_net 192.168.1.1", "external_net 192.168.2.1"],
            ),
            "I192.168.1.1 E192.168.2.1",
        ),
        ("one name is enough", named(NETWORKS, ["", ""], &["internal_net 10.1.1.1", "other 10.1.1.2"]), "I10.1.1.1"),
    ]);
}

#[test]
fn vs_82_and_84_both_families_are_selected_on_their_own() {
    let dual = |nics| Case { nics, ..DUAL };
    const NICS: &[&str] = &["net 10.10.1.22 fd00:dddd::11", "net 172.15.108.11 fd00:cccc::22"];
    check(&[
        ("subnets", dual(NICS), "I10.10.1.22 E172.15.108.11 Ifd00:cccc::22 Efd00:dddd::11"),
        (
            "no IPv6 subnet matches",
            Case { subnets: ["10.10.0.0/16,fd01::/64", "172.15.0.0/16,fd02::/64"], nics: NICS, ..DUAL },
            "I10.10.1.22 E172.15.108.11 Ifd00:dddd::11 Efd00:dddd::11",
        ),
        (
            "only the external IPv6 subnet matches",
            Case { subnets: ["10.10.0.0/16,fd01::/64", "172.15.0.0/16,fd00:dddd::/64"], nics: NICS, ..DUAL },
            "I10.10.1.22 E172.15.108.11 Efd00:dddd::11",
        ),
        (
            "IPv6 first",
            Case {
                families: "ipv6,ipv4",
                subnets: ["", ""],
                nics: &["net_a 172.15.108.11 fd00:cccc::1", "net_b fd00:cccc::2"],
                ..DUAL
            },
            "Ifd00:cccc::1 Efd00:cccc::1 I172.15.108.11 E172.15.108.11",
        ),
        (
            "IPv6 first, by names",
            Case {
                families: "ipv6,ipv4",
                subnets: ["", ""],
                networks: ["internal net", "external net"],
                nics: &["internal_net 172.15.108.11 fd00:cccc::1", "external_net fd00:cccc::2 172.15.108.12"],
                ..DUAL
            },
            "Ifd00:cccc::1 Efd00:cccc::2 I172.15.108.11 E172.15.108.12",
        ),
        (
            "only IPv6",
            dual(&["net fd00:cccc::1"]),
            "unable to find suitable IP address for node node-1 with IP family ipv4",
        ),
    ]);
}

#[test]
fn vs_83_excluded_subnets_are_never_used_for_their_side() {
    let excluded = |excluded, nics| Case { subnets: ["", ""], excluded, nics, ..DUAL };
    check(&[
        (
            "both sides",
            excluded(
                [
                    "172.15.108.11/32,fd00:cccc::1/128,fd00:cccc::2/128",
                    "172.15.108.11/32,172.15.108.12/32,fd00:cccc::1/128",
                ],
                &["net 172.15.108.11 172.15.108.12 172.15.108.13 fd00:cccc::1 fd00:cccc::2 fd00:cccc::3"],
            ),
            "I172.15.108.12 E172.15.108.13 Ifd00:cccc::3 Efd00:cccc::2",
        ),
        (
            "with names",
            Case {
                networks: ["internal net", "external net"],
                ..excluded(
                    [
                        "172.15.108.11/32,fd00:cccc::1/128,fd00:cccc::2/128",
                        "173.15.108.11/32,173.15.108.12/32,fd01:cccc::1/128",
                    ],
                    &[
                        "internal_net 172.15.108.11 172.15.108.12 172.15.108.13 fd00:cccc::1 fd00:cccc::2 fd00:cccc::3",
                        "external_net 173.15.108.11 173.15.108.12 173.15.108.13 fd01:cccc::1 fd01:cccc::2 fd01:cccc::3",
                    ],
                )
            },
            "I172.15.108.12 E173.15.108.13 Ifd00:cccc::3 Efd01:cccc::2",
        ),
        (
            "all of one family",
            excluded(["172.0.0.0/8", "172.0.0.0/8"], &["net 172.15.108.11 fd00:cccc::1"]),
            "unable to find suitable IP address for node node-1 with IP family ipv4",
        ),
        (
            "all of one side",
            Case { families: "ipv4", ..excluded(["", "172.0.0.0/8"], &["net 172.15.108.11"]) },
            "I172.15.108.11",
        ),
    ]);
}

#[test]
fn vs_85_and_86_addresses_in_the_metadata_come_first() {
    let case = |metadata, nics| Case { metadata: Some(metadata), nics, ..Case::default() };
    const TWO: &[&str] = &["net 192.168.1.10 192.168.1.12"];
    const THREE: &[&str] = &["net 192.168.1.10 192.168.1.12 10.10.10.10"];
    check(&[
        ("the mask is not checked", case("192.168.1.12/64", TWO), "I192.168.1.12 E192.168.1.12"),
        (
            "excluded",
            Case { excluded: ["192.168.0.0/16", "192.168.0.0/16"], ..case("192.168.1.12,10.10.10.10", THREE) },
            "I10.10.10.10 E10.10.10.10",
        ),
        ("order of the metadata", case("192.168.1.12,192.168.1.10", TWO), "I192.168.1.12 E192.168.1.12"),
        (
            "subnets count more",
            Case { subnets: ["192.168.0.0/16", "192.168.0.0/16"], ..case("10.10.10.10,192.168.1.12", THREE) },
            "I192.168.1.12 E192.168.1.12",
        ),
        (
            "names count more",
            Case {
                networks: ["VM Network", "VM Network"],
                ..case(
                    "192.168.1.8,192.168.1.12,10.10.10.10",
                    &["internal_net 192.168.1.8", "VM_Network 192.168.1.10 192.168.1.12 10.10.10.10"],
                )
            },
            "I192.168.1.12 E192.168.1.12",
        ),
        ("not on a NIC", case("10.9.9.9", &["net 192.168.1.8"]), "I192.168.1.8 E192.168.1.8"),
        (
            "another form of the same address",
            Case {
                families: "ipv6",
                ..case("fd01:1:2:2919:abba:0000:0000:401/128", &["net fd00::1 fd01:1:2:2919:abba::401"])
            },
            "Ifd01:1:2:2919:abba::401 Efd01:1:2:2919:abba::401",
        ),
    ]);
}

#[test]
fn vs_86_and_87_metadata_without_addresses_changes_nothing_and_invalid_metadata_is_an_error() {
    let nics = || {
        vec![Nic { addresses: ["fe80::1", "fd01:1234::1", "fd01:cccc::1"].map(str::to_owned).into(), ..Nic::default() }]
    };
    let selected = |yaml: &str, encoding: &str| {
        let mut machine = with_metadata(nics(), Some(STANDARD.encode(yaml)));
        machine.metadata_encoding = encoding.to_owned();
        let addresses = select(&machine, &AddressRules::default(), &[IpFamily::IPv6], "node-1")?;
        Ok(addresses.into_iter().map(|address| address.address).collect::<Vec<_>>())
    };
    let first: Result<_, String> = Ok(["host-1", "fd01:1234::1", "fd01:1234::1"].map(str::to_owned).to_vec());
    let dhcp = "instance-id: x\nnetwork:\n  version: 2\n  ethernets:\n    nics:\n      match: {name: ens*}\n      dhcp6: true\n";
    assert_eq!(selected(dhcp, "base64"), first);
    assert_eq!(selected("not: [valid", "gzip+base64"), first, "another encoding is ignored");
    assert!(selected("some text", "base64").unwrap_err().contains("guestinfo.metadata is invalid: cannot unmarshal"));
}
