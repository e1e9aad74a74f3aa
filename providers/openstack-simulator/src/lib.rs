//! A wire simulator of the OpenStack services that a cloud controller manager calls.
//!
//! The simulator is independent of the provider under test: it reads and writes JSON as Keystone, Nova, Neutron, Octavia and
//! Barbican do, and its responses are compared with recordings of the real services. It uses tokio's clock, which tests can
//! pause.
//!
//! ```text
//!  Request<Bytes> ──► Simulator::answer ──► faults, delay, token ──► service: identity, compute, network, load-balancer,
//!      ▲                                                              key-manager ──► State ──► Response<Bytes>
//!      └─ in this process, or over HTTP with Simulator::serve
//! ```
//!
//! The first segment of the path selects the service: `http://anything/identity/v3/auth/tokens`. Any host is accepted; the
//! catalog and all links use the host of the request.
//!
//! ```
//! use bowline_openstack_simulator::{Kind, NewServer, Options, Simulator};
//!
//! let cloud = Simulator::new(Options::default());
//! let id = cloud.add_server(NewServer::named("node-1"));
//! cloud.stop_server(&id);
//! assert_eq!(cloud.records(Kind::Server).len(), 1);
//! ```

mod compute;
mod control;
mod fixture;
mod identity;
mod listing;
mod network;
mod octavia;
mod options;
mod records;
mod secrets;
mod servers;
mod simulator;
mod skeletons;
mod wire;

pub use bowline_simulator::{Detail, Entry, Fault, FaultSpec, Golden, Lost, Server, Work};
pub use fixture::Fixture;
pub use identity::{ApplicationCredential, Domain, Identity, Project, Trust, User};
pub use options::{Endpoint, Options, REGION, catalog};
pub use records::{Kind, Record};
pub use servers::{NewPort, NewServer};
pub use simulator::{Simulator, State};
pub use wire::Service;
