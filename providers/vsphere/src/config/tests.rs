//! Tests of the configuration: files of both formats, with the environment.

mod features;
mod variables;
mod vcenters;

use std::path::Path;

use bowline_cloud::{BuildInputs, SecretRef};
use bowline_config::{ConfigFile, Environment};
use bowline_core::ClusterName;

use super::{Config, CredentialSource, VcenterConfig};

/// Directory that does not exist, in place of the default one.
const NO_DIRECTORY: &str = "/nonexistent/bowline";

/// Reads a file with these variables.
fn read_with(text: &str, variables: &[(&str, &str)]) -> Result<Config, String> {
    read_at(text, variables, Path::new(NO_DIRECTORY))
}

fn read_at(text: &str, variables: &[(&str, &str)], default_directory: &Path) -> Result<Config, String> {
    let file = ConfigFile::from_text("vsphere.conf", text);
    let environment: Environment = variables.iter().copied().collect();
    super::read::read(&file, &environment, default_directory).map_err(|errors| errors.to_string())
}

fn read(text: &str) -> Result<Config, String> {
    read_with(text, &[])
}

/// Returns the warnings, one per line.
fn warnings(config: &Config) -> String {
    config.warnings.iter().map(|warning| format!("{warning}\n")).collect()
}

/// Returns the only vCenter.
#[track_caller]
fn only(config: &Config) -> &VcenterConfig {
    let [vcenter] = &config.vcenters[..] else { panic!("not one vCenter: {config:?}") };
    vcenter
}

fn secret(name: &str) -> CredentialSource {
    CredentialSource::Secret(SecretRef::parse(name).unwrap())
}

const YAML: &str = "
global:
  user: root
  password: swordfish
vcenter:
  vc-1:
    server: vc.example.com
";

