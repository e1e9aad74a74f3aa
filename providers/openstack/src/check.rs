//! Checks that the cloud matches the configuration: at startup, in health checks, and for `bowline check`.

use bowline_cloud::{CheckResult, Error, ErrorKind, Quota, Result};
use futures::future::{join_all, try_join_all};
use http::Method;
use serde::de::DeserializeOwned;

use crate::OpenStack;
use crate::api::key_manager::Stored;
use crate::api::network::{NETWORKS, Network, Router, SUBNETS, Subnet};
use crate::api::{Collection, key_manager, network, octavia};
use crate::config::Class;
use crate::load_balancers::CloudReader;
use crate::session::{Access, Service};

impl OpenStack {
    /// Returns the services that must respond.
    fn required_services(&self) -> Vec<Service> {
        let octavia = self.config.load_balancer.enabled.then_some(Service::LoadBalancer);
        [Service::Compute, Service::Network].into_iter().chain(octavia).collect()
    }

    /// Logs configuration warnings.
    fn warn(&self) {
        self.config.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    }

    /// Fails on permanent errors, and logs all others.
    pub(crate) async fn start_up(&self) -> Result<()> {
        let access = self.session.access().await.map_err(|error| error.during("authenticate"))?;
        let octavia_and_barbican =
            self.config.load_balancer.enabled.then_some([Service::LoadBalancer, Service::KeyManager]);
        for service in
            [Service::Compute, Service::Network].into_iter().chain(octavia_and_barbican.into_iter().flatten())
        {
            let Err(error) = access.endpoint(service) else { continue };
            if service == Service::LoadBalancer {
                let hint = "set enabled = false in [LoadBalancer] if Services get no load balancers";
                let message = format!("{}; {hint}", error.message());
                return Err(Error::new(ErrorKind::InvalidConfig, "find the endpoint", message));
            }
            tracing::warn!(%error, "operations that need this service will fail");
        }
        self.warn();
        Ok(())
    }

    /// Makes the smallest call to every service.
    pub(crate) async fn check_services(&self) -> Result<()> {
        try_join_all(self.required_services().into_iter().map(|service| self.list_one(service))).await.map(drop)
    }

    /// Lists one resource of a service.
    async fn list_one(&self, service: Service) -> Result<()> {
        let (name, path): (_, &[&str]) = match service {
            Service::Compute => ("server_list", &["servers", "detail"]),
            Service::Network => ("network_list", &["networks"]),
            _ => ("loadbalancer_list", &["loadbalancers"]),
        };
        // Nova has no `fields`.
        let fields = (service != Service::Compute).then_some(("fields", "id"));
        let query: Vec<_> = [("limit", "1")].into_iter().chain(fields).collect();
        let call = self.session.call(name, service, Method::GET, path).query(&query);
        during(call.send().await, &operation_of(service))
    }

    /// Checks every resource that the configuration refers to. If authentication fails, reports only that.
    pub(crate) async fn diagnose_all(&self) -> Vec<CheckResult> {
        self.warn();
        let access = match self.session.access().await {
            Ok(access) => access,
            Err(error) => return vec![result("credentials", Err(error.during("authenticate")))],
        };
        let mut results = vec![result("credentials", Ok(describe_access(&access)))];
        if self.config.load_balancer.enabled && may_only_read(&access.roles) {
            results.push(result("roles", Err(read_only(&access.roles))));
        }
        for service in self.required_services() {
            results.push(self.diagnose_service(&access, service).await);
        }
        if self.config.load_balancer.enabled {
            results.push(self.diagnose_barbican(&access).await);
        }
        let responds = |service| results.iter().any(|f| f.subject == endpoint_name(service) && f.outcome.is_ok());
        let (has_network, has_balancers) = (responds(Service::Network), responds(Service::LoadBalancer));
        if has_network {
            results.extend(self.diagnose_routes().await);
        }
        if has_network && self.config.load_balancer.enabled {
            results.extend(self.diagnose_networks().await);
        }
        if has_balancers {
            results.extend(self.diagnose_octavia().await);
        }
        results
    }

