//! The rules of this kind.

use super::Strategy;

pub(crate) struct ConfigMap;

impl Strategy for ConfigMap {}
