//! Tests of the configuration.

use bowline_cloud::BuildInputs;
use bowline_config::{ConfigFile, Environment};

use super::read::region_of_zone;
use super::*;

fn read_with(variables: &[(&str, &str)], file: &str) -> Result<Config, String> {
    let environment = Environment::from_iter(variables.iter().copied());
    let inputs = BuildInputs { environment, ..BuildInputs::default() };
    let (file, cluster) = (ConfigFile::from_text("cloud.conf", file), "kubernetes".into());
    Config::read(&inputs.context(Some(&file), &cluster)).map_err(|errors| errors.to_string())
}

fn read(file: &str) -> Result<Config, String> {
    read_with(&[], file)
}

#[test]
fn the_region_is_that_of_the_zone() {
    for (zone, region) in [
        ("us-east-1a", Some("us-east-1")),
        ("us-west-2-lax-1a", Some("us-west-2")),
        ("us-gov-east-1a", Some("us-gov-east-1")),
        ("eu-central-1", Some("eu-central-1")),
        ("abc", None),
        ("1-east", None),
        ("", None),
    ] {
        assert_eq!(region_of_zone(zone), region, "{zone}");
    }
    assert_eq!(read("[Global]\nZone = us-east-1a\nRegion = eu-west-1\n").unwrap().region, "us-east-1");
    assert_eq!(read("[Global]\nRegion = eu-west-1\n").unwrap().region, "eu-west-1");
    let error = read("[Global]\nZone = nowhere\n").unwrap_err();
    assert!(error.starts_with("cloud.conf:2: [Global] Zone: invalid AZ: nowhere"), "{error}");
}

#[test]
fn an_empty_file_no_file_and_the_default_are_the_same() {
    let cluster = "kubernetes".into();
    let without = Config::read(&BuildInputs::default().context(None, &cluster)).unwrap();
    for config in [read("").unwrap(), Config::default(), without] {
        assert_eq!((config.health_probe_port, config.health_probe_path.as_str()), (10256, "/healthz"));
        assert_eq!((config.health_probe_mode.as_str(), config.region.as_str()), ("ServiceNodePort", ""));
        assert_eq!((config.node_ip_families, config.disable_security_group_ingress), (vec![IpFamily::IPv4], false));
        let types = config.topology_types.unwrap();
        let matches = ["p5.48xlarge", "trn1.32xlarge", "hpc7g.16xlarge"].map(|name| types.is_match(name));
        assert_eq!((matches, types.is_match("m5.large")), ([true; 3], false));
        assert!(config.warnings.is_empty() && config.overrides.is_empty());
    }
}

#[test]
fn names_ignore_case_and_a_bare_key_is_true() {
    for text in [
        "[GLOBAL]\ndisablesecuritygroupingress\n",
        "[global]\nDISABLESECURITYGROUPINGRESS = YES\n",
        "[Global]\nDisableSecurityGroupIngress = on\n",
        "[Global]\nDisableSecurityGroupIngress = 1\n",
    ] {
        assert!(read(text).unwrap().disable_security_group_ingress, "{text}");
    }
    assert!(!read("[Global]\nDisableSecurityGroupIngress = Off\n").unwrap().disable_security_group_ingress);
}

#[test]
fn unknown_keys_are_ignored_with_a_warning_and_old_ones_without() {
    let config = read("[Global]\nDisableStrictZoneCheck = true\nRegoin = a\n[Other]\nx = 1\n").unwrap();
    let warnings: Vec<_> = config.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "cloud.conf:3: [Global] Regoin: unknown key, ignored; did you mean Region?",
            "cloud.conf:4: [Other]: unknown section, ignored"
        ]
    );
}

#[test]
fn address_families_keep_their_order() {
    let families = |text: &str| read(text).map(|config| (config.node_ip_families, config.warnings.len())).unwrap();
    let both = vec![IpFamily::IPv6, IpFamily::IPv4];
    assert_eq!(families("[Global]\nNodeIPFamilies = ipv6\nNodeIPFamilies = ipv4\n"), (both, 0));
    assert_eq!(families("[Global]\nNodeIPFamilies = ipv6\nNodeIPFamilies = v4\n"), (vec![IpFamily::IPv6], 1));
    assert_eq!(families("[Global]\nNodeIPFamilies = IPv6\n"), (vec![IpFamily::IPv4], 1));
}

