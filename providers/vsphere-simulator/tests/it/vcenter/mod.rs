//! vCenter.

mod certificates;
mod client;
mod collector;
mod faults;
mod judge;
mod machines;
mod sessions;
mod tags;
