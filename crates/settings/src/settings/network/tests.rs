//! Resolution of the network flags into options or errors.
#![allow(clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::time::Duration;

use bowline_config::ConfigErrors;
use bowline_controllers::manager::ManagerOptions;
use bowline_controllers::node_ipam::AllocatorType;
use bowline_controllers::route::Mode;
use clap::Parser as _;

use crate::settings::Settings;

const ALLOCATE: &str = "--allocate-node-cidrs";
const PERIODIC: &str = "--feature-gates=CloudControllerManagerWatchBasedRoutesReconciliation=false";

/// Resolves these flags and a provider into options and warnings, or returns all errors.
fn resolve(flags: &[&str]) -> Result<(ManagerOptions, Vec<String>), Vec<String>> {
    let quiet = ["bowline", "--cloud-provider=local", "--leader-elect=false"];
    let args = crate::cli::Cli::parse_from(quiet.iter().chain(flags)).manager;
    let mut errors = ConfigErrors::new();
    let settings = Settings::resolve(&args, &mut errors);
    match errors.is_empty() {
        true => Ok((settings.manager, settings.warnings)),
        false => Err(errors.iter().map(ToString::to_string).collect()),
    }
}

fn texts(ranges: &[ipnet::IpNet]) -> Vec<String> {
    ranges.iter().map(ToString::to_string).collect()
}

// ---- routes

#[test]
fn by_default_routes_are_watched_and_no_pod_cidrs_are_allocated() {
    let (options, warnings) = resolve(&[]).unwrap();
    let route = options.route.unwrap();
    assert_eq!((route.cluster.as_str(), route.cluster_cidrs.len(), route.max_share), ("kubernetes", 0, 0.5));
    assert_eq!(route.mode, Mode::Watch { refresh: Duration::from_secs(600) });
    assert!(options.node_ipam.is_none(), "IPAM-1");
    assert_eq!(warnings, [""; 0]);
}

#[test]
fn route_flags_set_their_options() {
    let flags = ["--cluster-name=harbour", "--cluster-cidr=10.244.0.0/16", "--route-deletion-max-share=1"];
    let options = |more: &[&str]| resolve(&[&flags, more].concat()).unwrap().0.route;
    let route = options(&["--route-refresh-period=0"]).unwrap();
    assert_eq!((route.cluster.as_str(), route.max_share), ("harbour", 1.0));
    assert_eq!(texts(&route.cluster_cidrs), ["10.244.0.0/16"]);
    assert_eq!(route.mode, Mode::Watch { refresh: Duration::ZERO });
    let periodic = |more: &[&str]| options(&[&[PERIODIC], more].concat()).unwrap().mode;
    assert_eq!(periodic(&[]), Mode::Periodic { period: Duration::from_secs(10) });
    let minute = Duration::from_secs(60);
    assert_eq!(periodic(&["--route-reconciliation-period=1m"]), Mode::Periodic { period: minute });
    assert!(options(&["--configure-cloud-routes=false"]).is_none());
    assert!(options(&["--controllers=*,-route"]).is_none());
}

#[test]
fn the_period_of_the_other_mode_has_no_effect_and_a_warning() {
    let cases: [(&[&str], &[&str]); 4] = [
        (&["--route-reconciliation-period=30s"], &["--route-reconciliation-period has no effect"]),
        (&["--route-refresh-period=30s"], &[]),
        (&[PERIODIC, "--route-refresh-period=30s"], &["--route-refresh-period has no effect"]),
        (&[PERIODIC, "--route-reconciliation-period=30s"], &[]),
    ];
    for (flags, expected) in cases {
        let (_, warnings) = resolve(flags).unwrap();
        assert_eq!(warnings.len(), expected.len(), "{flags:?}: {warnings:?}");
        assert!(
            warnings.iter().zip(expected).all(|(warning, start)| warning.starts_with(start)),
            "{flags:?}: {warnings:?}"
        );
    }
}

// ---- CIDRs

