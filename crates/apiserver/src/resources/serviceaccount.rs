//! The rules of this kind.

use super::Strategy;

pub(crate) struct ServiceAccount;

impl Strategy for ServiceAccount {}
