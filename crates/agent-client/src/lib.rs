//! Load balancers and routes of L4 agents: records, messages of their API, its client, and the provider side.
//!
//! ```text
//!  provider ──► AgentLoadBalancers: desired state ──► plan ──► steps
//!                    │ Api                                      │
//!                    ▼                                          ▼
//!               POST /v1/balancers/find, owners            POST /v1/balancers/change
//! ```
//!
//! * Records ([`Balancer`], [`CloudAddress`]), write calls ([`Change`]) and [`Observation`]s are the vocabulary of the API. The
//!   agents (`bowline-agent`) and the local cloud (`bowline-local`) keep such records and answer with such observations.
//! * `AgentLoadBalancers` implements the provider trait for load balancers. It and the client need the feature `client`, which is
//!   enabled by default; an agent alone does without it.

mod calls;
mod conflicts;
mod messages;
mod observation;
mod records;
mod targets;

#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "client")]
mod errors;
#[cfg(feature = "client")]
mod load_balancers;

pub use calls::{AddressRequest, Change, Query, TargetChange};
pub use conflicts::{has_another, other_group_address, outside_pool};
#[cfg(feature = "client")]
pub use errors::{ApiErrors, invalid_response};
#[cfg(feature = "client")]
pub use load_balancers::{AgentLoadBalancers, Payload};
pub use messages::{
    ChangeRequest, ErrorBody, ErrorReply, FindBalancersReply, FindBalancersRequest, OwnersReply, OwnersRequest,
};
pub use observation::{AddressStatus, Adoptee, ListenerError, Observation, Taken};
pub use records::{
    Balancer, BalancerCheck, BalancerSettings, BalancerTarget, CloudAddress, Listener, NewBalancer, OwnerName,
    family_of,
};
pub use targets::Targets;