#[test]
fn cidrs_are_parsed_as_leniently_as_in_the_go_managers() {
    let cases: [(&str, &[&str]); 6] = [
        ("", &[]),
        ("10.244.0.0/16", &["10.244.0.0/16"]),
        (" 10.244.0.0/16 ", &["10.244.0.0/16"]),
        ("010.244.7.7/16", &["10.244.0.0/16"]),
        ("10.244.0.0/16,fd00:10:244::/56", &["10.244.0.0/16", "fd00:10:244::/56"]),
        ("fd00:10:244::/56,10.244.0.0/16", &["fd00:10:244::/56", "10.244.0.0/16"]),
    ];
    for (text, expected) in cases {
        let (options, _) = resolve(&[&format!("--cluster-cidr={text}")]).unwrap();
        assert_eq!(texts(&options.route.unwrap().cluster_cidrs), expected, "{text:?}");
    }
}

#[test]
fn invalid_cidrs_are_rejected_with_a_fix() {
    let cases = [
        (
            "R25",
            "--cluster-cidr=10.0.0.0/16, fd00::/48",
            "invalid CIDR[1]: invalid CIDR address: \" fd00::/48\"",
            "remove the space: fd00::/48",
        ),
        (
            "IPAM-2",
            "--cluster-cidr=10.0.0.0/16,",
            "invalid CIDR[1]: invalid CIDR address: \"\"",
            "such as 10.244.0.0/16",
        ),
        (
            "IPAM-2",
            "--cluster-cidr=10.0.0.0",
            "invalid CIDR[0]: invalid CIDR address: \"10.0.0.0\"",
            "such as 10.244.0.0/16",
        ),
        (
            "IPAM-2",
            "--cluster-cidr=10.0.0.0/33",
            "invalid CIDR[0]: invalid CIDR address: \"10.0.0.0/33\"",
            "such as 10.244.0.0/16",
        ),
        (
            "IPAM-2",
            "--cluster-cidr=10.0.0.0/16,10.1.0.0/16",
            "--cluster-cidr: 10.0.0.0/16 and 10.1.0.0/16 are not configured as dual stack (at least one from each IPFamily",
            "one IPv6",
        ),
        ("IPAM-2", "--cluster-cidr=fd00::/48,fd01::/48", "not configured as dual stack", "one IPv6"),
        (
            "IPAM-2",
            "--cluster-cidr=10.0.0.0/16,fd00::/48,fd01::/48",
            "--cluster-cidr: length of clusterCIDRs is:3 more than max allowed of 2",
            "one IPv6",
        ),
        (
            "IPAM-1",
            "--service-cluster-ip-range=10.0.0.0/16,fd00::/108,10.1.0.0/16",
            "--service-cluster-ip-range can not contain more than two entries",
            "one IPv6",
        ),
        ("IPAM-2", "--service-cluster-ip-range=10.0.0.0/16,10.1.0.0/16", "not configured as dual stack", "one IPv6"),
        (
            "IPAM-2",
            "--service-cluster-ip-range=10.96.0.0/12, fd00::/108",
            "invalid CIDR[1]: invalid CIDR address: \" fd00::/108\"",
            "remove the space",
        ),
        (
            "IPAM-2",
            "--service-cluster-ip-range=harbour",
            "--service-cluster-ip-range: invalid CIDR[0]: invalid CIDR address: \"harbour\"",
            "such as",
        ),
        (
            "IPAM-4",
            "--cidr-allocator-type=Rope",
            "--cidr-allocator-type: invalid CIDR allocator type: Rope",
            "RangeAllocator",
        ),
        ("", "--node-cidr-mask-size=129", "129 is not a valid prefix length", "24 for IPv4"),
        (
            "",
            "--node-cidr-mask-size-ipv4=-1",
            "--node-cidr-mask-size-ipv4: -1 is not a valid prefix length",
            "24 for IPv4",
        ),
        ("", "--node-cidr-mask-size-ipv6=wide", "expected a whole number", ""),
        ("", "--allocate-node-cidrs=perhaps", "expected true or false", ""),
        ("", "--configure-cloud-routes=perhaps", "expected true or false", ""),
        ("", "--route-reconciliation-period=0", "must be greater than 0", ""),
        ("", "--route-refresh-period=1d", "write 24h", ""),
        ("", "--route-deletion-max-share=50%", "from 0 to 1", ""),
        ("", "--feature-gates=Knots=true", "--feature-gates: unrecognized feature gate: Knots", "remove it"),
    ];
    for (case, flag, expected, fix) in cases {
        let errors = resolve(&[flag]).unwrap_err();
        assert_eq!(errors.len(), 1, "{case}: {flag}: {errors:#?}");
        assert!(errors[0].contains(expected) && errors[0].contains(fix), "{case}: {flag}: {errors:#?}");
    }
}