    async fn diagnose_service(&self, access: &Access, service: Service) -> CheckResult {
        let outcome = match access.endpoint(service) {
            Err(error) => Err(error.during(operation_of(service))),
            Ok(url) => self.list_one(service).await.map(|()| format!("{url} responds and grants read access")),
        };
        result(endpoint_name(service), outcome.map_err(|error| with_role(error, service)))
    }

    /// Checks Barbican, which is needed only for TLS.
    async fn diagnose_barbican(&self, access: &Access) -> CheckResult {
        let (subject, reference) = (endpoint_name(Service::KeyManager), &self.config.load_balancer.tls_container_ref);
        if let Err(error) = access.endpoint(Service::KeyManager) {
            let message = format!("{}; Services with a TLS certificate fail", error.message());
            return result(subject, Err(Error::new(ErrorKind::Unsupported, "find the endpoint", message)));
        }
        if reference.is_empty() || !self.config.load_balancer.uses_barbican() {
            return result(subject, Ok("the catalog has it".to_owned()));
        }
        let subject = "default-tls-container-ref in [LoadBalancer]";
        let outcome = match Stored::parse(reference) {
            Some(stored) => key_manager::exists(&self.session, stored).await,
            None => Err(Error::new(
                ErrorKind::InvalidConfig,
                "",
                format!("{reference:?} is not the URL of a container or a secret"),
            )),
        };
        result(subject, exists(outcome, "read the certificate"))
    }

    async fn diagnose_routes(&self) -> Vec<CheckResult> {
        let id = self.config.router_id.as_deref().unwrap_or_default();
        let described = |router: Router| Ok(format!("it has {} routes", router.routes.len()));
        let router = self.diagnose_resource("router-id", "[Route]", &network::ROUTERS, id, described).await;
        let Some(router) = router else { return Vec::new() };
        let extensions = network::extensions(&self.session).await;
        let has_routes = extensions.map(|all| all.iter().any(|one| one.alias.starts_with("extraroute")));
        let extension = during(has_routes, "list the extensions").and_then(|has_routes| match has_routes {
            true => Ok("Neutron supports routes of routers".to_owned()),
            false => {
                let message = "Neutron has no extension \"extraroute\", so routes cannot be created";
                Err(Error::new(ErrorKind::Unsupported, "list the extensions", message))
            }
        });
        vec![router, result("extension extraroute", extension)]
    }

    /// Checks the networks and subnets of load balancers and floating IPs.
    async fn diagnose_networks(&self) -> Vec<CheckResult> {
        let classes = self.config.classes.iter().map(|(name, class)| (format!("[LoadBalancerClass {name:?}]"), class));
        let sections = [("[LoadBalancer]".to_owned(), &self.config.load_balancer.placement)].into_iter().chain(classes);
        let results = sections.map(|(section, class)| self.diagnose_section(section, class));
        let mut results: Vec<_> = join_all(results).await.into_iter().flatten().collect();
        let settings = &self.config.load_balancer;
        if settings.placement.floating_network_id.is_empty() && !settings.internal {
            results.push(self.diagnose_external_network().await);
        }
        results
    }

    /// Without a configured network, floating IPs come from the first external network with IPv4.
    async fn diagnose_external_network(&self) -> CheckResult {
        let found = during(CloudReader::without_listings(&self.session).detected_network().await, "list the networks");
        let outcome = found.and_then(|found| {
            let message = "found no external network with an IPv4 subnet, so load balancers get no floating IPs unless \
                           floating-network-id is set";
            let network = found.ok_or_else(|| Error::new(ErrorKind::Unsupported, "list the networks", message))?;
            Ok(format!("floating IPs are taken from {:?}", network.name))
        });
        result("external network", outcome)
    }

