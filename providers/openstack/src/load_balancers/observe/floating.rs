//! The floating IP that there is, and where another one would come from.

use bowline_cloud::{Error, ErrorKind, Result, Retry};
use bowline_core::Warning;

use super::super::names::Names;
use super::super::observation::Floating;
use super::super::settings::Settings;
use super::super::subnets::SubnetPattern;
use super::{OBSERVE, Observer, Service};
use crate::api::network::FloatingIp;
use crate::api::octavia::LoadBalancer;

impl Observer<'_> {
    /// Where there is one, nobody looks for another.
    pub(super) async fn floating(&self, service: Service<'_>) -> Result<(Floating, Vec<Warning>)> {
        let Service { spec, settings, balancer, .. } = service;
        let mut floating = Floating { attached: self.attached(balancer).await?, ..Floating::default() };
        if settings.internal || settings.is_ipv6(balancer) || floating.attached.is_some() {
            return Ok((floating, Vec::new()));
        }
        let address = spec.requested_address.as_deref().filter(|address| !address.is_empty());
        if let Some(address) = address {
            let of_address = self.sight.floating_ips("floating_ip_address", address, |it| &it.floating_ip_address);
            floating.requested = of_address.await?.into_iter().next();
        }
        let network = match settings.floating.network_id.as_str() {
            "" => self.sight.detected_network().await?.map(|network| network.id),
            id => Some(id.to_owned()),
        };
        let Some(network) = network else { return Ok((floating, vec![no_network()])) };
        floating.subnets = self.floating_subnets(settings, &network, address.is_some()).await?;
        floating.network_id = Some(network);
        Ok((floating, Vec::new()))
    }

    /// What goes with a balancer, and what is left of one if the Service is forgotten.
    pub(super) async fn floating_to_remove(
        &self,
        names: &Names<'_>,
        balancer: Option<&LoadBalancer>,
    ) -> Result<Floating> {
        let attached = self.attached(balancer).await?;
        let described = names.floating_ip_description();
        let mut leftovers = match names.has_uid() {
            true => Vec::new(),
            false => self.sight.floating_ips("description", &described, |floating| &floating.description).await?,
        };
        // One at a port is in use, whatever its description says.
        leftovers.retain(|floating| floating.port_id.is_empty());
        Ok(Floating { attached, leftovers, ..Floating::default() })
    }

    async fn attached(&self, balancer: Option<&LoadBalancer>) -> Result<Option<FloatingIp>> {
        let port = balancer.filter(|balancer| !balancer.has_ipv6_vip()).map(|balancer| balancer.vip_port_id.as_str());
        let Some(port) = port.filter(|port| !port.is_empty()) else { return Ok(None) };
        let found = self.sight.floating_ips("port_id", port, |floating| &floating.port_id).await?;
        Ok(found.into_iter().next())
    }

    /// Those that are to be tried, in this order; none leaves it to Neutron.
    async fn floating_subnets(&self, settings: &Settings, network: &str, has_address: bool) -> Result<Vec<String>> {
        let written = &settings.floating.subnet;
        if !written.id.is_empty() {
            self.check_subnet(&written.id, network).await?;
            return Ok(vec![written.id.clone()]);
        }
        let pattern = SubnetPattern::parse(written).map_err(|error| wrong(error.to_string()).retry(Retry::Never))?;
        let Some(pattern) = pattern.filter(|_| !has_address) else { return Ok(Vec::new()) };
        let all = self.sight.subnets_of(network).await?;
        let fitting: Vec<_> = all.iter().filter(|subnet| pattern.matches(subnet)).map(|it| it.id.clone()).collect();
        match fitting.is_empty() {
            true => Err(no_subnet(&written.name, &written.tags, network, all.len())),
            false => Ok(fitting),
        }
    }

    /// Subnets of an external network are often somebody else's and not to be seen; the network tells which it has all the same.
    async fn check_subnet(&self, id: &str, network: &str) -> Result<()> {
        if let Some(subnet) = self.sight.subnet(id).await? {
            return is_in(&subnet.network_id, id, network);
        }
        let known = self.sight.network(network).await?;
        match known.is_some_and(|known| known.subnets.iter().any(|subnet| subnet == id)) {
            true => Ok(()),
            false => Err(wrong(format!("floating-subnet-id: the network {network} has no subnet {id}"))),
        }
    }
}

// ---- what is wrong

fn is_in(of: &str, id: &str, network: &str) -> Result<()> {
    match of == network {
        true => Ok(()),
        false => {
            Err(wrong(format!("floating-subnet-id: the subnet {id} is in the network {of}, and not in {network}")))
        }
    }
}

fn no_subnet(name: &str, tags: &str, network: &str, others: usize) -> Error {
    let pattern = match (name, tags) {
        (name, "") => format!("floating-subnet {name:?}"),
        ("", tags) => format!("floating-subnet-tags {tags:?}"),
        (name, tags) => format!("floating-subnet {name:?} and floating-subnet-tags {tags:?}"),
    };
    wrong(format!("{pattern}: none of the {others} subnets of the network {network} that are visible fits"))
}

/// The cloud may be put right without a change of the Service.
fn wrong(message: String) -> Error {
    Error::new(ErrorKind::InvalidConfig, OBSERVE, message).retry(Retry::Backoff)
}

fn no_network() -> Warning {
    let message = "there is no external network with a subnet for IPv4 that floating IPs could come from; set \
                   floating-network-id in cloud.conf, in the class or as an annotation";
    Warning { reason: "LoadBalancerExternalNetworkSearchFailed".to_owned(), message: message.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::network::{Network, Subnet};

    fn network(subnets: &[&str]) -> Network {
        Network { subnets: subnets.iter().map(|&id| id.to_owned()).collect(), ..Network::default() }
    }

    fn subnet(id: &str, ip_version: u8) -> Subnet {
        Subnet { id: id.to_owned(), ip_version, network_id: "n1".to_owned(), ..Subnet::default() }
    }

    #[test]
    fn case_131_a_network_for_ipv6_alone_is_not_chosen() {
        let visible = [subnet("s4", 4), subnet("s6", 6)];
        assert!(network(&["s6", "s4"]).serves_ipv4(&visible));
        assert!(!network(&["s6"]).serves_ipv4(&visible));
        assert!(network(&["s6", "hidden"]).serves_ipv4(&visible));
        assert!(!network(&[]).serves_ipv4(&visible));
    }

    #[test]
    fn case_129_a_subnet_of_another_network_is_an_error_that_names_both() {
        assert!(is_in("n1", "s4", "n1").is_ok());
        let error = is_in("n1", "s4", "n2").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        assert!(error.message().contains("n1") && error.message().contains("n2"), "{error}");
    }
}
