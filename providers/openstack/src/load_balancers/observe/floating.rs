//! Observes the floating IP, and the network and subnets of a new one.

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
    /// Reads the floating IP, and the network of a new one unless one is attached.
    pub(super) async fn floating(&self, service: Service<'_>) -> Result<(Floating, Vec<Warning>)> {
        let Service { spec, settings, balancer, .. } = service;
        let mut floating = Floating { attached: self.attached(balancer).await?, ..Floating::default() };
        if settings.internal || settings.is_ipv6(balancer) || floating.attached.is_some() {
            return Ok((floating, Vec::new()));
        }
        let address = spec.requested_address.as_deref().filter(|address| !address.is_empty());
        if let Some(address) = address {
            let of_address = self.reader.floating_ips("floating_ip_address", address, |it| &it.floating_ip_address);
            floating.requested = of_address.await?.into_iter().next();
        }
        let network = match settings.floating.network_id.as_str() {
            "" => self.reader.detected_network().await?.map(|network| network.id),
            id => Some(id.to_owned()),
        };
        let Some(network) = network else { return Ok((floating, vec![no_network()])) };
        floating.subnets = self.floating_subnets(settings, &network, address.is_some()).await?;
        floating.network_id = Some(network);
        Ok((floating, Vec::new()))
    }

    /// Reads the floating IPs to delete: the attached one, and unattached ones of a Service that does not exist any more.
    pub(super) async fn floating_to_remove(
        &self,
        names: &Names<'_>,
        balancer: Option<&LoadBalancer>,
    ) -> Result<Floating> {
        let attached = self.attached(balancer).await?;
        let described = names.floating_ip_description();
        let mut leftovers = match names.has_uid() {
            true => Vec::new(),
            false => self.reader.floating_ips("description", &described, |floating| &floating.description).await?,
        };
        // An attached one is in use, whatever its description is.
        leftovers.retain(|floating| floating.port_id.is_empty());
        Ok(Floating { attached, leftovers, ..Floating::default() })
    }

    async fn attached(&self, balancer: Option<&LoadBalancer>) -> Result<Option<FloatingIp>> {
        let port = balancer.filter(|balancer| !balancer.has_ipv6_vip()).map(|balancer| balancer.vip_port_id.as_str());
        let Some(port) = port.filter(|port| !port.is_empty()) else { return Ok(None) };
        let found = self.reader.floating_ips("port_id", port, |floating| &floating.port_id).await?;
        Ok(found.into_iter().next())
    }

    /// Returns the subnets to try, in this order. Without any, Neutron chooses.
    async fn floating_subnets(&self, settings: &Settings, network: &str, has_address: bool) -> Result<Vec<String>> {
        let written = &settings.floating.subnet;
        if !written.id.is_empty() {
            self.check_subnet(&written.id, network).await?;
            return Ok(vec![written.id.clone()]);
        }
        let pattern =
            SubnetPattern::parse(written).map_err(|error| invalid_config(error.to_string()).retry(Retry::Never))?;
        let Some(pattern) = pattern.filter(|_| !has_address) else { return Ok(Vec::new()) };
        let all = self.reader.subnets_of(network).await?;
        let fitting: Vec<_> = all.iter().filter(|subnet| pattern.matches(subnet)).map(|it| it.id.clone()).collect();
        match fitting.is_empty() {
            true => Err(no_subnet(&written.name, &written.tags, network, all.len())),
            false => Ok(fitting),
        }
    }

    /// Checks that a subnet is in the external network. Its subnets often belong to another project and are not visible, but the
    /// network lists their IDs.
    async fn check_subnet(&self, id: &str, network: &str) -> Result<()> {
        if let Some(subnet) = self.reader.subnet(id).await? {
            return is_in(&subnet.network_id, id, network);
        }
        let known = self.reader.network(network).await?;
        match known.is_some_and(|known| known.subnets.iter().any(|subnet| subnet == id)) {
            true => Ok(()),
            false => Err(invalid_config(format!("floating-subnet-id: network {network} has no subnet {id}"))),
        }
    }
}

// ---- errors

fn is_in(of: &str, id: &str, network: &str) -> Result<()> {
    match of == network {
        true => Ok(()),
        false => Err(invalid_config(format!("floating-subnet-id: subnet {id} is in network {of}, not in {network}"))),
    }
}

fn no_subnet(name: &str, tags: &str, network: &str, others: usize) -> Error {
    let pattern = match (name, tags) {
        (name, "") => format!("floating-subnet {name:?}"),
        ("", tags) => format!("floating-subnet-tags {tags:?}"),
        (name, tags) => format!("floating-subnet {name:?} and floating-subnet-tags {tags:?}"),
    };
    invalid_config(format!("{pattern}: none of the {others} visible subnets of network {network} matches"))
}

/// An operator may fix the cloud without a change of the Service.
fn invalid_config(message: String) -> Error {
    Error::new(ErrorKind::InvalidConfig, OBSERVE, message).retry(Retry::Backoff)
}

fn no_network() -> Warning {
    let message = "found no external network with an IPv4 subnet for floating IPs; set floating-network-id in cloud.conf, in the \
                   class or as an annotation";
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
    fn case_131_an_ipv6_only_network_is_not_chosen() {
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
