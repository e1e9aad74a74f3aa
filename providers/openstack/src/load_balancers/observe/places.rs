//! Where the balancer and its members are, and whether the certificate is there.

use bowline_cloud::{Error, ErrorKind, Result, Retry};

use super::super::observation::Places;
use super::super::servers::{self, Backend};
use super::super::settings::Settings;
use super::{OBSERVE, Observer, Service, told};
use crate::api::key_manager;
use crate::api::network::{self, Port};

impl Observer<'_> {
    /// What is configured; where nothing is, the subnet of the first node.
    pub(super) async fn places(&self, service: Service<'_>) -> Result<Places> {
        let Service { spec, settings, .. } = service;
        if !settings.places.detect {
            return Ok(settings.places.with(None));
        }
        let backends = servers::behind(self.config, &spec.targets, settings.family)?;
        let detected = match backends.first() {
            Some(first) => Some(self.subnet_of(first).await?),
            None if spec.targets.iter().all(|target| target.draining) => None,
            None => return Err(nowhere("no node has an address and a provider ID".to_owned())),
        };
        Ok(settings.places.with(detected.as_deref()))
    }

    /// The port that has the VIP which a new load balancer is to get, if the Service requests one. Octavia would answer with a fault
    /// of the server, which says nothing of what to do.
    pub(super) async fn vip_holder(&self, service: Service<'_>, places: &Places) -> Result<Option<Port>> {
        let Service { spec, settings, .. } = service;
        let Some(address) = settings.vip_address(spec).filter(|_| settings.places.vip_port_id.is_empty()) else {
            return Ok(None);
        };
        let fixed_ip = format!("ip_address={address}");
        let ports = network::PORTS.list(self.sight.session, &[("fixed_ips", &fixed_ip)]).await.map_err(told)?;
        let is_there = |port: &Port| {
            let is_in_subnet = port.fixed_ips.iter().any(|ip| ip.subnet_id == places.vip_subnet_id);
            is_in_subnet || port.network_id == places.vip_network_id
        };
        Ok(ports.into_iter().find(is_there))
    }

    /// Through the ports of the node's own server: the same address may be in use in another network of the project.
    async fn subnet_of(&self, backend: &Backend<'_>) -> Result<String> {
        let ports = self.sight.ports_of(&[&backend.server]).await?;
        let mut addresses = ports.into_iter().flat_map(|port| port.fixed_ips);
        let found = addresses.find(|ip| ip.ip_address == backend.address);
        found.map(|ip| ip.subnet_id).ok_or_else(|| {
            nowhere(format!("server {} has no port with the address {} of its node", backend.server, backend.address))
        })
    }

    /// An error if the certificate that is named is not there.
    pub(super) async fn check_certificate(&self, settings: &Settings) -> Result<()> {
        let Some(secret) = settings.tls_secret(self.config)? else { return Ok(()) };
        key_manager::exists(self.sight.session, secret).await.map_err(|error| {
            let error = told(error);
            let reference = &settings.tls_container_ref;
            error.context("default-tls-container-ref", reference.clone())
        })
    }
}

/// It may be otherwise once the nodes are ready, so that is no reason to give up.
fn nowhere(why: String) -> Error {
    let message = format!(
        "neither subnet-id nor network-id is configured, and the subnet of the nodes cannot be told: {why}; set subnet-id in \
         cloud.conf"
    );
    Error::new(ErrorKind::InvalidConfig, OBSERVE, message).retry(Retry::Backoff)
}
