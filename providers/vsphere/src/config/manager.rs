//! The NSX manager and its features, and agents in place of them. An invalid section switches its features off, and is reported as a
//! warning. To configure a feature both with NSX and with agents is an error.

use std::path::PathBuf;

use bowline_agent_client::{AgentConfig, AgentKeys};
use bowline_cloud::SecretRef;
use bowline_config::table::View;
use bowline_config::{ConfigError, ConfigErrors};

use super::keys::{Class, LoadBalancer, Nsx, Part, Route};
use super::nsx::{LoadBalancerConfig, NsxConfig, NsxCredentials, PasswordScheme};
use super::read::Reader;
use crate::routes::Gateway;

/// Features that are on.
#[derive(Default)]
pub(super) struct Features {
    pub(super) nsx: Option<NsxConfig>,
    pub(super) load_balancers: Option<LoadBalancerConfig>,
    pub(super) agent: Option<AgentConfig>,
    pub(super) agent_routes: bool,
    pub(super) router_path: Option<String>,
    /// Errors that switched features off.
    pub(super) errors: Vec<ConfigError>,
}

const BOTH_OFF: &str = "load balancers and routes are off until this is corrected";
const LOAD_BALANCERS_OFF: &str = "load balancers are off until this is corrected";
const ROUTES_OFF: &str = "routes are off until this is corrected";

impl Reader<'_> {
    /// Returns the features that are configured and valid. `invalid` has the errors of single values in their sections.
    pub(super) fn features(&mut self, invalid: Vec<ConfigError>) -> Features {
        self.check_agent();
        let (of_agent, invalid): (Vec<_>, Vec<_>) =
            invalid.into_iter().partition(|error| self.is_in(error, &[Part::Agent]));
        let (of_load_balancers, others): (Vec<_>, Vec<_>) =
            invalid.into_iter().partition(|error| self.is_in(error, &[Part::LoadBalancer, Part::Class]));
        let (of_routes, of_nsx): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|error| self.is_in(error, &[Part::Route]));
        let mut errors = Vec::new();
        let has_load_balancers = self.has_load_balancers();
        let load_balancers = has_load_balancers.then(|| self.load_balancers());
        let load_balancers = valid(load_balancers, of_load_balancers, LOAD_BALANCERS_OFF, &mut errors);
        let router_path = self.router_path();
        let is_needed = has_load_balancers || router_path.is_some();
        let router_path = valid(router_path, of_routes, ROUTES_OFF, &mut errors);
        let nsx = valid(is_needed.then(|| self.manager()), of_nsx, BOTH_OFF, &mut errors);
        let effect = if self.has_agent_routes() { BOTH_OFF } else { LOAD_BALANCERS_OFF };
        let agent = valid(self.agent(), of_agent, effect, &mut errors);
        let agent_routes = agent.is_some() && self.has_agent_routes();
        self.warnings.extend(errors.iter().cloned());
        let of_agents = Features { agent, agent_routes, errors, ..Features::default() };
        match nsx.filter(|_| load_balancers.is_some() || router_path.is_some()) {
            Some(nsx) => Features { nsx: Some(nsx), load_balancers, router_path, ..of_agents },
            None => of_agents,
        }
    }

    fn is_in(&self, error: &ConfigError, parts: &[Part]) -> bool {
        let field = error.field.as_deref().unwrap_or_default();
        parts.iter().any(|part| part.has(self.format, field))
    }

    /// Fails if a feature is configured both with NSX and with agents, and if the key of an older version is set.
    fn check_agent(&mut self) {
        let (load_balancer, route) = (self.view(Part::LoadBalancer), self.view(Part::Route));
        if load_balancer.has(&LoadBalancer::agent) {
            let error =
                load_balancer.error(&LoadBalancer::agent, "load balancers by agents have a section of their own");
            self.error(
                error,
                "remove it, and write the section agent with endpoints, caFile, certificateFile and keyFile",
            );
        }
        let agent = self.view(Part::Agent);
        if AgentConfig::is_present(&agent) && self.has_load_balancers() {
            let name = Part::LoadBalancer.name(self.format);
            let message = format!("{name} configures load balancers of NSX as well, and a cluster has one of both");
            self.error(agent.error(&AgentKeys::endpoints, message), &format!("remove agent or {name}"));
        }
        if self.has_agent_routes() && !AgentConfig::is_present(&agent) {
            self.error(
                route.error(&Route::agents, "there are no agents"),
                "write the section agent, or remove this key",
            );
        }
        if self.has_agent_routes() && route.has(&Route::router_path) {
            let path = Route::router_path.name_in(self.format);
            let message = format!("{path} configures routes of NSX as well, and a cluster has one of both");
            self.error(route.error(&Route::agents, message), &format!("remove agents or {path}"));
        }
    }

    fn agent(&self) -> Option<Result<AgentConfig, Vec<ConfigError>>> {
        let view = self.view(Part::Agent);
        let read = || AgentConfig::read(view, ConfigErrors::new());
        let errors = |errors: ConfigErrors| errors.iter().cloned().collect::<Vec<_>>();
        AgentConfig::is_present(&view).then(|| read().map_err(errors))
    }

    fn has_agent_routes(&self) -> bool {
        self.section::<Route>(Part::Route).agents
    }

    fn has_load_balancers(&self) -> bool {
        let LoadBalancer { size, service_id, tier1, class, .. } = self.section(Part::LoadBalancer);
        let texts = [&size, &service_id, &tier1, &class.pool_id, &class.pool_name];
        let has_class = !self.settings.named::<Class>(Part::Class.name(self.format)).is_empty();
        has_class || texts.iter().any(|text| !text.is_empty())
    }

    fn router_path(&self) -> Option<Result<String, Vec<ConfigError>>> {
        let (view, Route { router_path, .. }) = (self.view(Part::Route), self.section(Part::Route));
        let error = |message: String| Some(Err(vec![view.error(&Route::router_path, message)]));
        match router_path.trim() {
            "" if view.has(&Route::router_path) => error("router path is required".to_owned()),
            "" => None,
            path => match Gateway::parse(path).ok().filter(|_| path.starts_with('/')) {
                Some(gateway) => Some(Ok(gateway.path())),
                None => error(format!("{path:?} is not the policy path of a gateway, such as /infra/tier-1s/ID")),
            },
        }
    }

    // ---- manager

    fn manager(&self) -> Result<NsxConfig, Vec<ConfigError>> {
        let (view, nsx) = (self.view(Part::Nsx), self.section::<Nsx>(Part::Nsx));
        let mut errors = incomplete(&view, &nsx);
        let credentials = credentials(&view, &nsx, &mut errors);
        if nsx.host.is_empty() {
            errors.push(view.error(&Nsx::host, "host is empty"));
        } else if nsx.host.contains(['/', '@', ' ']) {
            errors.push(view.error(&Nsx::host, "has a scheme, a user or a path").hint("write HOST or HOST:PORT"));
        }
        if nsx.vmc_auth_host.contains("://") {
            errors.push(view.error(&Nsx::vmc_auth_host, "has a scheme").hint("write HOST/PATH"));
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let is_set = !nsx.user.is_empty() && !nsx.password.is_empty();
        Ok(NsxConfig {
            host: nsx.host,
            insecure: nsx.insecure,
            ca_file: (!nsx.ca_file.is_empty()).then(|| PathBuf::from(nsx.ca_file)),
            credentials,
            password: is_set.then_some((nsx.user, nsx.password)),
        })
    }
}

