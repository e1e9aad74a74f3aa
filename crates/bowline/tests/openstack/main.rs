//! The manager on the real OpenStack services: Keystone, Nova, Neutron and Octavia as `tests/openstack/up` starts them, with
//! the embedded API server.
//!
//! These stories run where `BOWLINE_OPENSTACK` names the folder that `up` filled, and are skipped elsewhere. Each has a
//! project of the cloud to itself and leaves nothing in it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

// The same hands as the provider's own tests have.
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

/// Says that there is no OpenStack here; `None` if there is one.
fn skipped() -> Option<()> {
    cloud::Cloud::folder().is_none().then(|| support::skip("no real OpenStack, BOWLINE_OPENSTACK is not set"))
}
