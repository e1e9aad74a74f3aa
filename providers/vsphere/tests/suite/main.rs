//! Tests of the provider on simulated vCenters. The IDs are those of the cases in `docs/reference/rules.md`.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod agents;
mod calls;
mod certificate;
mod check;
mod conformance;
mod faults;
mod folder;
mod logins;
mod machines;
mod pair;
mod sessions;
mod vcenters;
mod world;
mod zones;