const INI: &str = "
[Global]
user = root
password = swordfish
[VirtualCenter \"vc.example.com\"]
";

/// VS-3
#[test]
fn a_file_is_required() {
    let (inputs, cluster) = (BuildInputs::default(), ClusterName::from("kubernetes"));
    let empty = ConfigFile::from_text("vsphere.conf", " \n");
    for file in [None, Some(&empty)] {
        let errors = Config::read(&inputs.context(file, &cluster)).unwrap_err().to_string();
        assert!(errors.contains("no vSphere cloud provider config file given"), "{errors}");
    }
}

/// VS-1
#[test]
fn the_error_of_the_format_of_the_file_is_reported() {
    let yaml = read("global:\n  port: \"443\"\nvcenter:\n  a:\n    server: a\n").unwrap_err();
    assert!(yaml.starts_with("vsphere.conf:2: global.port: expected a whole number"), "{yaml}");
    let ini = read("[Global]\nport = many\n[VirtualCenter \"a\"]\nuser = \"x\nca_file = y\n").unwrap_err();
    let lines: Vec<_> = ini.lines().collect();
    assert!(lines[0].starts_with("vsphere.conf:4: [VirtualCenter \"a\"] user: the quote is not closed"), "{ini}");
    assert!(lines[1].starts_with("vsphere.conf:5: [VirtualCenter \"a\"] ca_file: a key must not contain '_'"), "{ini}");
    assert!(lines[2].starts_with("vsphere.conf:2: [Global] port: "), "{ini}");
}

/// VS-10
#[test]
fn values_follow_the_syntax_of_the_format() {
    let cases = [
        ("global: {insecureFlag: yes}", true),
        ("global: {insecureFlag: \"true\"}", false),
        ("global: {datacenters: dc1}", false),
        ("global: {datacenters: [dc1]}", true),
        ("global: {password: 4711}", true),
        ("global: {port: 443}", true),
        ("global: {port: \"443\"}", false),
        ("[Global]\ninsecure-flag = \"ON\"", true),
        ("[Global]\ninsecure-flag", true),
        ("[Global]\ninsecure-flag =", false),
        ("[GLOBAL]\nsoap-roundtrip-count = \"\"", true),
        ("[global]\nSOAP-Roundtrip-Count = 0x10", true),
        ("[global]\nsoap-roundtrip-count = some", false),
        ("[global]\nport = \"443\"", true),
        ("[global]\npassword = a\\b", false),
        ("[global]\npassword = \"a\\\\b\\\"#\" ; comment", true),
    ];
    for (text, is_valid) in cases {
        let entry = if text.starts_with('[') { INI } else { "\nvcenter: {a: {server: a, user: u, password: p}}\n" };
        let read = read(&format!("{text}{entry}"));
        assert_eq!(read.is_ok(), is_valid, "{text}: {read:?}");
    }
    let unset = read(&INI.replace("[Global]", "[Global]\nsoap-roundtrip-count = \"\"")).unwrap();
    assert_eq!(only(&unset).round_trips, 3);
    let error = read(&YAML.replace("user: root", "user: root\n  datacenters: dc1")).unwrap_err();
    assert!(error.contains("vsphere.conf:4: global.datacenters: "), "{error}");
}

/// VS-11
#[test]
fn a_comment_cuts_an_unquoted_password_and_escapes_count_in_quotes() {
    for (written, password) in
        [("a#b", "a"), ("a;b", "a"), ("\"a#b;c\"", "a#b;c"), (r#""a\"b\\c\nd\te""#, "a\"b\\c\nd\te")]
    {
        let config = read(&INI.replace("swordfish", written)).unwrap();
        assert_eq!(only(&config).password.reveal(), password, "{written}");
    }
}

/// VS-2
#[test]
fn names_of_sections_and_keys_are_case_sensitive_in_yaml_only() {
    let error = read("Global: {user: a}\nVcenter: {a: {server: a}}\n").unwrap_err();
    assert_eq!(error, "vsphere.conf: vcenter: No Virtual Center hosts defined; add vcenter.NAME with a server");
    assert!(read(&INI.replace("Global", "gLOBAL").replace("VirtualCenter", "virtualcenter")).is_ok());
    let config = read(&format!("{INI}[virtualcenter \"VC.example.com\"]\n")).unwrap();
    let names: Vec<_> = config.vcenters.iter().map(|vcenter| vcenter.name.as_str()).collect();
    assert_eq!(names, ["VC.example.com", "vc.example.com"], "names in quotes keep their case");
}

/// VS-2, VS-9
#[test]
fn ini_is_deprecated_and_unknown_keys_are_ignored_with_a_warning() {
    let config =
        read(&(INI.replace("[Global]", "[Global]\nservice-account = x\ninsecure-flg = true") + "[Else]\n")).unwrap();
    let shown = warnings(&config);
    let expected = [
        "vsphere.conf:4: [Global] insecure-flg: unknown key, ignored; did you mean insecure-flag?",
        "vsphere.conf: CPI INI-based cloud-config is deprecated and will be removed in 2.0.",
    ];
    for expected in expected {
        assert!(shown.contains(expected), "{shown}");
    }
    assert!(shown.contains("[Else]: unknown section, ignored") && !shown.contains("service-account"), "{shown}");
    let shown = warnings(&read(&format!("{YAML}    datacentres: [a]\nglobals: 1\n")).unwrap());
    assert!(shown.contains("vsphere.conf:8: vcenter.vc-1.datacentres: unknown key, ignored; did you mean"), "{shown}");
    assert!(shown.contains("vsphere.conf:9: globals: unknown key, ignored; did you mean global?"), "{shown}");
}

/// VS-9
#[test]
fn yaml_accepts_the_names_of_ini() {
    let config =
        read(&YAML.replace("user: root", "user: root\n  ca-file: /a.pem:/b.pem\n  insecure-flag: true")).unwrap();
    let vcenter = only(&config);
    assert!(vcenter.insecure && vcenter.ca_files == [Path::new("/a.pem"), Path::new("/b.pem")], "{vcenter:?}");
    assert_eq!(config.files(), [Path::new("/a.pem"), Path::new("/b.pem")]);
    assert_eq!(warnings(&config), "");
}

/// VS-20, VS-88
#[test]
fn zones_need_both_categories() {
    let zones = |labels: &str| read(&format!("{YAML}labels: {labels}\n")).unwrap();
    let both = zones("{zone: k8s-zone, region: k8s-region}").zone_categories.unwrap();
    assert_eq!((both.zone.as_str(), both.region.as_str()), ("k8s-zone", "k8s-region"));
    let one = zones("{zone: k8s-zone}");
    assert!(one.zone_categories.is_none());
    assert!(warnings(&one).contains("labels.zone: ignored without region; Nodes get no zone labels"));
    let variables = [("VSPHERE_LABEL_REGION", "r"), ("VSPHERE_LABEL_ZONE", "z")];
    let replaced = read_with(&format!("{YAML}labels: {{zone: a}}\n"), &variables).unwrap().zone_categories.unwrap();
    assert_eq!((replaced.zone.as_str(), replaced.region.as_str()), ("z", "r"));
}

/// VS-19
#[test]
fn subnets_are_trimmed_and_checked_at_start() {
    let nodes = "nodes:
  internalNetworkSubnetCidr: 192.0.2.7/24, fd00::/64,
  excludeExternalNetworkSubnetCidr: 10.0.0.0/8
  externalVmNetworkName: VM Network
";
    let addresses = read(&format!("{YAML}{nodes}")).unwrap().addresses;
    let shown = |subnets: &[ipnet::IpNet]| subnets.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(shown(&addresses.internal.subnets), ["192.0.2.0/24", "fd00::/64"]);
    assert_eq!(shown(&addresses.external.excluded), ["10.0.0.0/8"]);
    assert_eq!((&*addresses.external.network, &*addresses.internal.network), ("VM Network", ""));
    let error = read(&format!("{INI}[Nodes]\ninternal-network-subnet-cidr = 10.0.0.1, 10.0.0.0/33\n")).unwrap_err();
    let place = "vsphere.conf:7: [Nodes] internal-network-subnet-cidr: invalid CIDR address: ";
    assert_eq!(error.lines().filter(|line| line.starts_with(place)).count(), 2, "{error}");
}

#[test]
fn the_template_is_valid_and_the_reference_has_both_names() {
    let config = read(&super::template()).unwrap();
    assert_eq!(
        (only(&config).source.clone(), warnings(&config)),
        (secret("kube-system/vsphere-cloud-secret"), String::new())
    );
    // A key that is commented out keeps its indentation behind the mark.
    let uncommented = super::template().replace("\n#  ", "\n  ");
    let config = read(&uncommented).unwrap();
    assert_eq!(only(&config).datacenters, ["DATACENTER"]);
    assert!(config.zone_categories.is_some());
    let page = super::reference();
    for name in ["| `caFile`, `ca-file` |", "`VSPHERE_NODES_INTERNAL_VM_NETWORK_NAME`", "`[VirtualCenter \"name\"]`"] {
        assert!(page.contains(name), "{name}: {page}");
    }
    assert_eq!(super::environment().len(), 2);
}

#[test]
fn no_output_contains_a_secret() {
    let config = read(YAML).unwrap();
    assert!(!format!("{config:?}").contains("swordfish"));
    for text in
        ["global: {password: [swordfish]}", "global: {password: {a: swordfish}}", "[Global]\npassword = \"swordfish"]
    {
        let error = read(text).unwrap_err();
        assert!(!error.contains("swordfish"), "{error}");
    }
}
