//! What the conformance suite reads of the cloud, and creates in it.

mod load_balancers;
mod routes;
