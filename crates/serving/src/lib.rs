//! HTTPS serving for a Kubernetes component: TLS, delegated authentication and authorization, health checks and webhooks (SRV-1 to
//! SRV-6, HZ-1 to HZ-5). The crate is independent of controllers and clouds.
//!
//! ```text
//!  connection ── TLS: certificates are reloaded when their files change; client certificates are requested, not required
//!     │
//!     ▼  panic recovery ► log ► Cache-Control
//!  authentication   front proxy headers ► client certificate ► bearer token (TokenReview, cached) ► anonymous
//!                    on one path instead: a header with a token for one audience
//!  authorization    system:masters ► always-allowed paths ► SubjectAccessReview (cached) ► 403
//!     ▼
//!  Router: path ──► handler        /healthz, /livez, /readyz with Checks; further paths of the program
//! ```
//!
//! A [`Server`] has an address and certificates. It serves a [`Router`] to the clients that its [`AccessControl`] admits.
//!
//! ```
//! use bowline_serving::{AccessControl, Check, CheckMetrics, Checks, Router, Server, ServingOptions};
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let checks = Checks::new("healthz", &CheckMetrics::register(&prometheus::Registry::new())?);
//! checks.add(Check::new("clock", || async { Ok(()) }));
//! let server = Server::bind(&ServingOptions::default())?;
//! let Ok(()) = server.serve(checks.on(Router::new()), AccessControl::open(), bowline_runtime::Shutdown::new()).await;
//! # Ok(())
//! # }
//! ```

mod access_control;
pub mod answer;
mod authentication;
mod authorization;
mod checks;
mod connection;
mod connection_limit;
mod files;
mod listen;
mod options;
mod review;
mod review_cache;
mod router;
mod server;
mod tls;
mod user;
pub mod webhook;

pub use access_control::AccessControl;
pub use answer::Answer;
pub use authentication::{AudienceToken, AuthenticationError, Authenticator};
pub use authorization::{AllowedPaths, Authorizer, PathError};
pub use checks::{Check, CheckMetrics, Checks, METRICS as CHECK_METRICS};
pub use files::FileError;
pub use listen::ListenError;
pub use options::{AuthenticationOptions, AuthorizationOptions, RequestHeaderOptions, ServingOptions, TlsOptions};
pub use router::{ANY, Handler, IncomingRequest, READ_METHODS, Router};
pub use server::{BindError, Server};
pub use tls::{TlsError, UnknownCipherSuite, check_cipher_suites};
pub use user::User;
pub use webhook::METRICS as WEBHOOK_METRICS;
