//! An embedded Kubernetes API server.

mod auth;
mod discovery;
mod faults;
mod field_error;
mod fields;
mod go_text;
mod openapi;
mod options;
mod patch;
mod quantity;
mod resources;
mod schema;
mod selectors;
mod state;
mod status;
mod store;
mod table;
mod validation;
mod value;

pub use options::{AuthorizationMode, Options};
