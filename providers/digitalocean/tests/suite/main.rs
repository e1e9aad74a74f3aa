//! Tests of the provider on a simulated DigitalOcean account. The IDs are those of the cases in `docs/reference/rules.md`.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod admission;
mod check;
mod conformance;
mod description;
mod faults;
mod instances;
mod load_balancers;
mod loops;
mod world;
