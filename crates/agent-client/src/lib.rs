//! Load balancers and routes of L4 agents: records, messages of their API, its client, and the provider side.
//!
//! ```text
//!  provider ──► Agents ──► AgentLoadBalancers: desired state ──► plan ──► steps
//!                 │             │ Api                                      │
//!                 │             ▼                                          ▼
//!                 │        POST /v1/balancers/find, owners            POST /v1/balancers/change
//!                 ├──────► AgentRoutes: POST /v1/routes/list, create, delete
//!                 ├──────► diagnose: GET /v1/status of each agent
//!                 ▼
//!             Endpoints: the active agent of the group
//! ```
//!
//! * Records ([`Balancer`], [`CloudAddress`]), write calls ([`Change`]) and [`Observation`]s are the vocabulary of the API. The
//!   agents (`bowline-agent`) and the local cloud (`bowline-local`) keep such records and answer with such observations.
//! * A provider with the section `agent` in its configuration ([`AgentConfig`]) creates [`Agents`], which has the interfaces for load
//!   balancers and routes, their capabilities, and the items of `bowline check`.
//! * `AgentLoadBalancers` implements the provider trait for load balancers. It and the client need the feature `client`, which is
//!   enabled by default; an agent alone does without it.

mod calls;
mod conflicts;
mod messages;
mod observation;
mod records;
mod routes;
mod status;
mod targets;

#[cfg(feature = "client")]
mod agents;
#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "client")]
mod config;
#[cfg(feature = "client")]
mod diagnose;
#[cfg(feature = "client")]
mod endpoints;
#[cfg(feature = "client")]
mod errors;
#[cfg(feature = "client")]
mod load_balancers;
#[cfg(test)]
#[cfg(feature = "client")]
mod testing;

#[cfg(feature = "client")]
pub use agents::{Agents, load_balancer_capabilities, route_capabilities};
pub use calls::{AddressRequest, Change, Query, TargetChange};
#[cfg(feature = "client")]
pub use config::{AGENT_DOC, AgentConfig, AgentKeys};
pub use conflicts::{has_another, other_group_address, outside_pool};
#[cfg(all(feature = "client", unix))]
pub use endpoints::unix_client;
#[cfg(feature = "client")]
pub use errors::{AgentErrors, ApiErrors, invalid_response};
#[cfg(feature = "client")]
pub use load_balancers::{AgentLoadBalancers, Payload};
pub use messages::{
    API_HEADER, API_VERSION, ChangeRequest, ErrorBody, ErrorReply, FindBalancersReply, FindBalancersRequest,
    OwnersReply, OwnersRequest, codes,
};
pub use observation::{AddressStatus, Adoptee, ListenerError, Observation, Taken};
pub use records::{
    Balancer, BalancerCheck, BalancerSettings, BalancerTarget, CloudAddress, Listener, NewBalancer, OwnerName,
    family_of,
};
#[cfg(feature = "client")]
pub use routes::AgentRoutes;
pub use routes::{CreateRouteRequest, DeleteRouteRequest, Empty, ListRoutesReply, ListRoutesRequest, RouteRecord};
pub use status::{AddressRange, AgentRole, AgentStatus, PeerStatus, PoolStatus};
pub use targets::Targets;
