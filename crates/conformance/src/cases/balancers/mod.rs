//! Rules about balancers.

pub(super) mod kinds;
pub(super) mod life;
pub(super) mod notes;
pub(super) mod operations;
pub(super) mod owners;
pub(super) mod ports;
pub(super) mod questions;
pub(super) mod settings;
pub(super) mod targets;
pub(super) mod trouble;
