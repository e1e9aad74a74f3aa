//! Load balancers end to end on the simulated cloud: writes to Octavia and Neutron, and the state after failures.

mod faults;
mod floating;
mod listeners;
mod orphans;
mod ownership;
mod partial_failures;
mod pools;
mod security;
mod world;
