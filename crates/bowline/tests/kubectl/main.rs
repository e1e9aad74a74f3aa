//! Stock kubectls against the real binary: what they print, and what they exit with. One file per thing people do;
//! every story runs once for each kubectl on this machine.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../support/mod.rs"]
mod support;

mod access;
mod client;
mod nodes;
mod reading;
mod writing;
