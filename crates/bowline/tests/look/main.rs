//! The commands that look at a cluster and its clouds, and `--dry-run`, beside an API server and a cloud that are processes,
//! too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod check;
mod credentials;
mod explain;
mod orphans;
mod plan;
#[path = "../support/mod.rs"]
mod support;
mod world;