/// Returns the value unless there are errors, which are collected with their effect.
fn valid<T>(
    value: Option<Result<T, Vec<ConfigError>>>,
    invalid: Vec<ConfigError>,
    effect: &str,
    errors: &mut Vec<ConfigError>,
) -> Option<T> {
    let (value, found) = match value {
        None => (None, Vec::new()),
        Some(Ok(value)) => (Some(value), Vec::new()),
        Some(Err(found)) => (None, found),
    };
    let is_valid = invalid.is_empty();
    for error in invalid.into_iter().chain(found) {
        let hint = error.hint.iter().map(String::as_str).chain([effect]).collect::<Vec<_>>().join("; ");
        errors.push(error.hint(hint));
    }
    value.filter(|_| is_valid)
}

/// Returns the errors of settings that need another one.
fn incomplete(view: &View<'_>, nsx: &Nsx) -> Vec<ConfigError> {
    let token = (Nsx::vmc_access_token, !nsx.vmc_access_token.is_empty());
    let certificate = (Nsx::client_certificate, !nsx.client_certificate.is_empty());
    let key = (Nsx::client_key, !nsx.client_key.is_empty());
    let name = (Nsx::secret_name, !nsx.secret_name.is_empty());
    let namespace = (Nsx::secret_namespace, !nsx.secret_namespace.is_empty());
    let has_secret = name.1 && namespace.1;
    // upstream: the same texts.
    let pairs = [
        (token, !nsx.vmc_auth_host.is_empty(), "vmc auth host must be provided if auth token is provided"),
        ((Nsx::user, !nsx.user.is_empty() && !has_secret), !nsx.password.is_empty(), "password is empty"),
        (key, certificate.1, "client cert file is required if client key file is provided"),
        (certificate, key.1, "client key file is required if client cert file is provided"),
        (name, namespace.1, "secret namespace is required if secret name is provided"),
        (namespace, name.1, "secret name is required if secret namespace is provided"),
    ];
    let incomplete = pairs.into_iter().filter(|((_, is_set), has_other, _)| *is_set && !has_other);
    incomplete.map(|((key, _), _, message)| view.error(&key, message)).collect()
}

/// Returns the first complete credentials.
fn credentials(view: &View<'_>, nsx: &Nsx, errors: &mut Vec<ConfigError>) -> NsxCredentials {
    let scheme = if nsx.remote_auth { PasswordScheme::Remote } else { PasswordScheme::Basic };
    if !nsx.client_certificate.is_empty() {
        let (certificate, key) = (PathBuf::from(&nsx.client_certificate), PathBuf::from(&nsx.client_key));
        return NsxCredentials::Certificate { certificate, key };
    }
    if !nsx.vmc_access_token.is_empty() {
        return NsxCredentials::Vmc { token: nsx.vmc_access_token.clone(), auth_host: nsx.vmc_auth_host.clone() };
    }
    if !nsx.secret_name.is_empty() && !nsx.secret_namespace.is_empty() {
        let name = format!("{}/{}", nsx.secret_namespace, nsx.secret_name);
        let Some(secret) = SecretRef::parse(&name) else {
            errors.push(view.error(&Nsx::secret_name, format!("{name:?} is not the name of a Secret")));
            return NsxCredentials::Anonymous;
        };
        return NsxCredentials::Secret { secret, scheme };
    }
    if nsx.user.is_empty() && errors.is_empty() {
        errors.push(view.error(&Nsx::user, "user or vmc access token or client cert file must be set"));
    }
    NsxCredentials::Password { user: nsx.user.clone(), password: nsx.password.clone(), scheme }
}
