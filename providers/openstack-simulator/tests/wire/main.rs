//! Tests of the simulator's API: with a client, and against recordings of the real services.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod client;
mod replay;
mod services;
