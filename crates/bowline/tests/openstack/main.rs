//! The manager on the real OpenStack services: Keystone, Nova, Neutron and Octavia as `tests/openstack/up` starts them, with
//! the embedded API server.
//!
//! These tests run if `BOWLINE_OPENSTACK` is set to the directory that `up` wrote, and are skipped otherwise. Each uses its own
//! project and leaves nothing in it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

// The clients of the provider's own tests.
#[path = "../../../../providers/openstack/tests/real/cloud.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod cloud;
#[path = "../../../../providers/openstack/tests/real/project.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod project;
#[path = "../support/mod.rs"]
mod support;

mod cluster;
mod machines;
mod services;

/// Skips the test if there is no OpenStack; `None` if there is one.
fn skipped() -> Option<()> {
    cloud::Cloud::folder().is_none().then(|| support::skip("no real OpenStack, BOWLINE_OPENSTACK is not set"))
}
