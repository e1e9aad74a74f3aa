//! Observes subnets, the requested VIP and the certificate.

use bowline_cloud::{Error, ErrorKind, Result, Retry};

use super::super::observation::Placement;
use super::super::servers::{self, Backend};
use super::super::settings::Settings;
use super::{OBSERVE, Observer, Service, during_observe};
use crate::api::key_manager;
use crate::api::network::{self, Port};

impl Observer<'_> {
    /// Returns the configured subnets and networks, by default the subnet of the first node.
    pub(super) async fn placement(&self, service: Service<'_>) -> Result<Placement> {
        let Service { spec, settings, .. } = service;
        if !settings.placement.detect {
            return Ok(settings.placement.with(None));
        }
        let backends = servers::behind(self.config, &spec.targets, settings.family)?;
        let detected = match backends.first() {
            Some(first) => Some(self.subnet_of(first).await?),
            None if spec.targets.iter().all(|target| target.draining) => None,
            None => return Err(no_subnet("no node has an address and a provider ID".to_owned())),
        };
        Ok(settings.placement.with(detected.as_deref()))
    }

    /// Returns the port that has the VIP which the Service requests for a new load balancer. Octavia would answer with an internal
    /// server error, which does not help the user.
    pub(super) async fn vip_holder(&self, service: Service<'_>, placement: &Placement) -> Result<Option<Port>> {
        let Service { spec, settings, .. } = service;
        let Some(address) = settings.vip_address(spec).filter(|_| settings.placement.vip_port_id.is_empty()) else {
            return Ok(None);
        };
        let fixed_ip = format!("ip_address={address}");
        let ports =
            network::PORTS.list(self.reader.session, &[("fixed_ips", &fixed_ip)]).await.map_err(during_observe)?;
        let is_in_placement = |port: &Port| {
            let is_in_subnet = port.fixed_ips.iter().any(|ip| ip.subnet_id == placement.vip_subnet_id);
            is_in_subnet || port.network_id == placement.vip_network_id
        };
        Ok(ports.into_iter().find(is_in_placement))
    }

    /// Reads the subnet from the ports of the node's own server: another network of the project may have the same address.
    async fn subnet_of(&self, backend: &Backend<'_>) -> Result<String> {
        let ports = self.reader.ports_of(&[&backend.server]).await?;
        let mut addresses = ports.into_iter().flat_map(|port| port.fixed_ips);
        let found = addresses.find(|ip| ip.ip_address == backend.address);
        found.map(|ip| ip.subnet_id).ok_or_else(|| {
            no_subnet(format!("server {} has no port with the address {} of its node", backend.server, backend.address))
        })
    }

    /// Fails if the configured certificate does not exist.
    pub(super) async fn check_certificate(&self, settings: &Settings) -> Result<()> {
        let Some(secret) = settings.tls_secret(self.config)? else { return Ok(()) };
        key_manager::exists(self.reader.session, secret).await.map_err(|error| {
            let error = during_observe(error);
            let reference = &settings.tls_container_ref;
            error.context("default-tls-container-ref", reference.clone())
        })
    }
}

/// Retried, because it may be solved once the nodes are ready.
fn no_subnet(why: String) -> Error {
    let message = format!(
        "neither subnet-id nor network-id is configured, and the subnet of the nodes is unknown: {why}; set subnet-id in cloud.conf"
    );
    Error::new(ErrorKind::InvalidConfig, OBSERVE, message).retry(Retry::Backoff)
}