#[test]
fn an_empty_part_of_the_service_cidr_is_ignored() {
    let flags = [ALLOCATE, "--cluster-cidr=10.244.0.0/16", "--service-cluster-ip-range=10.96.0.0/12,"];
    let ipam = resolve(&flags).unwrap().0.node_ipam.unwrap();
    assert_eq!(texts(&ipam.service_cidrs), ["10.96.0.0/12"]);
}

// ---- allocation

#[test]
fn ipam_01_pod_cidrs_are_allocated_only_on_request_and_with_the_controller_enabled() {
    let range = "--cluster-cidr=10.244.0.0/16";
    let is_on = |flags: &[&str]| resolve(flags).unwrap().0.node_ipam.is_some();
    assert!(is_on(&[range, ALLOCATE]) && is_on(&[range, ALLOCATE, "--controllers=nodeipam"]));
    assert!(!is_on(&[range]) && !is_on(&[range, "--controllers=nodeipam"]));
    assert!(!is_on(&[ALLOCATE, "--controllers=*,-nodeipam"]), "--cluster-cidr is not required without the controller");
}

#[test]
fn ipam_03_mask_sizes_are_set_by_flags_or_have_defaults() {
    let (v4, v6) = ("10.0.0.0/8", "fd00::/48");
    let both = "fd00::/48,10.0.0.0/8";
    let cases: [(&str, &[&str], &[u8]); 10] = [
        (v4, &[], &[24]),
        (v6, &[], &[64]),
        (both, &[], &[64, 24]),
        (v4, &["--node-cidr-mask-size=0", "--node-cidr-mask-size-ipv4=0"], &[24]),
        (v4, &["--node-cidr-mask-size=26"], &[26]),
        (v6, &["--node-cidr-mask-size=60"], &[60]),
        (v4, &["--node-cidr-mask-size-ipv4=26"], &[26]),
        (v6, &["--node-cidr-mask-size-ipv6=60"], &[60]),
        (both, &["--node-cidr-mask-size-ipv4=26"], &[64, 26]),
        (both, &["--node-cidr-mask-size-ipv4=26", "--node-cidr-mask-size-ipv6=56"], &[56, 26]),
    ];
    for (ranges, flags, expected) in cases {
        let range = format!("--cluster-cidr={ranges}");
        let ipam = resolve(&[&[ALLOCATE, &range], flags].concat()).unwrap().0.node_ipam.unwrap();
        let masks: Vec<_> = ipam.cluster_cidrs.iter().map(bowline_core::ipam::ClusterCidr::node_mask).collect();
        assert_eq!(masks, expected, "{ranges} {flags:?}");
    }
}

