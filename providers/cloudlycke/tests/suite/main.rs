//! Tests of the provider on files and commands: a Vagrant home, a stand-in for `VBoxManage`, and Vagrant itself where it is installed.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod agents;
mod conformance;
mod demo;
mod failures;
mod host;
mod identity;
mod inventory;
mod libvirt;
mod processes;
mod real_vagrant;
mod vagrant;
