//! Group of agents: which one is active, and how the others copy its state.

pub(crate) mod beat;
pub(crate) mod decide;
#[cfg(test)]
mod simulation;
