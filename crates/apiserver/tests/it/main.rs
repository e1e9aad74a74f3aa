//! Tests of the server through its clients, in one program: linking is most of the cost of a test program.
//!
//! Each test starts a server of its own on a random port, so that all of them can share a process.

mod connections;
mod controllers;
mod deletion;
mod disruption_budgets;
mod fault_injection;
mod identity;
mod kube_runtime;
mod nodes;
mod properties;

type Failure = Box<dyn std::error::Error + Send + Sync>;
