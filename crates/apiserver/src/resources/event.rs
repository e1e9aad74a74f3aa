//! The rules of this kind.

use super::Strategy;

pub(crate) struct CoreEvent;

impl Strategy for CoreEvent {}

pub(crate) struct NewEvent;

impl Strategy for NewEvent {}

/// `events.k8s.io` shows the same objects under other names.
pub(crate) const VIEW: super::View = super::View { to_stored: |v| v, from_stored: |v| v };
