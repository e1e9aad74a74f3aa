//! Routes of agents: each agent of a group adds the routes of all Nodes to the kernel of its own host, with the address of the Node as
//! the next hop.

mod messages;
#[cfg(feature = "client")]
mod provider;

pub use messages::{CreateRouteRequest, DeleteRouteRequest, Empty, ListRoutesReply, ListRoutesRequest, RouteRecord};
#[cfg(feature = "client")]
pub use provider::AgentRoutes;
