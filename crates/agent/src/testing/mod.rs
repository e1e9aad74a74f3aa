//! Helpers for the tests of agents.

pub(crate) mod records;
mod scratch;

pub(crate) use scratch::Scratch;
