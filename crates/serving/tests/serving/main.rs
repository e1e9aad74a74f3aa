//! Integration tests of the server: real sockets, real TLS, and the embedded API server for TokenReviews and SubjectAccessReviews.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod authentication;
mod authorization;
mod certificates;
mod client;
mod connections;
mod pki;
mod webhooks;
mod world;
