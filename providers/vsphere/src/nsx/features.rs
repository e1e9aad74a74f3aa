//! NSX as far as the configuration enables it: client, load balancers and routes.

use bowline_cloud::{Calls, CheckResult, LoadBalancerCapabilities, LoadBalancers, Result, RouteCapabilities, Routes};
use bowline_config::ConfigErrors;

use super::{Clients, Nsx, SecretLogin, diagnose};
use crate::config::Config;
use crate::config::nsx::{LoadBalancerConfig, NsxConfig};
use crate::load_balancers::{self, NsxLoadBalancers};
use crate::routes::{self, Gateway, NsxRoutes};

/// An NSX manager with the interfaces of the provider that are enabled.
pub(crate) struct NsxFeatures {
    nsx: Nsx,
    load_balancers: Option<NsxLoadBalancers>,
    routes: Option<NsxRoutes>,
    config: Option<LoadBalancerConfig>,
    gateway: Option<Gateway>,
}

impl NsxFeatures {
    /// Creates them for this manager. Makes no call. See [`Nsx::new`] for the other parameters.
    pub(crate) fn new(
        manager: &NsxConfig,
        config: &Config,
        clients: Clients,
        secret: SecretLogin,
        calls: &Calls,
        user_agents: &[String],
    ) -> std::result::Result<NsxFeatures, ConfigErrors> {
        let nsx = Nsx::new(manager, clients, secret, calls, user_agents)?;
        let gateway = config.router_path.as_deref().map(Gateway::parse).transpose()?;
        let config = config.load_balancers.clone();
        Ok(NsxFeatures {
            load_balancers: config.clone().map(|config| NsxLoadBalancers::new(nsx.clone(), config)),
            routes: gateway.clone().map(|gateway| NsxRoutes::new(nsx.clone(), gateway)),
            nsx,
            config,
            gateway,
        })
    }

    pub(crate) fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        self.load_balancers.as_ref().map(|all| all as &dyn LoadBalancers)
    }

    pub(crate) fn load_balancer_capabilities(&self) -> Option<LoadBalancerCapabilities> {
        self.load_balancers.as_ref().map(|_| load_balancers::capabilities())
    }

    pub(crate) fn routes(&self) -> Option<&dyn Routes> {
        self.routes.as_ref().map(|all| all as &dyn Routes)
    }

    pub(crate) fn route_capabilities(&self) -> Option<RouteCapabilities> {
        self.routes.as_ref().map(|_| routes::capabilities())
    }

    /// Makes the smallest call that verifies host and credentials.
    pub(crate) async fn check(&self) -> Result<()> {
        self.nsx.check().await
    }

    /// Checks everything that the configuration refers to, for `bowline check`.
    pub(crate) async fn diagnose(&self) -> Vec<CheckResult> {
        diagnose::diagnose(&self.nsx, self.config.as_ref(), self.gateway.as_ref()).await
    }
}
