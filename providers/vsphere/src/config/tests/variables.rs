//! Environment variables.

use bowline_core::IpFamily;

use super::{YAML, only, read_with, secret, warnings};
use crate::config::{Config, CredentialSource, VcenterConfig};

fn named<'a>(config: &'a Config, name: &str) -> &'a VcenterConfig {
    config.vcenters.iter().find(|vcenter| vcenter.name == name).unwrap()
}

/// VS-22, VS-24
#[test]
fn variables_add_and_replace_vcenters() {
    let thumbprint = ["AB"; 20].join(":");
    let variables = [
        ("VSPHERE_VCENTER_1", "vc-1"),
        ("VCENTER_1_SERVER", "192.0.2.1"),
        ("VCENTER_1_USERNAME", "admin"),
        ("VCENTER_1_PASSWORD", "a=b=c"),
        ("VCENTER_1_PORT", "8443"),
        ("VCENTER_1_DATACENTERS", "a, b"),
        ("VCENTER_1_CAFILE", "/a:/b"),
        ("VCENTER_1_THUMBPRINT", &thumbprint),
        ("VCENTER_1_INSECURE", "true"),
        ("VCENTER_1_ROUNDTRIP", "5"),
        ("VCENTER_1_IP_FAMILY", "IPv6"),
        ("VCENTER_1_SECRET_NAME", "s"),
        ("VCENTER_1_SECRET_NAMESPACE", "n"),
        ("VSPHERE_VCENTER_dr", "other=dc"),
        ("VCENTER_dr_SERVER", "other"),
    ];
    let config = read_with(YAML, &variables).unwrap();
    assert_eq!(config.vcenters.len(), 2);
    let one = named(&config, "vc-1");
    assert_eq!((&*one.server, &*one.user, one.password.reveal(), one.port), ("192.0.2.1", "admin", "a=b=c", 8443));
    assert_eq!((one.datacenters.len(), one.ca_files.len(), one.insecure, one.round_trips), (2, 2, true, 5));
    assert_eq!((one.ip_families.as_slice(), &one.source), (&[IpFamily::IPv6][..], &secret("n/s")));
    assert_eq!(one.thumbprint, thumbprint);
    let other = named(&config, "other=dc");
    assert_eq!((&*other.user, other.password.reveal(), other.port, other.round_trips), ("root", "swordfish", 443, 3));
    assert_eq!((other.insecure, other.ip_families.as_slice()), (false, &[IpFamily::IPv4][..]));
    let global = YAML.replace("user: root", "user: root\n  ipFamily: [ipv6]");
    let config = read_with(&global, &[("VSPHERE_VCENTER_1", "one")]).unwrap();
    assert_eq!(named(&config, "one").ip_families, [IpFamily::IPv6]);
}

/// VS-21, VS-23
#[test]
fn variables_of_the_connection_are_defaults_of_vcenters_that_variables_define() {
    let thumbprint = ["AB"; 32].join(":");
    let variables = [
        ("VSPHERE_THUMBPRINT", thumbprint.as_str()),
        ("VSPHERE_VCENTER", "ignored"),
        ("VSPHERE_VCENTER_PORT", "9443"),
        ("VSPHERE_USER", "admin"),
        ("VSPHERE_PASSWORD", "p"),
        ("VSPHERE_DATACENTER", "dc"),
        ("VSPHERE_CAFILE", "/ca"),
        ("VSPHERE_INSECURE", "true"),
        ("VSPHERE_ROUNDTRIP_COUNT", "9"),
        ("VSPHERE_VCENTER_2", "two"),
    ];
    let config = read_with(YAML, &variables).unwrap();
    let names: Vec<_> = config.vcenters.iter().map(|vcenter| vcenter.name.as_str()).collect();
    assert_eq!(names, ["two", "vc-1"], "the variable of the port defines no vCenter");
    let two = named(&config, "two");
    assert_eq!((&*two.server, &*two.user, two.port, two.insecure, two.round_trips), ("two", "admin", 9443, true, 9));
    assert_eq!((two.datacenters.as_slice(), two.ca_files.len()), (&["dc".to_owned()][..], 1));
    assert_eq!((two.password.reveal(), &two.thumbprint), ("p", &thumbprint));
    let file = named(&config, "vc-1");
    assert_eq!((&*file.user, file.port, file.insecure, file.round_trips), ("root", 443, false, 3));
    assert_eq!((file.password.reveal(), &*file.thumbprint, file.ca_files.len()), ("swordfish", "", 0));
    assert!(file.datacenters.is_empty());
    assert!(warnings(&config).contains("VSPHERE_VCENTER: ignored; set server in an entry"), "{}", warnings(&config));
}

