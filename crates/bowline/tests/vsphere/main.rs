//! The manager on vcsim, the vCenter simulator of govmomi, which other authors wrote, as `tests/vsphere/up` starts it, with the embedded
//! API server.
//!
//! These tests run if `BOWLINE_VSPHERE` is the folder that `up` has filled, and are skipped otherwise. They share two vCenters, which each
//! of them resets, so they run one after the other; each leaves nothing in them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod failures;
mod nodes;
mod scene;
#[path = "../support/mod.rs"]
mod support;
// The client of the provider's own tests.
#[path = "../../../../providers/vsphere/tests/vcsim/vcsim.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod vcsim;
