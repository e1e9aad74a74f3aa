//! An embedded Kubernetes API server.

mod auth;
mod bootstrap;
mod connection;
mod controllers;
mod discovery;
mod faults;
mod field_error;
mod fields;
#[cfg(test)]
mod fuzz_tests;
mod go_text;
mod http;
mod metrics;
mod openapi;
mod options;
mod patch;
mod quantity;
mod reference;
mod resources;
mod schema;
mod selectors;
mod server;
mod state;
mod status;
mod store;
mod table;
mod tls;
mod validation;
mod value;
mod verbs;

pub use faults::{Effect, FaultRule, Faults};
pub use options::{AuthorizationMode, Options};
pub use reference::resource_reference;
pub use server::{ApiServer, StartError};
pub use tls::TlsError;
