//! The rules of this kind.

use super::Strategy;

pub(crate) struct Lease;

impl Strategy for Lease {}
