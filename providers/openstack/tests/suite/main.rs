//! All tests in one program, because each program links all dependencies again.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod balancers_end_to_end;
mod check;
mod conformance;
mod machines;
mod resources;
