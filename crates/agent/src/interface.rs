//! The interface of the service addresses, as the traffic of an agent uses it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::agent::OpenError;
use crate::balancers::Pool;
use crate::config::Config;
use crate::group::Role;
use crate::network::{LIFETIME, MacAddress, Network, NetworkOptions, SeenKind, addresses_of_others};
use crate::routes::host::host_addresses;
use crate::traffic::{Held, Interface, Sighting};

/// Time after the lifetime of an address in which the kernel removes it: it removes several addresses together, with pauses of one
/// second.
const GRACE: Duration = Duration::from_secs(3);

/// Addresses of this host but those that an agent added. A kernel that does not report the protocol of addresses knows only all.
async fn others_of_host() -> BTreeSet<IpAddr> {
    match addresses_of_others().await {
        Some(others) => others,
        None => host_addresses(),
    }
}

/// Opens the interface. Followers have none.
pub(crate) async fn open_interface(config: &Config) -> Result<Option<Box<dyn Interface>>, OpenError> {
    let Some(name) = config.interface.as_ref().filter(|_| config.role == Role::Member) else { return Ok(None) };
    check_pools(&pools(config), others_of_host).await.map_err(OpenError::Interface)?;
    let options = NetworkOptions { interface: name.clone(), pools: pools(config) };
    let network = Network::open(options).map_err(|error| OpenError::Interface(error.to_string()))?;
    Ok(Some(Box::new(network)))
}

fn pools(config: &Config) -> Vec<Pool> {
    config.pools.external.iter().chain(&config.pools.internal).copied().collect()
}

/// Checks that the host itself has no address of the pools. Those of an earlier process disappear at the end of their lifetime, unless
/// this one renews them.
async fn check_pools(pools: &[Pool], host: impl AsyncFn() -> BTreeSet<IpAddr>) -> Result<(), String> {
    let end = Instant::now() + LIFETIME + GRACE;
    loop {
        let found = host().await.into_iter().find_map(|ip| Some((ip, pools.iter().find(|pool| pool.contains(&ip))?)));
        match found {
            None => return Ok(()),
            Some((ip, pool)) if Instant::now() > end => {
                return Err(format!(
                    "the pool {pool} contains the address {ip} of this host; fix: remove that address from `pool` or `internalPool`, or \
                     from the host"
                ));
            }
            Some(_) => sleep(Duration::from_millis(200)).await,
        }
    }
}

impl Interface for Network {
    fn hold<'a>(
        &'a self,
        addresses: &'a BTreeSet<IpAddr>,
        takeover: bool,
    ) -> Pin<Box<dyn Future<Output = Held> + Send + 'a>> {
        Box::pin(async move {
            let report = Network::hold(self, addresses, takeover).await;
            let problems = report.problems.iter().map(ToString::to_string).collect();
            Held { addresses: report.held.len(), problems }
        })
    }

    fn link_address(&self) -> Option<String> {
        Network::link_address(self).map(|link| link.to_string())
    }

    fn is_connected(&self) -> bool {
        Network::is_connected(self)
    }

    fn set_peers(&self, link_addresses: &BTreeSet<String>) {
        let peers: BTreeSet<MacAddress> = link_addresses.iter().filter_map(|link| link.parse().ok()).collect();
        Network::set_peers(self, peers);
    }

    fn sightings(&self) -> Vec<Sighting> {
        let mut latest = BTreeMap::new();
        for seen in self.observations() {
            latest.insert((seen.address, seen.by.to_string(), seen.kind), seen.at);
        }
        let sighting =
            |((address, by, kind), at)| Sighting { is_conflict: kind == SeenKind::Conflict, address, by, at };
        latest.into_iter().map(sighting).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_address_of_the_host_in_a_pool_is_an_error_unless_it_disappears() {
        let pools = ["192.0.2.0/29".parse().unwrap()];
        let own = BTreeSet::from(["127.0.0.1".parse().unwrap(), "192.0.2.3".parse().unwrap()]);
        let error = check_pools(&pools, async || own.clone()).await.unwrap_err();
        assert!(
            error.starts_with("the pool 192.0.2.0/29 contains the address 192.0.2.3 of this host; fix: "),
            "{error}"
        );
        let start = Instant::now();
        let host = async || if start.elapsed() < LIFETIME { own.clone() } else { BTreeSet::new() };
        check_pools(&pools, host).await.unwrap();
    }
}