#[test]
fn values_of_a_wrong_type_are_errors() {
    for (line, expected) in [
        ("DisableSecurityGroupIngress = maybe", "\"maybe\" is neither true nor false"),
        ("ClusterServiceSharedLoadBalancerHealthProbePort = http", "is not a whole number"),
        ("ClusterServiceSharedLoadBalancerHealthProbePort = 70000", "70000 is not a port"),
        ("SupportedTopologyInstanceTypePattern = \"(p\"", "is not a regular expression: unclosed group"),
        ("KubernetesClusterTag = a\nKubernetesClusterID = b", "clusterID tags did not match: \"b\" vs \"a\""),
        ("Region", "has no value"),
        ("RoleARN = admin", "unable to create sts v2 client: arn: invalid prefix"),
        ("RoleARN = arn:aws:iam::1", "unable to create sts v2 client: arn: not enough sections"),
    ] {
        let error = read(&format!("[Global]\n{line}\n")).unwrap_err();
        assert!(error.contains(expected) && error.starts_with("cloud.conf:"), "{line}: {error}");
    }
}

#[test]
fn a_manager_outside_the_cluster_has_network_and_cluster_in_its_file() {
    for (lines, expected) in [
        (&["VPC = v", "SubnetID = s", "KubernetesClusterID = c"][..], true),
        (&["VPC = v", "RoleARN = arn:aws:iam::1:role/r", "KubernetesClusterTag = c"], true),
        (&["SubnetID = s", "KubernetesClusterID = c"], false),
        (&["VPC = v", "KubernetesClusterID = c"], false),
        (&["VPC = v", "SubnetID = s"], false),
    ] {
        let config = read(&format!("[Global]\n{}\n", lines.join("\n"))).unwrap();
        assert_eq!(config.is_remote(), expected, "{lines:?}");
    }
}

const OVERRIDE: [&str; 4] =
    ["Service = \" EC2 \"", "Region = eu-west-1", "URL = http://127.0.0.1:1", "SigningRegion = r"];

fn section(name: &str, without: Option<usize>) -> String {
    let lines = OVERRIDE.iter().enumerate().filter(|(at, _)| Some(*at) != without).map(|(_, line)| *line);
    format!("[serviceoverride \"{name}\"]\n{}\n", lines.collect::<Vec<_>>().join("\n"))
}

#[test]
fn an_override_names_service_region_url_and_signing_region() {
    let expected = ServiceOverride {
        service: "EC2".to_owned(),
        region: "eu-west-1".to_owned(),
        url: "http://127.0.0.1:1".to_owned(),
        signing_region: "r".to_owned(),
        signing_name: String::new(),
    };
    assert_eq!(read(&section("1", None)).unwrap().overrides, std::slice::from_ref(&expected));
    let other = section("1", None) + "SigningMethod = v4\nSigningName = ec2x\n";
    let named = ServiceOverride { signing_name: "ec2x".to_owned(), ..expected };
    assert_eq!(read(&other).unwrap().overrides, [named]);
}

#[test]
fn an_incomplete_override_is_an_error_with_the_text_of_the_go_manager() {
    for (without, expected) in [
        (0, "service name is missing [Service is \"\"] in override B"),
        (1, "service region is missing [Region is \"\"] in override B"),
        (2, "url is missing [URL is \"\"] in override B"),
        (3, "signingRegion is missing [SigningRegion is \"\"] in override B"),
    ] {
        let error = read(&section("B", Some(without))).unwrap_err();
        assert!(error.contains(&format!("unable to validate custom endpoint overrides: {expected}")), "{error}");
    }
    let error = read(&(section("1", None) + &section("2", None))).unwrap_err();
    let expected = "duplicate entry found for service override [2] (EC2 in eu-west-1)";
    assert!(error.contains(expected), "{error}");
    let error =
        read("[ServiceOverride \"1\"]\nService = EC2\nRegion = r\nURL = \"::\"\nSigningRegion = r\n").unwrap_err();
    assert!(error.contains("is not an http:// or https:// URL"), "{error}");
}

#[test]
fn the_environment_is_read_and_secrets_are_not_printed() {
    let variables = [("AWS_ENDPOINT_URL_EC2", "http://e"), ("AWS_SECRET_ACCESS_KEY", "s3cret"), ("AWS_PROFILE", "p")];
    let config = read_with(&variables, "").unwrap();
    assert_eq!((config.endpoints.ec2.as_str(), config.credentials.profile.as_str()), ("http://e", "p"));
    assert_eq!(config.credentials.secret_access_key.reveal(), "s3cret");
    assert!(!format!("{config:?}").contains("s3cret"));
}

#[test]
fn the_template_and_the_page_are_valid() {
    let config = read(&template()).unwrap();
    assert!(config.warnings.is_empty() && config.region.is_empty());
    let template = template();
    let lines = template.lines().map(|line| line.strip_prefix('#').unwrap_or(line));
    let all = lines.filter(|line| !line.starts_with(' ')).map(|line| format!("{line}\n")).collect::<String>();
    assert_eq!(read(&all).unwrap().region, "eu-west-1");
    let page = reference();
    for expected in
        ["## `[Global]`", "## `[ServiceOverride \"name\"]`", "`AWS_ENDPOINT_URL_EC2`", "`NLBSecurityGroupMode`"]
    {
        assert!(page.contains(expected), "{expected}");
    }
}
