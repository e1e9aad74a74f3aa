//! Tests as one program, because each program links all dependencies again.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod changes;
mod crowd;
mod health;
mod soak;
mod support;
mod tcp;
mod udp;
