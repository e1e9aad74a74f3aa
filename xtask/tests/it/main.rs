//! Tests of the repository, in one test program.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cargo_commands;
mod dist;
mod documentation;
mod generated;
mod lint;
