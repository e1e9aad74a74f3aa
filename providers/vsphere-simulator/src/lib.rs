//! Wire simulators of the vCenter API (SOAP and tagging) and of the NSX policy API, as far as a cloud controller manager calls them.
//!
//! Both are independent of the provider under test and store what they serve in its wire format.

pub mod nsx;
pub mod vcenter;

pub use bowline_simulator::{Detail, Entry, Fault, FaultSpec, Fields, Golden, Lost, Record, Server, Work};
