//! NSX client, load balancers and routes on the simulated manager.

mod allocations;
mod conformance;
mod credentials;
mod errors;
mod invalid;
mod lb_service;
mod load_balancers;
mod members;
mod routes;
mod takeover;
mod world;