    async fn diagnose_section(&self, section: String, class: &Class) -> Vec<CheckResult> {
        let named = |network: Network| Ok(format!("it is {:?}", network.name));
        let external = |network: Network| match network.external {
            true => Ok(format!("it is the external network {:?}", network.name)),
            false => Err(invalid_config(format!("network {:?} is not external (router:external)", network.name))),
        };
        let (network_id, subnet_id) = (&class.floating_network_id, &class.floating_subnet.id);
        let mut results = Vec::new();
        results.extend(self.diagnose_resource("network-id", &section, &NETWORKS, &class.network_id, named).await);
        results.extend(self.diagnose_resource("subnet-id", &section, &SUBNETS, &class.subnet_id, described).await);
        results.extend(
            self.diagnose_resource("member-subnet-id", &section, &SUBNETS, &class.member_subnet_id, described).await,
        );
        results.extend(self.diagnose_resource("floating-network-id", &section, &NETWORKS, network_id, external).await);
        if !subnet_id.is_empty() {
            let outcome = self.check_floating_subnet(network_id, subnet_id).await;
            results.push(result(format!("floating-subnet-id in {section}"), outcome));
        }
        results
    }

    /// Reads a resource by the ID of a key, if that is set.
    async fn diagnose_resource<T: DeserializeOwned>(
        &self,
        key: &str,
        section: &str,
        all: &Collection<T>,
        id: &str,
        describe: impl FnOnce(T) -> Result<String>,
    ) -> Option<CheckResult> {
        if id.is_empty() {
            return None;
        }
        let found = during(all.get(&self.session, id).await, &format!("read the {}", all.resource.name));
        Some(result(format!("{key} in {section}"), found.and_then(describe)))
    }

    async fn check_floating_subnet(&self, network_id: &str, id: &str) -> Result<String> {
        match SUBNETS.get(&self.session, id).await {
            Ok(subnet) if network_id.is_empty() || subnet.network_id == network_id => described(subnet),
            Ok(subnet) => Err(invalid_config(format!("it is in network {}, not in {network_id}", subnet.network_id))),
            // Projects rarely see the subnets of an external network, but the network lists their IDs.
            Err(error) if error.is_not_found() && self.is_hidden_in(network_id, id).await => {
                Ok("it exists, and is visible to its owner only".to_owned())
            }
            Err(error) => Err(error.during("read the subnet")),
        }
    }

    /// Returns whether the network, or any external one if none is configured, has this subnet.
    async fn is_hidden_in(&self, network_id: &str, subnet_id: &str) -> bool {
        let networks = match network_id {
            "" => NETWORKS.list(&self.session, &[("router:external", "true")]).await,
            id => NETWORKS.get(&self.session, id).await.map(|network| vec![network]),
        };
        networks.is_ok_and(|all| all.iter().any(|network| network.subnets.iter().any(|subnet| subnet == subnet_id)))
    }

    async fn diagnose_octavia(&self) -> Vec<CheckResult> {
        let settings = &self.config.load_balancer;
        let mut results = vec![self.diagnose_provider().await];
        if !settings.flavor_id.is_empty() {
            let found = octavia::flavor_exists(&self.session, &settings.flavor_id).await;
            results.push(result("flavor-id in [LoadBalancer]", exists(found, "read the flavor")));
        }
        if !settings.availability_zone.is_empty() {
            let found = octavia::zone_exists(&self.session, &settings.availability_zone).await;
            results.push(result("availability-zone in [LoadBalancer]", exists(found, "read the availability zone")));
        }
        results
    }

    async fn diagnose_provider(&self) -> CheckResult {
        let wanted = &self.config.load_balancer.provider;
        let providers = during(octavia::providers(&self.session).await, "list the Octavia providers");
        let outcome = providers.and_then(|all| {
            let names: Vec<_> = all.iter().map(|provider| provider.name.as_str()).collect();
            match names.contains(&wanted.as_str()) {
                true => Ok(format!("Octavia has the provider {wanted}")),
                false => {
                    Err(invalid_config(format!("Octavia has no provider {wanted:?}; it has {}", names.join(", "))))
                }
            }
        });
        result("lb-provider in [LoadBalancer]", outcome)
    }

    /// Returns the quotas of resources that the manager creates.
    pub(crate) async fn limits(&self) -> Result<Vec<Quota>> {
        let access = self.session.access().await.map_err(|error| error.during("authenticate"))?;
        if access.project_id.is_empty() {
            return Ok(Vec::new());
        }
        let mut quotas = during(self.network_limits(&access.project_id).await, "read the Neutron quotas")?;
        if self.config.load_balancer.enabled {
            quotas.extend(during(self.balancer_limits(&access.project_id).await, "read the Octavia quotas")?);
        }
        Ok(quotas)
    }

