//! Tests of the simulator: with a client of its own, and with the AWS SDK for Python.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod client;
mod consistency;
mod credentials;
mod judge;
mod load_balancers;
mod resources;
