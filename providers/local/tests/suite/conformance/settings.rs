//! Configurations of the suite: every capability enabled, and each one disabled at least once. Capability groups are independent,
//! so one setting may disable several.

use std::collections::BTreeSet;

use bowline_core::IpFamily;
use bowline_local::{Config, LoadBalancerConfig, RouteConfig};

/// Configuration, and the cases that it skips.
pub(super) struct Setting {
    pub(super) config: Config,
    pub(super) skipped: BTreeSet<&'static str>,
}

impl Setting {
    /// Everything enabled except `edit`, which skips the cases `out` and runs the cases `into`.
    fn but(edit: impl FnOnce(&mut Config), out: &[&'static str], into: &[&'static str]) -> Setting {
        let routes = RouteConfig { node_addresses: true, ..RouteConfig::default() };
        let mut config = Config { pod_ranges: true, tag_machines: true, routes, ..Config::default() };
        edit(&mut config);
        let skipped = SKIPPED_WITH_EVERYTHING.iter().chain(&UNSUPPORTED).filter(|name| !into.contains(name));
        Setting { config, skipped: skipped.chain(out).copied().collect() }
    }
}

/// Cases skipped with everything enabled: those for missing capabilities, for limits that are not set, and for route batches, which
/// this cloud does not support.
const SKIPPED_WITH_EVERYTHING: [&str; 5] = [
    "without_name_lookup_nothing_is_found",
    "without_listing_it_is_unsupported",
    "without_assignment_it_is_unsupported",
    "route_limit_is_reported",
    "batched_routes_save_calls",
];

/// Cases for load balancer capabilities and limits that this cloud does not have.
const UNSUPPORTED: [&str; 8] = [
    "fixed_kind_is_kept",
    "sctp_is_balanced",
    "node_ports_are_optional",
    "port_limit_is_reached",
    "target_limit_is_reached",
    "without_draining_a_leaving_node_is_removed",
    "first_family_is_served",
    "without_uid_marks_the_name_is_the_owner",
];

pub(super) fn settings() -> Vec<Setting> {
    let mut settings = vec![Setting::but(|_| {}, &[], &[])];
    settings.extend(of_machines());
    settings.extend(of_load_balancers());
    settings.push(without_groups());
    settings
}

/// Settings of instances and routes.
fn of_machines() -> Vec<Setting> {
    vec![
        Setting::but(
            |all| {
                all.id_prefix = "other-cloud".to_owned();
                all.pod_ranges = false;
                (all.routes.max_routes, all.routes.node_addresses) = (Some(4), false);
            },
            &[
                "pod_cidrs_are_reported",
                "assigned_pod_cidr_is_reported",
                "assignment_errors_have_a_kind",
                "assignment_survives_every_crash",
            ],
            &["without_assignment_it_is_unsupported", "route_limit_is_reported"],
        ),
        Setting::but(
            |all| (all.page_size, all.routes.ip_families) = (2, vec![IpFamily::IPv4]),
            &["ipv6_routes_are_created"],
            &[],
        ),
        Setting::but(
            |all| (all.listing, all.routes.ip_families) = (false, vec![IpFamily::IPv6]),
            &[
                "listing_agrees_with_find",
                "absence_is_as_declared",
                "pages_are_complete",
                "listing_errors_have_a_kind",
                "ipv4_routes_are_created",
            ],
            &["without_listing_it_is_unsupported"],
        ),
        Setting::but(|all| all.batch_lookup = 1, &["batch_limit_is_honoured"], &[]),
        Setting::but(
            |all| all.lookup_by_name = false,
            &["name_finds_the_machine", "ambiguous_name_is_an_error"],
            &["without_name_lookup_nothing_is_found"],
        ),
        Setting::but(
            |all| {
                (all.shutdown_state, all.zones) = (false, false);
                (all.additional_labels, all.additional_annotations) = (false, false);
                (all.max_parallel, all.routes.max_parallel) = (1, 1);
            },
            &[
                "stopped_is_reported",
                "zones_are_reported",
                "labels_are_reported",
                "annotations_are_reported",
                "concurrent_lookups",
                "parallel_writes_all_take_effect",
            ],
            &[],
        ),
    ]
}

fn of_load_balancers() -> Vec<Setting> {
    vec![
        Setting::but(
            |all| {
                let balancers = &mut all.load_balancers;
                (balancers.max_ports, balancers.max_targets) = (Some(3), Some(4));
                (balancers.batch_observe, balancers.drain) = (1, false);
            },
            &["observing_many_saves_calls", "a_leaving_node_is_drained"],
            &["port_limit_is_reached", "target_limit_is_reached", "without_draining_a_leaving_node_is_removed"],
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
                "ipv4_address_is_assigned",
                "dual_stack_has_both",
                "share_group_has_one_address",
                "share_group_ports_are_unique",
            ],
            &[],
        ),
        Setting::but(
            |all| all.load_balancers = minimal(),
            &MINIMAL_SKIPPED,
            &["without_draining_a_leaving_node_is_removed"],
        ),
    ]
}

/// Capability groups disabled.
fn without_groups() -> Setting {
    let off = |all: &mut Config| (all.load_balancers.enabled, all.routes.enabled) = (false, false);
    Setting::but(off, &[], &[&UNSUPPORTED[..], &["route_limit_is_reported", "batched_routes_save_calls"]].concat())
}

/// Minimal capabilities of load balancers.
fn minimal() -> LoadBalancerConfig {
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

const MINIMAL_SKIPPED: [&str; 23] = [
    "observing_many_saves_calls",
    "udp_is_balanced",
    "protocol_changes",
    "protocols_mix_on_one_port",
    "a_leaving_node_is_drained",
    "source_ranges_are_enforced",
    "session_affinity_is_applied",
    "local_policy_uses_the_health_check_port",
    "proxy_protocol_is_applied",
    "internal_is_not_public",
    "kind_changes",
    "idle_timeout_is_applied",
    "health_check_settings_are_applied",
    "ipv6_address_is_assigned",
    "dual_stack_has_both",
    "requested_address_is_assigned",
    "share_group_has_one_address",
    "share_group_ports_are_unique",
    "only_adoption_takes_over",
    "owned_is_not_adopted",
    "retained_is_released",
    "release_survives_every_crash",
    "adoption_survives_every_crash",
];
