//! Whether this cloud is the one that the configuration speaks of: at the start, for a check, and for a person who wants to know.

use bowline_cloud::{Error, ErrorKind, Finding, Quota, Result};
use futures::future::{join_all, try_join_all};
use serde::de::DeserializeOwned;

use crate::OpenStack;
use crate::api::key_manager::Stored;
use crate::api::network::{NETWORKS, Network, Router, SUBNETS, Subnet};
use crate::api::{Collection, compute, key_manager, network, octavia};
use crate::config::Class;
use crate::load_balancers::Sight;
use crate::session::{Access, Service};

impl OpenStack {
    /// Services that must answer.
    fn needed(&self) -> Vec<Service> {
        let octavia = self.config.load_balancer.enabled.then_some(Service::LoadBalancer);
        [Service::Compute, Service::Network].into_iter().chain(octavia).collect()
    }

    /// Says what in the configuration is not as it was meant, and does no harm.
    fn warn(&self) {
        self.config.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    }

    /// What is wrong for good is an error; the rest is said in the log.
    pub(crate) async fn begin(&self) -> Result<()> {
        let access = self.session.access().await.map_err(|error| error.during("authenticate"))?;
        for service in [Service::Compute, Service::Network, Service::LoadBalancer, Service::KeyManager] {
            let is_octavia_or_barbican = matches!(service, Service::LoadBalancer | Service::KeyManager);
            match access.endpoint(service) {
                Ok(_) => {}
                Err(error) if service == Service::LoadBalancer && self.config.load_balancer.enabled => {
                    let hint = "set enabled = false in [LoadBalancer] if there are to be no balancers";
                    let message = format!("{}; {hint}", error.message());
                    return Err(Error::new(ErrorKind::InvalidConfig, "find the services", message));
                }
                Err(_) if is_octavia_or_barbican && !self.config.load_balancer.enabled => {}
                Err(error) => tracing::warn!(%error, "what needs this service will fail"),
            }
        }
        self.warn();
        Ok(())
    }

    /// Asks every service for the least.
    pub(crate) async fn ask_everyone(&self) -> Result<()> {
        try_join_all(self.needed().into_iter().map(|service| self.greet(service))).await.map(drop)
    }

    /// Lists one resource of a service.
    async fn greet(&self, service: Service) -> Result<()> {
        let answered = match service {
            Service::Compute => compute::answers(&self.session).await,
            Service::Network => network::answers(&self.session).await,
            _ => octavia::answers(&self.session).await,
        };
        told(answered, &asking(service))
    }

    /// Everything that the configuration names, one after the other; of a cloud that does not let us in, that alone.
    pub(crate) async fn look_around(&self) -> Vec<Finding> {
        self.warn();
        let access = match self.session.access().await {
            Ok(access) => access,
            Err(error) => return vec![finding("credentials", Err(error.during("authenticate")))],
        };
        let mut findings = vec![finding("credentials", Ok(welcome(&access)))];
        if self.config.load_balancer.enabled && may_only_read(&access.roles) {
            findings.push(finding("roles", Err(readers(&access.roles))));
        }
        for service in self.needed() {
            findings.push(self.look_at_service(&access, service).await);
        }
        if self.config.load_balancer.enabled {
            findings.push(self.look_at_keys(&access).await);
        }
        let answers = |service| findings.iter().any(|f| f.what == endpoint_name(service) && f.outcome.is_ok());
        let (has_network, has_balancers) = (answers(Service::Network), answers(Service::LoadBalancer));
        if has_network {
            findings.extend(self.look_at_routes().await);
        }
        if has_network && self.config.load_balancer.enabled {
            findings.extend(self.look_at_places().await);
        }
        if has_balancers {
            findings.extend(self.look_at_balancers().await);
        }
        findings
    }

    async fn look_at_service(&self, access: &Access, service: Service) -> Finding {
        let outcome = match access.endpoint(service) {
            Err(error) => Err(error.during(asking(service))),
            Ok(url) => self.greet(service).await.map(|()| format!("{url} answers, and lets us read")),
        };
        finding(endpoint_name(service), outcome.map_err(|error| with_role(error, service)))
    }

