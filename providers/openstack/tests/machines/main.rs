//! Servers and routes, told to a simulated OpenStack over its wire format. Cases of the catalogue have their number in the
//! name of their test.

mod cloud;
mod counts;
mod instances;
mod routes;
