//! With what the suite is run: everything on, and each capability off at least once. Groups have nothing to do with each
//! other, so one setting may switch something off in several.

use std::collections::BTreeSet;

use bowline_core::IpFamily;
use bowline_local::{Config, LoadBalancerConfig, RouteConfig};

/// A configuration, and the cases that it rules out.
pub(super) struct Setting {
    pub(super) config: Config,
    pub(super) skipped: BTreeSet<&'static str>,
}

impl Setting {
    /// Everything on but for this: it rules these cases out, and those in.
    fn but(edit: impl FnOnce(&mut Config), out: &[&'static str], into: &[&'static str]) -> Setting {
        let routes = RouteConfig { node_addresses: true, ..RouteConfig::default() };
        let mut config = Config { pod_ranges: true, tag_machines: true, routes, ..Config::default() };
        edit(&mut config);
        let skipped = NOTHING_MISSING.iter().chain(&NEVER_BALANCED).filter(|name| !into.contains(name));
        Setting { config, skipped: skipped.chain(out).copied().collect() }
    }
}

/// Rules that do not apply with everything on: those for what is missing, for a limit that there is not, and for batches of
/// routes, which this cloud does not take.
const NOTHING_MISSING: [&str; 5] = [
    "without_name_lookup_nothing_is_claimed",
    "without_listing_it_is_unsupported",
    "without_assignment_it_is_unsupported",
    "route_limit_is_told",
    "batched_routes_save_calls",
];

/// What the balancers of this cloud never do, and what they have no limit for.
const NEVER_BALANCED: [&str; 7] = [
    "sctp_is_balanced",
    "node_ports_are_not_needed",
    "port_limit_is_reached",
    "target_limit_is_reached",
    "without_draining_a_leaving_node_goes",
    "first_family_is_served",
    "without_uid_marks_the_name_is_the_owner",
];

pub(super) fn settings() -> Vec<Setting> {
    let mut settings = vec![Setting::but(|_| {}, &[], &[])];
    settings.extend(of_machines());
    settings.extend(of_balancers());
    settings.push(without_groups());
    settings
}

/// What is told of machines, and what routes can do.
fn of_machines() -> Vec<Setting> {
    vec![
        Setting::but(
            |all| {
                all.id_prefix = "other-cloud".to_owned();
                all.pod_ranges = false;
                (all.routes.max_routes, all.routes.node_addresses) = (Some(4), false);
            },
            &[
                "pod_ranges_are_told",
                "assigned_pod_range_is_told",
                "assignment_errors_have_a_kind",
                "assignment_survives_every_crash",
            ],
            &["without_assignment_it_is_unsupported", "route_limit_is_told"],
        ),
        Setting::but(
            |all| (all.page_size, all.routes.ip_families) = (2, vec![IpFamily::IPv4]),
            &["ipv6_ranges_are_led"],
            &[],
        ),
        Setting::but(
            |all| (all.listing, all.routes.ip_families) = (false, vec![IpFamily::IPv6]),
            &[
                "listing_agrees_with_find",
                "absence_is_as_declared",
                "pages_are_complete",
                "listing_errors_have_a_kind",
                "ipv4_ranges_are_led",
            ],
            &["without_listing_it_is_unsupported"],
        ),
        Setting::but(|all| all.batch_lookup = 1, &["batch_limit_is_honoured"], &[]),
        Setting::but(
            |all| all.lookup_by_name = false,
            &["name_finds_the_machine", "two_of_one_name_is_an_error"],
            &["without_name_lookup_nothing_is_claimed"],
        ),
        Setting::but(
            |all| {
                (all.shutdown_state, all.zones) = (false, false);
                (all.additional_labels, all.additional_annotations) = (false, false);
                (all.max_parallel, all.routes.max_parallel) = (1, 1);
            },
            &[
                "stopped_is_told",
                "zones_are_told",
                "labels_are_told",
                "annotations_are_reported",
                "concurrent_questions",
                "parallel_writes_all_count",
            ],
            &[],
        ),
    ]
}

fn of_balancers() -> Vec<Setting> {
    vec![
        Setting::but(
            |all| {
                let balancers = &mut all.load_balancers;
                (balancers.max_ports, balancers.max_targets) = (Some(3), Some(4));
                (balancers.batch_observe, balancers.drain) = (1, false);
            },
            &["observing_many_saves_calls", "a_leaving_node_is_drained"],
            &["port_limit_is_reached", "target_limit_is_reached", "without_draining_a_leaving_node_goes"],
        ),
        Setting::but(
            |all| {
                let balancers = &mut all.load_balancers;
                (balancers.udp, balancers.shared) = (false, false);
                balancers.ip_families = vec![IpFamily::IPv6];
            },
            &[
                "udp_is_balanced",
                "protocol_changes",
                "protocols_mix_on_one_port",
                "ipv4_address_is_given",
                "dual_stack_has_both",
                "a_group_shares_an_address",
                "a_group_has_a_port_once",
            ],
            &[],
        ),
        Setting::but(|all| all.load_balancers = least(), &LEAST_SKIPPED, &["without_draining_a_leaving_node_goes"]),
    ]
}

/// Without a group there is nothing to say about it.
fn without_groups() -> Setting {
    let off = |all: &mut Config| (all.load_balancers.enabled, all.routes.enabled) = (false, false);
    Setting::but(off, &[], &[&NEVER_BALANCED[..], &["route_limit_is_told", "batched_routes_save_calls"]].concat())
}

/// Every switch off that leaves anything to balance.
fn least() -> LoadBalancerConfig {
    LoadBalancerConfig {
        enabled: true,
        tcp: true,
        udp: false,
        mixed_protocols: false,
        source_ranges: false,
        session_affinity: false,
        local_traffic_policy: false,
        proxy_protocol: false,
        requested_address: false,
        drain: false,
        shared: false,
        internal: false,
        idle_timeout: false,
        health_check_settings: false,
        adoption: false,
        retention: false,
        ip_families: vec![IpFamily::IPv4],
        dual_stack: false,
        batch_observe: 1,
        max_ports: None,
        max_targets: None,
    }
}

const LEAST_SKIPPED: [&str; 23] = [
    "observing_many_saves_calls",
    "udp_is_balanced",
    "protocol_changes",
    "protocols_mix_on_one_port",
    "a_leaving_node_is_drained",
    "source_ranges_are_enforced",
    "affinity_is_kept",
    "local_policy_asks_the_node",
    "proxy_protocol_is_spoken",
    "internal_stays_inside",
    "kind_changes",
    "idle_timeout_is_set",
    "health_check_is_as_chosen",
    "ipv6_address_is_given",
    "dual_stack_has_both",
    "requested_address_is_given",
    "a_group_shares_an_address",
    "a_group_has_a_port_once",
    "only_adoption_takes_over",
    "the_owned_is_not_adopted",
    "retained_is_released",
    "release_survives_every_crash",
    "adoption_survives_every_crash",
];
