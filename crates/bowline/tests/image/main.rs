//! The program in its container: a read-only root with only the files of the image, an unprivileged user, and a network namespace
//! with only loopback.
//!
//! `BOWLINE_STATIC` selects a static program built by `deploy/image/build`. The default is the program of this build with its
//! shared libraries, which tests everything but static linking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod container;
mod daemonset;
mod dns;
mod names;
mod network;
#[path = "../support/mod.rs"]
mod support;