    /// Without Barbican all is well until somebody wants TLS.
    async fn look_at_keys(&self, access: &Access) -> Finding {
        let (what, reference) = (endpoint_name(Service::KeyManager), &self.config.load_balancer.tls_container_ref);
        if let Err(error) = access.endpoint(Service::KeyManager) {
            let message = format!("{}; Services with a TLS container fail", error.message());
            return finding(what, Err(Error::new(ErrorKind::Unsupported, "find the services", message)));
        }
        if reference.is_empty() || !self.config.load_balancer.asks_barbican() {
            return finding(what, Ok("it is in the catalog".to_owned()));
        }
        let what = "default-tls-container-ref in [LoadBalancer]";
        let outcome = match Stored::parse(reference) {
            Some(stored) => key_manager::exists(&self.session, stored).await,
            None => Err(Error::new(ErrorKind::InvalidConfig, "", format!("{reference:?} is no ID"))),
        };
        finding(what, there(outcome, "look for the certificate"))
    }

    async fn look_at_routes(&self) -> Vec<Finding> {
        let id = self.config.router_id.as_deref().unwrap_or_default();
        let described = |router: Router| Ok(format!("it has {} routes", router.routes.len()));
        let router = self.look_for("router-id", "[Route]", &network::ROUTERS, id, described).await;
        let Some(router) = router else { return Vec::new() };
        let extensions = network::extensions(&self.session).await;
        let has_routes = extensions.map(|all| all.iter().any(|one| one.alias.starts_with("extraroute")));
        let extension = told(has_routes, "list the extensions").and_then(|has_routes| match has_routes {
            true => Ok("this Neutron can set routes of routers".to_owned()),
            false => {
                let message = "this Neutron has no extension \"extraroute\", so there are no routes";
                Err(Error::new(ErrorKind::Unsupported, "list the extensions", message))
            }
        });
        vec![router, finding("extension extraroute", extension)]
    }

    /// The networks and subnets that balancers and floating IPs are to be in.
    async fn look_at_places(&self) -> Vec<Finding> {
        let classes = self.config.classes.iter().map(|(name, class)| (format!("[LoadBalancerClass {name:?}]"), class));
        let sections = [("[LoadBalancer]".to_owned(), &self.config.load_balancer.places)].into_iter().chain(classes);
        let findings = sections.map(|(section, class)| self.look_at_place(section, class));
        let mut findings: Vec<_> = join_all(findings).await.into_iter().flatten().collect();
        let settings = &self.config.load_balancer;
        if settings.places.floating_network_id.is_empty() && !settings.internal {
            findings.push(self.look_for_external_network().await);
        }
        findings
    }

    /// Where no network is named, the first that is external and serves IPv4 has the floating IPs.
    async fn look_for_external_network(&self) -> Finding {
        let found = told(Sight::blank(&self.session).detected_network().await, "list the networks");
        let outcome = found.and_then(|found| {
            let message = "there is no external network with a subnet for IPv4, so balancers get no floating IPs unless \
                           floating-network-id names a network";
            let network = found.ok_or_else(|| Error::new(ErrorKind::Unsupported, "list the networks", message))?;
            Ok(format!("floating IPs are taken from {:?}", network.name))
        });
        finding("external network", outcome)
    }

    async fn look_at_place(&self, section: String, class: &Class) -> Vec<Finding> {
        let named = |network: Network| Ok(format!("it is {:?}", network.name));
        let external = |network: Network| match network.external {
            true => Ok(format!("it is {:?}, and external", network.name)),
            false => Err(wrong(format!("the network {:?} is not external (router:external)", network.name))),
        };
        let (network_id, subnet_id) = (&class.floating_network_id, &class.floating_subnet.id);
        let mut findings = Vec::new();
        findings.extend(self.look_for("network-id", &section, &NETWORKS, &class.network_id, named).await);
        findings.extend(self.look_for("subnet-id", &section, &SUBNETS, &class.subnet_id, described).await);
        findings
            .extend(self.look_for("member-subnet-id", &section, &SUBNETS, &class.member_subnet_id, described).await);
        findings.extend(self.look_for("floating-network-id", &section, &NETWORKS, network_id, external).await);
        if !subnet_id.is_empty() {
            let outcome = self.look_at_floating_subnet(network_id, subnet_id).await;
            findings.push(finding(format!("floating-subnet-id in {section}"), outcome));
        }
        findings
    }

