//! The rules of this kind.

use super::Strategy;

pub(crate) struct Namespace;

impl Strategy for Namespace {}
