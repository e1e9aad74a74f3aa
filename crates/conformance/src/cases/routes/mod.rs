//! The cases about routes.

pub(super) mod batches;
pub(super) mod machines;
pub(super) mod table;
pub(super) mod trouble;
pub(super) mod writes;