    /// Looks for a resource by the ID that a key has, if it has one.
    async fn look_for<T: DeserializeOwned>(
        &self,
        key: &str,
        section: &str,
        all: &Collection<T>,
        id: &str,
        describe: impl FnOnce(T) -> Result<String>,
    ) -> Option<Finding> {
        if id.is_empty() {
            return None;
        }
        let found = told(all.get(&self.session, id).await, &format!("look for the {}", all.resource.name));
        Some(finding(format!("{key} in {section}"), found.and_then(describe)))
    }

    async fn look_at_floating_subnet(&self, network_id: &str, id: &str) -> Result<String> {
        match SUBNETS.get(&self.session, id).await {
            Ok(subnet) if network_id.is_empty() || subnet.network_id == network_id => described(subnet),
            Ok(subnet) => Err(wrong(format!("it is in the network {}, and not in {network_id}", subnet.network_id))),
            // Projects seldom see the subnets of an external network, but they see that it has them.
            Err(error) if error.is_not_found() && self.is_hidden_in(network_id, id).await => {
                Ok("it is there, and shown to its owner alone".to_owned())
            }
            Err(error) => Err(error.during("look for the subnet")),
        }
    }

    /// Whether the network, or any external one if that is open, has this subnet.
    async fn is_hidden_in(&self, network_id: &str, subnet_id: &str) -> bool {
        let networks = match network_id {
            "" => NETWORKS.list(&self.session, &[("router:external", "true")]).await,
            id => NETWORKS.get(&self.session, id).await.map(|network| vec![network]),
        };
        networks.is_ok_and(|all| all.iter().any(|network| network.subnets.iter().any(|subnet| subnet == subnet_id)))
    }

    async fn look_at_balancers(&self) -> Vec<Finding> {
        let settings = &self.config.load_balancer;
        let mut findings = vec![self.look_at_provider().await];
        if !settings.flavor_id.is_empty() {
            let found = octavia::flavor_exists(&self.session, &settings.flavor_id).await;
            findings.push(finding("flavor-id in [LoadBalancer]", there(found, "look for the flavor")));
        }
        if !settings.availability_zone.is_empty() {
            let found = octavia::zone_exists(&self.session, &settings.availability_zone).await;
            findings
                .push(finding("availability-zone in [LoadBalancer]", there(found, "look for the availability zone")));
        }
        findings
    }

    async fn look_at_provider(&self) -> Finding {
        let wanted = &self.config.load_balancer.provider;
        let providers = told(octavia::providers(&self.session).await, "list the providers of balancers");
        let outcome = providers.and_then(|all| {
            let names: Vec<_> = all.iter().map(|provider| provider.name.as_str()).collect();
            match names.contains(&wanted.as_str()) {
                true => Ok(format!("Octavia has {wanted}")),
                false => Err(wrong(format!("Octavia has no provider {wanted:?}; it has {}", names.join(", ")))),
            }
        });
        finding("lb-provider in [LoadBalancer]", outcome)
    }

    /// What is limited of what the manager makes.
    pub(crate) async fn limits(&self) -> Result<Vec<Quota>> {
        let access = self.session.access().await.map_err(|error| error.during("authenticate"))?;
        if access.project_id.is_empty() {
            return Ok(Vec::new());
        }
        let mut quotas = told(self.network_limits(&access.project_id).await, "read the quotas of Neutron")?;
        if self.config.load_balancer.enabled {
            quotas.extend(told(self.balancer_limits(&access.project_id).await, "read the quotas of Octavia")?);
        }
        Ok(quotas)
    }

