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

mod options;

pub use options::{AuthenticationOptions, AuthorizationOptions, RequestHeaderOptions, ServingOptions, TlsOptions};
