//! The controllers as stories: the embedded API server, the local cloud and the manager in one process, on paused time.
//! Tests cite the cases of `docs/reference/rules.md` in their names.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod addresses;
mod api_server_faults;
mod cloud_ipam;
mod cloud_start;
mod clouds;
mod console;
mod forecast;
mod held_deletions;
mod identity;
mod initialize;
mod lifecycle;
mod load_balancers;
mod node_ipam;
#[cfg(target_os = "linux")]
mod packets;
mod pause;
mod permissions;
mod plans;
mod provided_ip;
mod provider_loops;
mod queue;
mod recorder;
mod route_failures;
mod route_races;
mod routes;
mod secrets;
mod service_backoff;
mod service_concurrency;
mod service_crashes;
mod service_failures;
mod service_nodes;
mod service_slow;
mod services;
mod slow_cloud;
mod status;
mod test_providers;
mod unmanaged;
mod world;