    async fn network_limits(&self, project: &str) -> Result<Vec<Quota>> {
        const KINDS: [(&str, &str); 4] = [
            ("floatingip", "floating IPs"),
            ("port", "ports"),
            ("security_group", "security groups"),
            ("security_group_rule", "rules of security groups"),
        ];
        let usage = network::quotas(&self.session, project).await?;
        let limited = KINDS.into_iter().filter_map(|(key, what)| {
            let usage = usage.get(key)?;
            quota(what, usize::try_from(usage.used).unwrap_or_default(), usage.limit)
        });
        Ok(limited.collect())
    }

    /// Octavia tells limits alone, so what there is is counted, where there is a limit.
    async fn balancer_limits(&self, project: &str) -> Result<Vec<Quota>> {
        // The second name is that of older releases.
        const KINDS: [(&str, &str, &str, &str); 3] = [
            ("load_balancer", "loadbalancer", "loadbalancers", "load balancers"),
            ("listener", "listener", "listeners", "listeners"),
            ("pool", "pool", "pools", "pools"),
        ];
        let limits = octavia::quotas(&self.session, project).await?;
        let mut quotas = Vec::new();
        for (key, older, kind, what) in KINDS {
            let limit = limits.get(key).or_else(|| limits.get(older)).copied().flatten().filter(|limit| *limit >= 0);
            if let Some(limit) = limit {
                quotas.extend(quota(what, octavia::count(&self.session, kind).await?, limit));
            }
        }
        Ok(quotas)
    }
}

fn quota(what: &str, used: usize, limit: i64) -> Option<Quota> {
    let limit = u64::try_from(limit).ok()?;
    Some(Quota { what: what.to_owned(), used: used as u64, limit })
}

/// Operation of a call that only shows whether the service answers.
fn asking(service: Service) -> String {
    format!("ask {} for a list", service.kind())
}

fn endpoint_name(service: Service) -> String {
    format!("endpoint {}", service.kind())
}

fn welcome(access: &Access) -> String {
    let project = match access.project_id.as_str() {
        "" => "for no project".to_owned(),
        id => format!("for the project {id}"),
    };
    match access.roles.is_empty() {
        true => format!("Keystone takes them, {project}"),
        false => format!("Keystone takes them, {project}, with the roles {}", access.roles.join(", ")),
    }
}

/// With the role that usually lets one in.
fn with_role(error: Error, service: Service) -> Error {
    match (error.kind(), service) {
        (ErrorKind::PermissionDenied, Service::LoadBalancer) => error.context("role needed", "load-balancer_member"),
        (ErrorKind::PermissionDenied, _) => error.context("role needed", "member"),
        _ => error,
    }
}

/// The roles of Keystone and Octavia that let nobody change anything. Other roles are what each cloud makes of them.
const READERS: [&str; 3] = ["reader", "load-balancer_observer", "load-balancer_global_observer"];

fn may_only_read(roles: &[String]) -> bool {
    !roles.is_empty() && roles.iter().all(|role| READERS.contains(&role.as_str()))
}

fn readers(roles: &[String]) -> Error {
    let message = format!(
        "the roles {} let us read and nothing else; balancers need load-balancer_member, and what is in Neutron member",
        roles.join(", ")
    );
    Error::new(ErrorKind::PermissionDenied, "read the token", message)
}

fn described(subnet: Subnet) -> Result<String> {
    Ok(format!("it is {:?}, {}", subnet.name, subnet.cidr))
}

fn there(outcome: Result<()>, operation: &str) -> Result<String> {
    told(outcome.map(|()| "it is there".to_owned()), operation)
}

fn told<T>(outcome: Result<T>, operation: &str) -> Result<T> {
    outcome.map_err(|error| error.during(operation))
}

fn wrong(message: String) -> Error {
    Error::new(ErrorKind::InvalidConfig, "look at the configuration", message)
}

fn finding(what: impl Into<String>, outcome: Result<String>) -> Finding {
    Finding { what: what.into(), outcome }
}
