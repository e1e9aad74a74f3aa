//! Stock kubectls against the real binary: what they print, and what they exit with. One file per thing people do;
//! every story runs once for each kubectl on this machine.

mod access;
pub(crate) mod client;
mod nodes;
mod reading;
mod writing;
