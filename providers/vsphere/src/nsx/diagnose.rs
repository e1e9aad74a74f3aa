//! Checks of everything that the configuration of NSX refers to, for `bowline check`.

use bowline_cloud::{CheckResult, Error, ErrorKind, Result};

use super::{Nsx, Record, advice};
use crate::config::nsx::{AppProfile, IpPool, LbService, LoadBalancerConfig};
use crate::routes::Gateway;

const CHECK: &str = "check the configuration";

/// Checks the manager and, as far as they are configured, load balancers and routes. Writes nothing.
pub(super) async fn diagnose(
    nsx: &Nsx,
    load_balancers: Option<&LoadBalancerConfig>,
    gateway: Option<&Gateway>,
) -> Vec<CheckResult> {
    let reached = nsx.check().await.map(|()| "the manager is reachable and accepts the credentials".to_owned());
    let is_reached = reached.is_ok();
    let mut results = vec![CheckResult::new("NSX manager", reached)];
    // Wrong credentials must not be sent again: NSX locks the account.
    if !is_reached {
        return results;
    }
    if let Some(config) = load_balancers {
        results.push(CheckResult::new("NSX LB service", lb_service(nsx, &config.service).await));
        results.push(CheckResult::new("NSX IP pools", ip_pools(nsx, config).await));
        results.push(CheckResult::new("NSX application profiles", profiles(nsx, config).await));
    }
    if let Some(gateway) = gateway {
        let exists = exists(nsx, &gateway.segments(), &gateway.path(), advice::ROUTER_PATH).await;
        results.push(CheckResult::new("NSX router path", exists));
    }
    results
}

async fn lb_service(nsx: &Nsx, service: &LbService) -> Result<String> {
    match service {
        LbService::Managed { tier1 } => {
            let segments: Vec<_> = tier1.trim_matches('/').split('/').collect();
            exists(nsx, &segments, tier1, advice::TIER1).await
        }
        LbService::Existing { id, tier1 } => {
            let found = nsx.find(super::SERVICES.get, &super::SERVICES.one(id)).await?;
            let found = found.ok_or_else(|| missing(&format!("load balancer service {id:?}"), advice::LB_SERVICE))?;
            let router = found.text("connectivity_path");
            match tier1.as_ref().filter(|tier1| *tier1 != router) {
                None => Ok(format!("{} is attached to {router}", found.name())),
                Some(tier1) => {
                    let message = format!(
                        "load balancer service {id:?} is configured for router {router:?} not {tier1:?}; {}",
                        advice::TIER1
                    );
                    Err(Error::new(ErrorKind::InvalidConfig, CHECK, message))
                }
            }
        }
    }
}

async fn exists(nsx: &Nsx, segments: &[&str], path: &str, advice: &str) -> Result<String> {
    let found = nsx.find("get_gateway", segments).await?;
    found.map(|found| format!("{path} is {}", found.name())).ok_or_else(|| missing(path, advice))
}

async fn ip_pools(nsx: &Nsx, config: &LoadBalancerConfig) -> Result<String> {
    let all = nsx.list("list_ip_pools", &["infra", "ip-pools"]).await?.objects;
    for class in config.classes.values() {
        let (found, wanted) = match &class.pool {
            IpPool::Id(id) => (all.iter().any(|pool| pool.id() == id), format!("load balancer IP pool {id}")),
            IpPool::Name(name) => (has_name(&all, name), format!("load balancer IP pool named {name}")),
        };
        found.then_some(()).ok_or_else(|| missing(&wanted, advice::IP_POOL))?;
    }
    Ok(format!("the pools of {} classes exist", config.classes.len()))
}

async fn profiles(nsx: &Nsx, config: &LoadBalancerConfig) -> Result<String> {
    let all = nsx.list("list_lb_app_profiles", &["infra", "lb-app-profiles"]).await?.objects;
    let profiles = |kind| {
        config.classes.values().map(move |class| match kind {
            "LBFastTcpProfile" => (&class.tcp_profile, kind),
            _ => (&class.udp_profile, kind),
        })
    };
    for (profile, kind) in profiles("LBFastTcpProfile").chain(profiles("LBFastUdpProfile")) {
        let of_kind = |one: &&Record| one.text("resource_type") == kind;
        let (found, wanted) = match profile {
            AppProfile::Path(path) => (all.iter().any(|one| one.path() == path), format!("application profile {path}")),
            AppProfile::Name(name) => {
                let count = all.iter().filter(of_kind).filter(|one| one.text("display_name") == name).count();
                if count > 1 {
                    let message = format!(
                        "profile name {name} for resource type {kind} is not unique; {}",
                        advice::UNIQUE_PROFILE
                    );
                    return Err(Error::new(ErrorKind::InvalidConfig, CHECK, message));
                }
                (count == 1, format!("application profile named {name} of type {kind}"))
            }
        };
        found.then_some(()).ok_or_else(|| missing(&wanted, advice::PROFILE))?;
    }
    Ok(format!("the profiles of {} classes exist", config.classes.len()))
}

fn has_name(all: &[Record], name: &str) -> bool {
    all.iter().any(|one| one.text("display_name") == name)
}

fn missing(subject: &str, advice: &str) -> Error {
    Error::new(ErrorKind::NotFound, CHECK, format!("{subject} not found; {advice}"))
}
