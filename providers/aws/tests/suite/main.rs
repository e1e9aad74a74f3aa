//! The provider on a simulated account.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod adoption;
mod calls;
mod classic;
mod conformance;
mod faults;
mod machines;
mod network;
mod rules;
mod start;
mod subnets;
mod tagging;
mod targets;
mod world;
