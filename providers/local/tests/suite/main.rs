//! Tests as one program, because each program links all dependencies again.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod cloud;
mod conformance;
mod http;
mod load_balancers;
mod pod_ranges;
mod routes;
mod snapshot;
mod traffic;