#[test]
fn ipam_03_invalid_masks_have_the_error_messages_of_upstream() {
    let cases: [(&str, &str, &[&str], &str, &str); 8] = [
        (
            "I21",
            "10.0.0.0/16,fd00::/48",
            &["--node-cidr-mask-size=24"],
            "usage of --node-cidr-mask-size is not allowed with dual-stack clusters",
            "use --node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6",
        ),
        (
            "I22",
            "10.0.0.0/16",
            &["--node-cidr-mask-size-ipv6=64"],
            "usage of --node-cidr-mask-size-ipv6 is not allowed for a single-stack IPv4 cluster",
            "use --node-cidr-mask-size-ipv4",
        ),
        (
            "I22",
            "fd00::/48",
            &["--node-cidr-mask-size-ipv4=24"],
            "usage of --node-cidr-mask-size-ipv4 is not allowed for a single-stack IPv6 cluster",
            "use --node-cidr-mask-size-ipv6",
        ),
        (
            "IPAM-3",
            "10.0.0.0/16",
            &["--node-cidr-mask-size=24", "--node-cidr-mask-size-ipv4=24"],
            "is not allowed if --node-cidr-mask-size is set",
            "keep only --node-cidr-mask-size",
        ),
        (
            "I12",
            "2001:db8::/32",
            &["--node-cidr-mask-size=49"],
            "--node-cidr-mask-size: New CIDR set failed; the node CIDR size is too big",
            "set --node-cidr-mask-size to a number from 32 to 48",
        ),
        (
            "I12",
            "2001:db8::/32",
            &[],
            "the node CIDR size is too big",
            "set --node-cidr-mask-size-ipv6 to a number from 32 to 48",
        ),
        (
            "IPAM-3",
            "10.0.0.0/25",
            &[],
            "mask size of cluster CIDR must be less than or equal to --node-cidr-mask-size: blocks of /24 are larger",
            "set --node-cidr-mask-size-ipv4 to a number from 25 to 32",
        ),
        (
            "IPAM-3",
            "10.0.0.0/25",
            &["--node-cidr-mask-size=33"],
            "a mask of /33 is longer than the addresses of 10.0.0.0/25",
            "set --node-cidr-mask-size to a number from 25 to 32",
        ),
    ];
    for (case, ranges, flags, expected, fix) in cases {
        let range = format!("--cluster-cidr={ranges}");
        let errors = resolve(&[&[ALLOCATE, &range], flags].concat()).unwrap_err();
        assert_eq!(errors.len(), 1, "{case}: {errors:#?}");
        assert!(errors[0].contains(expected) && errors[0].contains(fix), "{case}: {errors:#?}");
        // upstream: masks are likewise not validated without allocation.
        assert!(resolve(&[&[range.as_str()], flags].concat()).is_ok(), "{case}");
    }
}

#[test]
fn allocation_requires_the_cluster_cidr_and_its_absence_is_reported_once() {
    let errors = resolve(&[ALLOCATE]).unwrap_err();
    assert_eq!(errors.len(), 1, "{errors:#?}");
    let expected = ["--cluster-cidr: required", "set --cluster-cidr=<pod network>", "--allocate-node-cidrs=false"];
    assert!(expected.iter().all(|part| errors[0].contains(part)), "{errors:#?}");
}

#[test]
fn the_service_cidr_may_overlap_a_part_of_the_cluster_cidr_but_not_all_of_it() {
    let resolve = |pods: &str, services: &str| {
        let (pods, services) = (format!("--cluster-cidr={pods}"), format!("--service-cluster-ip-range={services}"));
        resolve(&[ALLOCATE, "--node-cidr-mask-size=30", &pods, &services])
    };
    let (_, warnings) = resolve("127.123.234.0/24", "127.123.234.0/26").unwrap();
    let inside = "--service-cluster-ip-range 127.123.234.0/26 is inside --cluster-cidr 127.123.234.0/24: ";
    assert!(warnings.len() == 1 && warnings[0].starts_with(inside), "I2: {warnings:?}");
    assert!(resolve("10.244.0.0/16", "10.96.0.0/12").unwrap().1.is_empty());
    for services in ["127.123.234.0/24", "127.0.0.0/8"] {
        let errors = resolve("127.123.234.0/24", services).unwrap_err();
        let expected =
            format!("--service-cluster-ip-range: {services} covers the whole of --cluster-cidr 127.123.234.0/24");
        assert!(errors.len() == 1 && errors[0].starts_with(&expected), "{errors:#?}");
    }
}

#[test]
fn ipam_04_each_allocator_type_has_its_meaning() {
    let cases = [
        ("RangeAllocator", AllocatorType::Range),
        ("CloudAllocator", AllocatorType::FromCloud),
        ("IPAMFromCloud", AllocatorType::FromCloud),
        ("IPAMFromCluster", AllocatorType::FromCluster),
    ];
    for (text, expected) in cases {
        let flag = format!("--cidr-allocator-type={text}");
        let ipam = resolve(&[ALLOCATE, "--cluster-cidr=10.244.0.0/16", &flag]).unwrap().0.node_ipam;
        assert_eq!(ipam.unwrap().allocator, expected, "{text}");
    }
}

