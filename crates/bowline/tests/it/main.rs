//! The program from outside, in one test program: linking is most of the cost of a test program.
//!
//! Each test starts processes of its own on random ports, so that all of them can share a process. What needs a process of its own, or
//! a cloud that few machines have, is in other programs beside this one: `image` and `openstack`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "../support/mod.rs"]
mod support;

mod cli;
mod cloud;
mod daemon;
mod failover;
mod kubectl;
mod logs;
mod look;
mod manifests;
mod openstack_trouble;
mod oracle;
mod playground;
mod providers;
mod release;
mod scale;
