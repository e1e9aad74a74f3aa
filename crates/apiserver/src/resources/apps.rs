//! The rules of this kind.

use super::Strategy;

pub(crate) struct DaemonSet;

impl Strategy for DaemonSet {}

pub(crate) struct Deployment;

impl Strategy for Deployment {}