    async fn network_limits(&self, project: &str) -> Result<Vec<Quota>> {
        const KINDS: [(&str, &str); 4] = [
            ("floatingip", "floating IPs"),
            ("port", "ports"),
            ("security_group", "security groups"),
            ("security_group_rule", "security group rules"),
        ];
        let usage = network::quotas(&self.session, project).await?;
        let limited = KINDS.into_iter().filter_map(|(key, subject)| {
            let usage = usage.get(key)?;
            quota(subject, usize::try_from(usage.used).unwrap_or_default(), usage.limit)
        });
        Ok(limited.collect())
    }

    /// Octavia reports limits only, so existing resources are counted if exists is a limit.
    async fn balancer_limits(&self, project: &str) -> Result<Vec<Quota>> {
        // The second name is that of older releases.
        const KINDS: [(&str, &str, &str, &str); 3] = [
            ("load_balancer", "loadbalancer", "loadbalancers", "load balancers"),
            ("listener", "listener", "listeners", "listeners"),
            ("pool", "pool", "pools", "pools"),
        ];
        let limits = octavia::quotas(&self.session, project).await?;
        let mut quotas = Vec::new();
        for (key, older, kind, subject) in KINDS {
            let limit = limits.get(key).or_else(|| limits.get(older)).copied().flatten().filter(|limit| *limit >= 0);
            if let Some(limit) = limit {
                quotas.extend(quota(subject, octavia::count(&self.session, kind).await?, limit));
            }
        }
        Ok(quotas)
    }
}

fn quota(subject: &str, used: usize, limit: i64) -> Option<Quota> {
    let limit = u64::try_from(limit).ok()?;
    Some(Quota { resource: subject.to_owned(), used: used as u64, limit })
}

/// Operation of a call that only checks that the service responds.
fn operation_of(service: Service) -> String {
    format!("list resources of the {} service", service.kind())
}

fn endpoint_name(service: Service) -> String {
    format!("endpoint {}", service.kind())
}

fn describe_access(access: &Access) -> String {
    let project = match access.project_id.as_str() {
        "" => "without a project".to_owned(),
        id => format!("for project {id}"),
    };
    match access.roles.is_empty() {
        true => format!("Keystone accepts them, {project}"),
        false => format!("Keystone accepts them, {project}, with the roles {}", access.roles.join(", ")),
    }
}

/// Adds the role that usually grants access.
fn with_role(error: Error, service: Service) -> Error {
    match (error.kind(), service) {
        (ErrorKind::PermissionDenied, Service::LoadBalancer) => error.context("role needed", "load-balancer_member"),
        (ErrorKind::PermissionDenied, _) => error.context("role needed", "member"),
        _ => error,
    }
}

/// Read-only roles of Keystone and Octavia. The permissions of other roles depend on the cloud.
const READ_ONLY_ROLES: [&str; 3] = ["reader", "load-balancer_observer", "load-balancer_global_observer"];

fn may_only_read(roles: &[String]) -> bool {
    !roles.is_empty() && roles.iter().all(|role| READ_ONLY_ROLES.contains(&role.as_str()))
}

fn read_only(roles: &[String]) -> Error {
    let message = format!(
        "the roles {} are read-only; load balancers need load-balancer_member, and Neutron resources need member",
        roles.join(", ")
    );
    Error::new(ErrorKind::PermissionDenied, "read the token", message)
}

fn described(subnet: Subnet) -> Result<String> {
    Ok(format!("it is {:?}, {}", subnet.name, subnet.cidr))
}

fn exists(outcome: Result<()>, operation: &str) -> Result<String> {
    during(outcome.map(|()| "it exists".to_owned()), operation)
}

fn during<T>(outcome: Result<T>, operation: &str) -> Result<T> {
    outcome.map_err(|error| error.during(operation))
}

fn invalid_config(message: String) -> Error {
    Error::new(ErrorKind::InvalidConfig, "check the configuration", message)
}

fn result(subject: impl Into<String>, outcome: Result<String>) -> CheckResult {
    CheckResult { subject: subject.into(), outcome }
}
