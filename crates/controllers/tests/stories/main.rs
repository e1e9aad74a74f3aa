//! The controllers as stories: the embedded API server, the local cloud and the manager in one process, on paused time.
//! Tests cite the cases of `docs/reference/rules.md` in their names.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod addresses;
mod balancing;
mod clouds;
mod doubt;
mod faults;
mod forecast;
mod identity;
mod initialize;
mod lifecycle;
mod node_ipam;
mod noted;
#[cfg(target_os = "linux")]
mod packets;
mod pause;
mod permissions;
mod plans;
mod pod_range_modes;
mod provided_ip;
mod provider_loops;
mod queue;
mod route_races;
mod route_trouble;
mod routes;
mod secrets;
mod service_backoff;
mod service_crashes;
mod service_nodes;
mod service_order;
mod service_slow;
mod service_trouble;
mod services;
mod shipyard;
mod starting;
mod status;
mod world;
mod wrappers;
