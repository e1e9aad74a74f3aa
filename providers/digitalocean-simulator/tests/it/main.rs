//! Tests of the simulator's API: with a client of its own, and with DigitalOcean's Python client.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod account;
mod client;
mod droplets;
mod judge;
mod load_balancers;
mod resources;
