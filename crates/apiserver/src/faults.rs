//! Faults on demand, for tests of clients.

/// The rules in force.
#[derive(Debug, Default)]
pub struct Faults {}
