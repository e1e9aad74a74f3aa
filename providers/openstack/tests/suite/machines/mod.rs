//! Servers and routes on a simulated OpenStack, over its wire format.

mod cloud;
mod counts;
mod instances;
mod rate;
mod routes;
