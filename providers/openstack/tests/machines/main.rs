//! Servers and routes against a simulated OpenStack, over its wire format.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod cloud;
mod counts;
mod instances;
mod rate;
mod routes;
