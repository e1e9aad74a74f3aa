//! The controllers as stories: the embedded API server, the local cloud and the manager in one process, on paused time.
//! Cases of the framework's catalogue are named by their number.

mod addresses;
mod clouds;
mod doubt;
mod faults;
mod initialize;
mod lifecycle;
mod provided_ip;
mod queue;
mod world;
mod wrappers;
