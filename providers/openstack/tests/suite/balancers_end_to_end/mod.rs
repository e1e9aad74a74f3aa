//! Balancers end to end, on the simulated cloud: what is written to Octavia and Neutron, and what is left when something goes wrong.

mod behind;
mod floating;
mod leftovers;
mod listeners;
mod ownership;
mod put_off;
mod security;
mod trouble;
mod world;
