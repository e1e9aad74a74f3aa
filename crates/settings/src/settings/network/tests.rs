//! Flags in, options or problems out.
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

/// What these flags and a provider come to with what is remarked about them, or all that is wrong.
fn resolve(flags: &[&str]) -> Result<(ManagerOptions, Vec<String>), Vec<String>> {
    let quiet = ["bowline", "--cloud-provider=local", "--leader-elect=false"];
    let args = crate::cli::Cli::parse_from(quiet.iter().chain(flags)).manager;
    let mut errors = ConfigErrors::new();
    let settings = Settings::resolve(&args, &mut errors);
    match errors.is_empty() {
        true => Ok((settings.manager, settings.remarks)),
        false => Err(errors.iter().map(ToString::to_string).collect()),
    }
}

fn texts(ranges: &[ipnet::IpNet]) -> Vec<String> {
    ranges.iter().map(ToString::to_string).collect()
}

// ---- routes

#[test]
fn without_flags_routes_are_on_and_watched_and_no_ranges_are_handed_out() {
    let (options, remarks) = resolve(&[]).unwrap();
    let route = options.route.unwrap();
    assert_eq!((route.cluster.as_str(), route.ranges.len(), route.max_share), ("kubernetes", 0, 0.5));
    assert_eq!(route.mode, Mode::Watch { refresh: Duration::from_secs(600) });
    assert!(options.node_ipam.is_none(), "IPAM-1");
    assert_eq!(remarks, [""; 0]);
}

#[test]
fn every_flag_about_routes_reaches_its_place() {
    let flags = ["--cluster-name=harbour", "--cluster-cidr=10.244.0.0/16", "--route-deletion-max-share=1"];
    let options = |more: &[&str]| resolve(&[&flags, more].concat()).unwrap().0.route;
    let route = options(&["--route-refresh-period=0"]).unwrap();
    assert_eq!((route.cluster.as_str(), route.max_share), ("harbour", 1.0));
    assert_eq!(texts(&route.ranges), ["10.244.0.0/16"]);
    assert_eq!(route.mode, Mode::Watch { refresh: Duration::ZERO });
    let periodic = |more: &[&str]| options(&[&[PERIODIC], more].concat()).unwrap().mode;
    assert_eq!(periodic(&[]), Mode::Periodic { period: Duration::from_secs(10) });
    let minute = Duration::from_secs(60);
    assert_eq!(periodic(&["--route-reconciliation-period=1m"]), Mode::Periodic { period: minute });
    assert!(options(&["--configure-cloud-routes=false"]).is_none());
    assert!(options(&["--controllers=*,-route"]).is_none());
}

#[test]
fn a_period_of_the_other_mode_is_told_to_have_no_effect() {
    let cases: [(&[&str], &[&str]); 4] = [
        (&["--route-reconciliation-period=30s"], &["--route-reconciliation-period has no effect"]),
        (&["--route-refresh-period=30s"], &[]),
        (&[PERIODIC, "--route-refresh-period=30s"], &["--route-refresh-period has no effect"]),
        (&[PERIODIC, "--route-reconciliation-period=30s"], &[]),
    ];
    for (flags, expected) in cases {
        let (_, remarks) = resolve(flags).unwrap();
        assert_eq!(remarks.len(), expected.len(), "{flags:?}: {remarks:?}");
        assert!(
            remarks.iter().zip(expected).all(|(remark, start)| remark.starts_with(start)),
            "{flags:?}: {remarks:?}"
        );
    }
}

// ---- ranges

#[test]
fn ranges_are_read_as_leniently_as_the_go_managers_do() {
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
        assert_eq!(texts(&options.route.unwrap().ranges), expected, "{text:?}");
    }
}

