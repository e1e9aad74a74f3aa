//! Plans of load balancers: observed state in, steps out.

mod listeners;
mod order;
mod ownership;
mod pools;
