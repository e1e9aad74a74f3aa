//! The rules of this kind.

use super::Strategy;

pub(crate) struct Node;

impl Strategy for Node {}
