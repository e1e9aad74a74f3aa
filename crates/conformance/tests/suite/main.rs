//! All tests in one binary, because each binary links all dependencies again.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, and one flaw is a panic")]

mod flaws;
mod rules;
mod service_loops;
