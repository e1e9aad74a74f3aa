//! Rules about load balancers.

pub(super) mod faults;
pub(super) mod kinds;
pub(super) mod lifecycle;
pub(super) mod observation;
pub(super) mod operations;
pub(super) mod owners;
pub(super) mod ports;
pub(super) mod reporting;
pub(super) mod settings;
pub(super) mod targets;
