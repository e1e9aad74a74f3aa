//! The server from outside: real sockets, real TLS, and the embedded API server as the one who knows people and rights.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod authentication;
mod authorization;
mod certificates;
mod connections;
mod pki;
mod visitor;
mod webhooks;
mod world;