#[test]
fn a_service_cidr_that_overlaps_every_block_is_rejected() {
    let flags = [ALLOCATE, "--cluster-cidr=10.244.0.0/16", "--service-cluster-ip-range=10.244.3.0/24"];
    let errors = resolve(&[&flags[..], &["--node-cidr-mask-size=16"]].concat()).unwrap_err();
    let expected = "--service-cluster-ip-range: overlaps every /16 block of --cluster-cidr 10.244.0.0/16";
    assert!(errors.len() == 1 && errors[0].starts_with(expected), "{errors:#?}");
    assert!(resolve(&[&flags[..], &["--node-cidr-mask-size=17"]].concat()).is_ok());
}

/// An invalid flag does not hide errors in the others.
#[test]
fn all_errors_in_network_flags_are_reported_at_once() {
    const TOO_LARGE: &str = "blocks of /24 are larger than the cluster CIDR 10.0.0.0/28";
    const NO_DUAL: &str = "usage of --node-cidr-mask-size is not allowed with dual-stack clusters";
    const COVERS: &str = "covers the whole of --cluster-cidr";
    let cases: [(&[&str], &[&str]); 9] = [
        (
            &[
                "--cluster-cidr=10.0.0.0/16, fd00::/48",
                "--service-cluster-ip-range=10.96.0.0/12,10.0.0.0/8",
                "--cidr-allocator-type=Rope",
                "--node-cidr-mask-size=-1",
                "--feature-gates=Knots=1",
                "--route-deletion-max-share=2",
            ],
            &[
                "CIDR[1]",
                "10.96.0.0/12 and 10.0.0.0/8",
                "Rope",
                "-1 is not a valid",
                NO_DUAL,
                COVERS,
                "Knots",
                "0 to 1",
            ],
        ),
        (
            &[
                "--cluster-cidr=10.0.0.0/28",
                "--node-cidr-mask-size=24",
                "--service-cluster-ip-range=rubbish",
                "--cidr-allocator-type=X",
            ],
            &["\"rubbish\"", "allocator type: X", TOO_LARGE],
        ),
        (&["--cluster-cidr=10.0.0.0/28,rubbish"], &["\"rubbish\"", TOO_LARGE]),
        (&["--cluster-cidr=10.0.0.0/28,rubbish", "--node-cidr-mask-size=24"], &["\"rubbish\"", NO_DUAL, TOO_LARGE]),
        (
            &["--cluster-cidr=10.0.0.0/28,10.1.0.0/16", "--node-cidr-mask-size-ipv6=129"],
            &["dual stack", "129 is not a valid", TOO_LARGE],
        ),
        (
            &["--cluster-cidr=10.0.0.0/28,fd00::/32,x", "--service-cluster-ip-range=10.0.0.0/8,y"],
            &["\"x\"", "clusterCIDRs is:3", "\"y\"", TOO_LARGE, "node CIDR size is too big: fd00::/32", COVERS],
        ),
        (
            &["--cluster-cidr=10.0.0.0/28", "--node-cidr-mask-size=27", "--node-cidr-mask-size-ipv4=33"],
            &["not allowed if --node-cidr-mask-size is set", "blocks of /27", "a mask of /33"],
        ),
        (
            &["--cluster-cidr=10.0.0.0/28", "--node-cidr-mask-size-ipv6=64"],
            &["not allowed for a single-stack IPv4", TOO_LARGE],
        ),
        (
            &["--node-cidr-mask-size=-1", "--route-reconciliation-period=0", "--cidr-allocator-type=X"],
            &["-1 is not a valid", "allocator type: X", "greater than 0", "--cluster-cidr: required"],
        ),
    ];
    for (flags, expected) in cases {
        let errors = resolve(&[&[ALLOCATE], flags].concat()).unwrap_err();
        assert_eq!(errors.len(), expected.len(), "{flags:?}: {errors:#?}");
        for part in expected {
            assert_eq!(errors.iter().filter(|error| error.contains(part)).count(), 1, "{part}: {errors:#?}");
        }
    }
}
