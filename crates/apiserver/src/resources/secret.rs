//! The rules of this kind.

use super::Strategy;

pub(crate) struct Secret;

impl Strategy for Secret {}
