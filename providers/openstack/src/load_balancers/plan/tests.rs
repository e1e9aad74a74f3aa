//! Decisions about load balancers: the observed state goes in, steps come out.

mod behind;
mod listeners;
mod order;
mod ownership;
