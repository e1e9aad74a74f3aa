//! Black-box tests of the program, in one test binary, because linking is most of the cost of a test binary.
//!
//! Each test starts its own processes on random ports, so that all tests can share a process. Tests that need their own process or
//! a real cloud are in the test binaries `image` and `openstack`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "../support/mod.rs"]
mod support;

mod agents;
mod aws;
mod cli;
mod cloud;
mod cloudlycke;
mod cluster_console;
mod console;
mod daemon;
mod digitalocean;
mod failover;
mod kubectl;
mod logs;
mod look;
mod manifests;
mod openstack_trouble;
mod oracle;
mod pages;
mod playground;
mod playground_terminal;
mod providers;
mod release;
mod scale;
mod several_clouds;
mod vsphere;
