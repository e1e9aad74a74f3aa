//! The simulator as a client meets it, and as recordings of the real services have it.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod client;
mod replay;
mod services;
