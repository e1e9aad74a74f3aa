//! HTTP clients: one for each vCenter, because each has its own TLS settings, those of NSX, and the one of agents.

use std::sync::Arc;

use bowline_agent_client::{AgentConfig, Agents};
use bowline_cloud::BuildContext;
use bowline_config::{ConfigError, ConfigErrors, Environment};
use bowline_http::{Client, Options, Proxies, RequestError, Roots, Tls};
use bytes::Bytes;
use http::Request;

use crate::config::VcenterConfig;
use crate::config::nsx::NsxConfig;
use crate::nsx;
use crate::vcenter::TIMEOUT;

/// HTTP clients of a provider.
pub(crate) enum Clients {
    /// Clients with the TLS settings of the configuration and the proxies of the environment.
    Network { proxies: Proxies, environment: Environment },
    /// All calls go through one client.
    Single(Client),
}

impl Clients {
    pub(crate) fn from_environment(context: &BuildContext<'_>) -> Result<Clients, ConfigError> {
        let proxies = Proxies::from_environment(context.environment);
        let proxies = proxies.map_err(|error| ConfigError::new(error.to_string()))?;
        Ok(Clients::Network { proxies, environment: context.environment.clone() })
    }

    /// Returns the client of a vCenter.
    pub(crate) fn of(&self, config: &VcenterConfig) -> Result<Client, ConfigErrors> {
        match self {
            Clients::Network { proxies, .. } => Ok(client(tls(config)?, proxies.clone())?),
            Clients::Single(client) => Ok(client.clone()),
        }
    }

    /// Returns the client of session managers.
    // upstream: the CA certificates of the system, and no proxy.
    pub(crate) fn of_session_managers(&self) -> Result<Client, ConfigError> {
        match self {
            Clients::Network { .. } => client(Tls::default(), Proxies::default()),
            Clients::Single(client) => Ok(client.clone()),
        }
    }

    /// Returns the agents of a group.
    pub(crate) fn of_agents(&self, config: &AgentConfig, context: &BuildContext<'_>) -> Result<Agents, ConfigErrors> {
        match self {
            Clients::Network { .. } => Agents::new(config, context),
            Clients::Single(client) => Ok(Agents::over(client.clone(), context.calls)),
        }
    }

    /// Returns the clients of an NSX manager.
    pub(crate) fn of_nsx(&self, config: &NsxConfig) -> Result<nsx::Clients, ConfigErrors> {
        match self {
            Clients::Network { environment, .. } => nsx::Clients::connect(config, environment),
            Clients::Single(client) => Ok(nsx::Clients { manager: client.clone(), tokens: client.clone() }),
        }
    }
}

fn client(tls: Tls, proxies: Proxies) -> Result<Client, ConfigError> {
    let client = Client::new(Options { tls, proxies, timeout: TIMEOUT });
    client.map_err(|error| ConfigError::new(error.to_string()))
}

/// Returns a client for a vCenter whose settings cannot be used: every request fails with their errors.
pub(crate) fn failing(errors: &ConfigErrors) -> Client {
    let message = errors.to_string();
    let fail = move |_: Request<Bytes>| std::future::ready(Err(RequestError::Request(message.clone())));
    Client::in_process(Arc::new(fail), TIMEOUT)
}

/// Returns the TLS settings of a vCenter.
fn tls(config: &VcenterConfig) -> Result<Tls, ConfigErrors> {
    let roots = match config.ca_files.as_slice() {
        [] => Roots::System,
        files => Roots::from_files(files).map_err(|errors| {
            let mut invalid = ConfigErrors::new();
            errors.iter().for_each(|error| invalid.push(ConfigError::new(error.to_string()).field("caFile")));
            invalid
        })?,
    };
    // The configuration has a valid fingerprint or none.
    let fingerprint = config.thumbprint.parse().ok();
    Ok(Tls { roots, fingerprint, insecure: config.insecure, client: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// VS-44
    #[test]
    fn a_ca_file_replaces_the_authorities_of_the_system() {
        let roots = |ca_files| tls(&VcenterConfig { ca_files, ..VcenterConfig::default() }).unwrap().roots;
        assert!(matches!(roots(Vec::new()), Roots::System));
        let certificate = rcgen::generate_simple_self_signed(["vc".to_owned()]).unwrap().cert.pem();
        let path = std::env::temp_dir().join(format!("bowline-vsphere-ca-{}.pem", std::process::id()));
        std::fs::write(&path, &certificate).unwrap();
        assert!(matches!(roots(vec![path.clone()]), Roots::Pem(text) if text.trim() == certificate.trim()));
        std::fs::remove_file(path).unwrap();
    }
}
