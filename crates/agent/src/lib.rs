//! The L4 agent: load balancers and routes on hosts without a cloud.