#[test]
fn ranges_that_cannot_be_meant_are_refused_with_what_would_be_right() {
    let cases = [
        (
            "R25",
            "--cluster-cidr=10.0.0.0/16, fd00::/48",
            "invalid CIDR[1]: invalid CIDR address: \" fd00::/48\"",
            "leave the blank out: fd00::/48",
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
            "one of IPv6",
        ),
        ("IPAM-2", "--cluster-cidr=fd00::/48,fd01::/48", "not configured as dual stack", "one of IPv6"),
        (
            "IPAM-2",
            "--cluster-cidr=10.0.0.0/16,fd00::/48,fd01::/48",
            "--cluster-cidr: length of clusterCIDRs is:3 more than max allowed of 2",
            "one of IPv6",
        ),
        (
            "IPAM-1",
            "--service-cluster-ip-range=10.0.0.0/16,fd00::/108,10.1.0.0/16",
            "--service-cluster-ip-range can not contain more than two entries",
            "one of IPv6",
        ),
        ("IPAM-2", "--service-cluster-ip-range=10.0.0.0/16,10.1.0.0/16", "not configured as dual stack", "one of IPv6"),
        (
            "IPAM-2",
            "--service-cluster-ip-range=10.96.0.0/12, fd00::/108",
            "invalid CIDR[1]: invalid CIDR address: \" fd00::/108\"",
            "leave the blank out",
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
        ("", "--node-cidr-mask-size=129", "129 is no length of a prefix", "24 for IPv4"),
        ("", "--node-cidr-mask-size-ipv4=-1", "--node-cidr-mask-size-ipv4: -1 is no length", "24 for IPv4"),
        ("", "--node-cidr-mask-size-ipv6=wide", "expected a whole number", ""),
        ("", "--allocate-node-cidrs=perhaps", "expected true or false", ""),
        ("", "--configure-cloud-routes=perhaps", "expected true or false", ""),
        ("", "--route-reconciliation-period=0", "it must be longer than 0", ""),
        ("", "--route-refresh-period=1d", "write 24h", ""),
        ("", "--route-deletion-max-share=50%", "from 0 to 1", ""),
        ("", "--feature-gates=Knots=true", "--feature-gates: unrecognized feature gate: Knots", "leave it out"),
    ];
    for (case, flag, says, fix) in cases {
        let errors = resolve(&[flag]).unwrap_err();
        assert_eq!(errors.len(), 1, "{case}: {flag}: {errors:#?}");
        assert!(errors[0].contains(says) && errors[0].contains(fix), "{case}: {flag}: {errors:#?}");
    }
}

#[test]
fn a_service_range_of_which_a_part_is_empty_is_a_service_range() {
    let flags = [ALLOCATE, "--cluster-cidr=10.244.0.0/16", "--service-cluster-ip-range=10.96.0.0/12,"];
    let ipam = resolve(&flags).unwrap().0.node_ipam.unwrap();
    assert_eq!(texts(&ipam.services), ["10.96.0.0/12"]);
}

// ---- handing them out

#[test]
fn ipam_01_ranges_are_handed_out_only_if_that_is_wished_and_by_the_controller_that_does_it() {
    let range = "--cluster-cidr=10.244.0.0/16";
    let is_on = |flags: &[&str]| resolve(flags).unwrap().0.node_ipam.is_some();
    assert!(is_on(&[range, ALLOCATE]) && is_on(&[range, ALLOCATE, "--controllers=nodeipam"]));
    assert!(!is_on(&[range]) && !is_on(&[range, "--controllers=nodeipam"]));
    assert!(!is_on(&[ALLOCATE, "--controllers=*,-nodeipam"]), "nobody needs a range, so none is missed");
}

#[test]
fn ipam_03_masks_are_those_of_the_flags_and_else_the_usual_ones() {
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
        let masks: Vec<_> = ipam.ranges.iter().map(bowline_core::ipam::ClusterCidr::node_mask).collect();
        assert_eq!(masks, expected, "{ranges} {flags:?}");
    }
}

