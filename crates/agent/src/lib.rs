//! The L4 agent: load balancers and routes on hosts without a cloud.
//!
//! * [`Balancers`] are the records and their rules: a plain value, without files, time or sockets.

mod balancers;

pub use balancers::{Balancers, MAX_NAME_LENGTH, Pool, PoolError, Pools, RuleError, check_name, fit_response};
