//! Tests of the server through its clients, in one binary because linking dominates the build time of test binaries.
//!
//! Each test starts its own server on a random port, so all tests can share a process.

mod connections;
mod controllers;
mod deletion;
mod disruption_budgets;
mod fault_injection;
mod identity;
mod kube_runtime;
mod nodes;
mod properties;
mod proxy;

type Failure = Box<dyn std::error::Error + Send + Sync>;