/// VS-25
#[test]
fn a_bad_number_or_switch_is_ignored_with_a_warning() {
    let names =
        ["VSPHERE_ROUNDTRIP_COUNT", "VSPHERE_INSECURE", "VCENTER_2_PORT", "VCENTER_2_ROUNDTRIP", "VCENTER_2_INSECURE"];
    let mut variables: Vec<_> = names.iter().map(|name| (*name, "maybe")).collect();
    variables.push(("VSPHERE_VCENTER_2", "two"));
    let config = read_with(YAML, &variables).unwrap();
    let two = named(&config, "two");
    assert_eq!((two.port, two.insecure, two.round_trips), (443, false, 3));
    for name in names {
        assert!(warnings(&config).contains(&format!("{name}: Failed to parse {name}: \"maybe\"")), "{name}");
    }
}

/// VS-20
#[test]
fn variables_change_the_global_source_of_credentials() {
    let variables = [("VSPHERE_SECRET_NAME", "s"), ("VSPHERE_SECRET_NAMESPACE", "n")];
    let config = read_with("vcenter: {a: {server: a}}\n", &variables).unwrap();
    assert_eq!(only(&config).source, secret("n/s"));
    let own = [("VSPHERE_VCENTER_1", "one"), ("VCENTER_1_SECRET_NAME", "s"), ("VCENTER_1_SECRET_NAMESPACE", "n")];
    assert_eq!(only(&read_with("labels: {}\n", &own).unwrap()).source, secret("n/s"));
    let half = read_with("labels: {}\n", &own[..2]).unwrap_err();
    assert!(half.contains("VCENTER_1_USERNAME: Username is missing"), "{half}");
    let directory = std::env::temp_dir();
    let text = "global: {secretName: s, secretNamespace: n}\nvcenter: {a: {server: a}}\n";
    let config = read_with(text, &[("VSPHERE_SECRETS_DIRECTORY", directory.to_str().unwrap())]).unwrap();
    assert_eq!(only(&config).source, CredentialSource::Directory);
}

#[test]
fn vcenters_of_variables_are_validated() {
    let variables = [
        ("VSPHERE_VCENTER_1", "one"),
        ("VCENTER_1_USERNAME", "u"),
        ("VCENTER_1_SERVER", "https://one"),
        ("VCENTER_1_IP_FAMILY", "ipv4,ipv6"),
        ("VSPHERE_VCENTER_2", "two"),
        ("VCENTER_2_IP_FAMILY", "x"),
    ];
    let error = read_with("labels: {}\n", &variables).unwrap_err();
    let expected = [
        "VCENTER_1_SERVER: \"https://one\" is not a host name",
        "VCENTER_1_PASSWORD: Password is missing",
        "VCENTER_1_IP_FAMILY: mulitple IP families specified for virtual center \"one\"",
        "VCENTER_2_USERNAME: Username is missing",
        "VCENTER_2_IP_FAMILY: Invalid IP Family type",
    ];
    for expected in expected {
        assert!(error.contains(expected), "{expected}: {error}");
    }
    assert!(!error.contains("No Virtual Center"), "{error}");
}

/// VS-67
#[test]
fn switches_are_on_with_any_value() {
    for value in ["", "false", "1"] {
        assert!(read_with(YAML, &[("SKIP_NODE_DELETION", value)]).unwrap().skip_node_deletion);
    }
    assert!(!read_with(YAML, &[]).unwrap().skip_node_deletion);
}

/// VS-20
#[test]
fn variables_replace_the_node_section() {
    let text = format!("{YAML}nodes: {{internalNetworkSubnetCidr: 10.0.0.0/8, externalVmNetworkName: a}}\n");
    let variables = [
        ("VSPHERE_NODES_INTERNAL_NETWORK_SUBNET_CIDR", "192.0.2.0/24"),
        ("VSPHERE_NODES_EXTERNAL_NETWORK_SUBNET_CIDR", "bad"),
        ("VSPHERE_NODES_INTERNAL_VM_NETWORK_NAME", "i"),
        ("VSPHERE_NODES_EXTERNAL_VM_NETWORK_NAME", "e"),
    ];
    let error = read_with(&text, &variables).unwrap_err();
    assert!(error.starts_with("VSPHERE_NODES_EXTERNAL_NETWORK_SUBNET_CIDR: invalid CIDR address: bad"), "{error}");
    let rules = read_with(&text, &[variables[0], variables[2], variables[3]]).unwrap().addresses;
    assert_eq!(rules.internal.subnets[0].to_string(), "192.0.2.0/24");
    assert_eq!((&*rules.internal.network, &*rules.external.network), ("i", "e"));
}
