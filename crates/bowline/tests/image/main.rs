//! The program in its container: a read-only root with the files of the image and nothing else, another user, no rights of
//! root, and a network in which only loopback exists.
//!
//! With `BOWLINE_STATIC` naming a static program, as `deploy/image/build` makes it, that one is tested. Otherwise it is the
//! program of this build, and the libraries that it loads are laid beside it: all but the linking is tested then.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod container;
mod dns;
mod names;
mod network;
#[path = "../support/mod.rs"]
mod support;
