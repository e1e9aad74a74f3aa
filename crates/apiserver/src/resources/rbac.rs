//! The rules of this kind.

use super::Strategy;

pub(crate) struct Role;

impl Strategy for Role {}

pub(crate) struct Binding;

impl Strategy for Binding {}
