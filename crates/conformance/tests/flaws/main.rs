//! The suite can fail: small sound providers pass, and each flaw that is put into one of them is caught by the case that
//! is there to catch it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod machines;
