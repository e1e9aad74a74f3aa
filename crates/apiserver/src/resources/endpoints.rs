//! The rules of this kind.

use super::Strategy;

pub(crate) struct Endpoints;

impl Strategy for Endpoints {}

pub(crate) struct EndpointSlice;

impl Strategy for EndpointSlice {}
