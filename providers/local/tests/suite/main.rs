//! All tests in one binary, to save link time.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod cloud;
mod conformance;
mod http;
mod load_balancers;
mod pod_cidrs;
mod routes;
mod snapshot;
mod traffic;
