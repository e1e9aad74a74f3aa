//! Rules about routes.

pub(super) mod batches;
pub(super) mod faults;
pub(super) mod machines;
pub(super) mod table;
pub(super) mod writes;
