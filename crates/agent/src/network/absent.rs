//! Systems other than Linux: no service addresses on an interface.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::{HoldReport, MacAddress, NetworkError, NetworkOptions, Seen};

/// Returns `None`: no address has a protocol.
pub async fn addresses_of_others() -> Option<BTreeSet<IpAddr>> {
    None
}

/// Uninhabited: [`Network::open`] always fails.
#[derive(Debug)]
pub enum Network {}

impl Network {
    /// Fails: this system is not supported.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn open(_: NetworkOptions) -> Result<Network, NetworkError> {
        Err(NetworkError::Unsupported)
    }

    /// Never called.
    pub async fn hold(&self, _: &BTreeSet<IpAddr>, _: bool) -> HoldReport {
        match *self {}
    }

    /// Never called.
    pub fn set_peers(&self, _: BTreeSet<MacAddress>) {
        match *self {}
    }

    /// Never called.
    #[must_use]
    pub fn link_address(&self) -> Option<MacAddress> {
        match *self {}
    }

    /// Never called.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        match *self {}
    }

    /// Never called.
    #[must_use]
    pub fn observations(&self) -> Vec<Seen> {
        match *self {}
    }
}