#[test]
fn ipam_03_masks_that_do_not_fit_are_refused_in_the_words_that_people_look_for() {
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
            "keep this one alone",
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
    for (case, ranges, flags, says, fix) in cases {
        let range = format!("--cluster-cidr={ranges}");
        let errors = resolve(&[&[ALLOCATE, &range], flags].concat()).unwrap_err();
        assert_eq!(errors.len(), 1, "{case}: {errors:#?}");
        assert!(errors[0].contains(says) && errors[0].contains(fix), "{case}: {errors:#?}");
        // upstream: likewise, masks are not looked at where nothing is handed out.
        assert!(resolve(&[&[range.as_str()], flags].concat()).is_ok(), "{case}");
    }
}

#[test]
fn ranges_to_hand_out_must_be_given_and_their_lack_is_told_once() {
    let errors = resolve(&[ALLOCATE]).unwrap_err();
    assert_eq!(errors.len(), 1, "{errors:#?}");
    let says =
        ["--cluster-cidr: it is not given", "set --cluster-cidr=<range of the pods>", "--allocate-node-cidrs=false"];
    assert!(says.iter().all(|part| errors[0].contains(part)), "{errors:#?}");
}

#[test]
fn services_may_live_in_a_part_of_the_pods_range_but_not_all_over_it() {
    let resolve = |pods: &str, services: &str| {
        let (pods, services) = (format!("--cluster-cidr={pods}"), format!("--service-cluster-ip-range={services}"));
        resolve(&[ALLOCATE, "--node-cidr-mask-size=30", &pods, &services])
    };
    let (_, remarks) = resolve("127.123.234.0/24", "127.123.234.0/26").unwrap();
    let inside = "--service-cluster-ip-range 127.123.234.0/26 lies in --cluster-cidr 127.123.234.0/24: ";
    assert!(remarks.len() == 1 && remarks[0].starts_with(inside), "I2: {remarks:?}");
    assert!(resolve("10.244.0.0/16", "10.96.0.0/12").unwrap().1.is_empty());
    for services in ["127.123.234.0/24", "127.0.0.0/8"] {
        let errors = resolve("127.123.234.0/24", services).unwrap_err();
        let says =
            format!("--service-cluster-ip-range: {services} covers the whole of --cluster-cidr 127.123.234.0/24");
        assert!(errors.len() == 1 && errors[0].starts_with(&says), "{errors:#?}");
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
fn services_that_have_a_part_of_every_block_leave_nothing_to_hand_out() {
    let flags = [ALLOCATE, "--cluster-cidr=10.244.0.0/16", "--service-cluster-ip-range=10.244.3.0/24"];
    let errors = resolve(&[&flags[..], &["--node-cidr-mask-size=16"]].concat()).unwrap_err();
    let says = "--service-cluster-ip-range: Services have a part of each block of /16 of --cluster-cidr 10.244.0.0/16";
    assert!(errors.len() == 1 && errors[0].starts_with(says), "{errors:#?}");
    assert!(resolve(&[&flags[..], &["--node-cidr-mask-size=17"]].concat()).is_ok());
}

/// What one flag is wrong about hides nothing of what is wrong between the others.
#[test]
fn all_that_is_wrong_with_pod_ranges_is_told_at_once() {
    const TOO_LARGE: &str = "blocks of /24 are larger than the range 10.0.0.0/28";
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
            &["CIDR[1]", "10.96.0.0/12 and 10.0.0.0/8", "Rope", "-1 is no length", NO_DUAL, COVERS, "Knots", "0 to 1"],
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
            &["dual stack", "129 is no length", TOO_LARGE],
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
            &["-1 is no length", "allocator type: X", "longer than 0", "--cluster-cidr: it is not given"],
        ),
    ];
    for (flags, expected) in cases {
        let errors = resolve(&[&[ALLOCATE], flags].concat()).unwrap_err();
        assert_eq!(errors.len(), expected.len(), "{flags:?}: {errors:#?}");
        for part in expected {
            assert_eq!(errors.iter().filter(|problem| problem.contains(part)).count(), 1, "{part}: {errors:#?}");
        }
    }
}
