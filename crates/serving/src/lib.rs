//! The HTTPS side of a Kubernetes component (SRV-1 to SRV-6, HZ-1 to HZ-5). Nothing here knows a controller or a cloud.
//!
//! ```text
//!  connection ── TLS (certificate re-read when its file changes, client certificates asked for, never demanded)
//!     │
//!     ▼  panic recovery ► log ► Cache-Control
//!  who?      front proxy's headers ► client certificate ► bearer token (TokenReview, cached) ► anonymous
//!  may they? system:masters ► paths that are always allowed ► SubjectAccessReview (cached) ► no
//!     ▼
//!  Site: path ──► handler        /healthz, /livez, /readyz with Checks; whatever the program adds
//! ```
//!
//! A [`Server`] has an address and certificates. It serves a [`Router`] to whom its [`AccessControl`] lets in.
//!
//! ```
//! use bowline_serving::{Check, CheckMetrics, Checks, Door, Server, ServingOptions, Site};
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let checks = Checks::new("healthz", &CheckMetrics::register(&prometheus::Registry::new())?);
//! checks.add(Check::new("clock", || async { Ok(()) }));
//! let server = Server::bind(&ServingOptions::default())?;
//! let Ok(()) = server.serve(checks.on(Site::new()), Door::open(), bowline_runtime::Shutdown::new()).await;
//! # Ok(())
//! # }
//! ```

pub mod answer;
mod authentication;
mod authorization;
mod checks;
mod connection;
mod door;
mod files;
mod listen;
mod memo;
mod options;
mod review;
mod room;
mod server;
mod site;
mod tls;
mod user;
pub mod webhook;

pub use answer::Answer;
pub use authentication::{AuthenticationError, Authenticator};
pub use authorization::{AllowedPaths, Authorizer, PathError};
pub use checks::{Check, CheckMetrics, Checks, METRICS as CHECK_METRICS};
pub use door::AccessControl;
pub use files::FileError;
pub use listen::ListenError;
pub use options::{AuthenticationOptions, AuthorizationOptions, RequestHeaderOptions, ServingOptions, TlsOptions};
pub use server::{BindError, Server};
pub use site::{ANY, Handler, IncomingRequest, READ_METHODS, Router};
pub use tls::{TlsError, UnknownCipherSuite, check_cipher_suites};
pub use user::User;
pub use webhook::METRICS as WEBHOOK_METRICS;
