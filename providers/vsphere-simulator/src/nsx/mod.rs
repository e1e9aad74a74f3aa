//! NSX policy API: load balancers, IP allocations and static routes.
//!
//! The simulator stores objects in their wire format, realizes them after a delay, and indexes them for search after another one. It
//! answers below `/policy/api/v1`, at `/api/session/create`, and at the path where VMC exchanges a refresh token for an access token.
//! It refuses unknown fields and query parameters. An object is named by its policy path, such as `/infra/lb-pools/web`.
//!
//! ```text
//!  request ──► auth ──► objects: schema, rules ──► records ──► after a delay: realized entities, search index
//! ```
//!
//! The harness serves plain HTTP. A client certificate is a request header ([`CERTIFICATE_HEADER`]), as from a proxy that ends TLS,
//! or set for all requests with [`Simulator::present_certificate`].
//!
//! ```
//! use bowline_vsphere_simulator::nsx::{Options, Simulator};
//! use serde_json::json;
//!
//! let nsx = Simulator::new(Options::default());
//! let pool = nsx.add_ip_pool("vips", "10.0.0.10-10.0.0.20");
//! nsx.put("/infra/lb-pools/web", json!({"display_name": "of another owner"}));
//! assert_eq!(pool, "/infra/ip-pools/vips");
//! assert_eq!(nsx.objects("lb-pools")[0]["id"], "web");
//! ```

mod address;
mod auth;
mod control;
mod listing;
mod objects;
mod options;
mod realization;
mod rules;
mod schema;
mod search;
mod simulator;
mod wire;

pub use auth::CERTIFICATE_HEADER;
pub use bowline_simulator::{Detail, Entry, Fault, FaultSpec, Fields, Golden, Lost, Record, Server, Work};
pub use options::{Options, PASSWORD, REFRESH_TOKEN, Scheme, USER};
pub use simulator::{Simulator, State};
pub use wire::{error_fault, html_fault};
