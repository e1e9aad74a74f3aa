//! One test binary, because each binary links all dependencies again.
#![cfg(all(feature = "daemon", target_os = "linux"))]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod network;
