//! An embedded Kubernetes API server: in memory, in your process, on a random port, in milliseconds.
//!
//! Stock kubectl, client-go and kube-rs talk to it unchanged. It answers as a real kube-apiserver does: same validation,
//! same defaults, same errors, same watches. It is made for tests of controllers, and so it can also forget its history,
//! cut its watches and fail on purpose.
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
//! server.cut_watches(); // every watch ends; a good controller does not mind
//! server.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! # How a request passes through
//!
//! ```text
//!  server    connections, TLS
//!    └─ http       who asks, what about, may they, faults; content negotiation
//!         └─ verbs       get, list, watch, create, update, patch, delete
//!              ├─ schema       bodies to canonical values, by one table of types
//!              ├─ resources    the rules of each kind (Strategy)
//!              ├─ fields       who owns which field; server-side apply
//!              └─ store        objects as bytes, one revision, bounded history
//! ```
//!
//! `auth` answers who and whether, `controllers` are the helpers that a cluster has elsewhere, `table`, `discovery` and
//! `openapi` are what kubectl reads. Objects are `serde_json` values throughout: the schema makes them canonical once, so
//! that nothing later has to check a type.
//!
//! What differs from a real server is listed in `docs/explanation/apiserver-differences.md`.

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
