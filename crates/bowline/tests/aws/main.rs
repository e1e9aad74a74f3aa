//! The manager on moto, an emulator of AWS by other authors, behind a proxy that checks signatures and parameters, as `tests/aws/up`
//! starts them, with the embedded API server.
//!
//! These tests run if `BOWLINE_AWS` is the folder that `up` has filled, and are skipped otherwise. They share one account, which each
//! of them resets, so they run one after the other; each leaves nothing in it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

// The client of the provider's own tests.
#[path = "../../../../providers/aws/tests/moto/moto.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod moto;
#[path = "../support/mod.rs"]
mod support;

mod account;
mod identity;
mod routes;
mod scene;
mod services;
