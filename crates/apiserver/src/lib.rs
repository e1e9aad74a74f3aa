//! An embedded Kubernetes API server: in memory, in your process, on a random port, in milliseconds.
//!
//! Stock kubectl, client-go and kube-rs talk to it unchanged. It behaves as a real kube-apiserver: same validation, same
//! defaults, same errors, same watches. For tests of controllers it can also compact its watch history, close watches and
//! inject faults.
//!
//! ```
//! use bowline_apiserver::{ApiServer, Options};
//! use k8s_openapi::api::core::v1::Namespace;
//! use kube::Api;
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = ApiServer::start(Options::default()).await?;
//! let namespaces: Api<Namespace> = Api::all(server.client().await?);
//! assert!(namespaces.get_opt("kube-system").await?.is_some());
//! server.cut_watches(); // closes every watch; a correct controller recovers
//! server.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Request flow
//!
//! ```text
//!  server    connections, TLS
//!    └─ http       authentication, paths, authorization, faults, content negotiation
//!         └─ verbs       get, list, watch, create, update, patch, delete
//!              ├─ schema       decodes bodies to canonical values, from one table of types
//!              ├─ resources    defaulting and validation of each kind (Strategy)
//!              ├─ fields       field ownership; server-side apply
//!              └─ store        objects as bytes, one revision, bounded history
//! ```
//!
//! `auth` authenticates and authorizes requests. `controllers` run in the kube-controller-manager of a real cluster. `table`,
//! `discovery` and `openapi` serve kubectl. Objects are `serde_json` values throughout: the schema makes them canonical once,
//! so that later code does not check types.
//!
//! `docs/explanation/apiserver-differences.md` lists the differences from a real server.

mod auth;
mod bootstrap;
mod connection;
mod connections;
mod controllers;
mod discovery;
mod faults;
mod field_error;
mod fields;
#[cfg(test)]
mod fuzz_tests;
mod go_text;
mod http;
mod journal;
mod limits;
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

pub use crate::http::KUBERNETES_MINOR;
pub use faults::{Effect, FaultRule, Faults};
pub use metrics::RequestKind;
pub use options::{AuthorizationMode, ConnectionLimits, Options};
pub use reference::resource_reference;
pub use server::{ApiServer, StartError};
pub use tls::TlsError;

/// The programs in the guide are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/apiserver.md")]
struct Guide;
