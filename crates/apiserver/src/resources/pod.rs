//! The rules of this kind.

use super::Strategy;

pub(crate) struct Pod;

impl Strategy for Pod {}
