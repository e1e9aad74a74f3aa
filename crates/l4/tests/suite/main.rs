//! One test binary, because each binary links all dependencies again.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod changes;
mod connection_limit;
mod health;
mod soak;
mod support;
mod tcp;
mod udp;
