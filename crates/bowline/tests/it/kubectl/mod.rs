//! Stock kubectl versions against the real binary: output and exit codes. Every test runs once for each installed kubectl.

mod access;
pub(crate) mod client;
mod nodes;
mod reading;
mod writing;
