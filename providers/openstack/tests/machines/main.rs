//! Servers and routes, told to a simulated OpenStack over its wire format. Cases of the catalogue have their number in the
//! name of their test.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod cloud;
mod counts;
mod instances;
mod rate;
mod routes;
