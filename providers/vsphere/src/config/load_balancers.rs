//! Load balancers of NSX and their classes.
//!
//! ```text
//!  loadBalancer ──► class default ──► any other class
//! ```
//!
//! A class inherits the pool as a pair of name and ID, and each profile as a pair of name and path.

use std::collections::BTreeMap;

use bowline_config::ConfigError;
use bowline_config::table::View;

use super::keys::{Class, LoadBalancer, Part};
use super::nsx::{AppProfile, IpPool, LbService, LoadBalancerClass, LoadBalancerConfig};
use super::read::Reader;

/// Name of the class of Services without the annotation.
const DEFAULT: &str = "default";

/// Sizes of LB services.
const SIZES: &[&str] = &["DLB", "LARGE", "MEDIUM", "SMALL", "XLARGE"];

/// Settings that a class can inherit.
#[derive(Clone)]
struct Partial {
    pool: Option<IpPool>,
    tcp_profile: Option<AppProfile>,
    udp_profile: Option<AppProfile>,
}

impl Partial {
    fn over(self, base: &Partial) -> Partial {
        Partial {
            pool: self.pool.or_else(|| base.pool.clone()),
            tcp_profile: self.tcp_profile.or_else(|| base.tcp_profile.clone()),
            udp_profile: self.udp_profile.or_else(|| base.udp_profile.clone()),
        }
    }

    fn complete(self) -> Option<LoadBalancerClass> {
        let Partial { pool, tcp_profile, udp_profile } = self;
        Some(LoadBalancerClass { pool: pool?, tcp_profile: tcp_profile?, udp_profile: udp_profile? })
    }
}

impl Reader<'_> {
    /// Returns the load balancers, or all errors.
    // upstream: the texts of the errors.
    pub(super) fn load_balancers(&mut self) -> Result<LoadBalancerConfig, Vec<ConfigError>> {
        let (view, keys) = (self.view(Part::LoadBalancer), self.section::<LoadBalancer>(Part::LoadBalancer));
        let mut errors = Vec::new();
        let service = service(&keys);
        if service.is_none() {
            let message = "either load balancer service id or T1 gateway path required";
            errors.push(view.error(&LoadBalancer::service_id, message));
        }
        let main = partial(&keys.class);
        if has_two_pools(&keys.class) {
            errors.push(view.error(&Class::pool_name, "either load balancer ipPoolName or ipPoolID can be set"));
        }
        check_profiles(&view, &main, &mut errors);
        if !SIZES.contains(&keys.size.as_str()) {
            let message = format!("load balancer size is invalid. Valid values are: {}", SIZES.join(","));
            errors.push(view.error(&LoadBalancer::size, message));
        }
        let classes = self.classes(&main, &mut errors);
        match service {
            Some(service) if errors.is_empty() => Ok(LoadBalancerConfig {
                size: keys.size,
                service,
                snat_disabled: keys.snat_disabled,
                tags: keys.tags,
                classes,
            }),
            _ => Err(errors),
        }
    }

    /// Returns all classes with what they inherit.
    fn classes(&mut self, main: &Partial, errors: &mut Vec<ConfigError>) -> BTreeMap<String, LoadBalancerClass> {
        let mut partials = BTreeMap::new();
        for (name, view) in self.settings.views(Part::Class.name(self.format)) {
            let class: Class = bowline_config::table::Keys::read(&view);
            if has_two_pools(&class) {
                let ignored =
                    view.error(&Class::pool_name, "is ignored: the class has a pool ID as well, which precedes");
                self.warn(ignored, "set one of both");
            }
            partials.insert(name.to_owned(), partial(&class));
        }
        let own = partials.remove(DEFAULT);
        let has_own = own.is_some();
        let default = own.map_or(main.clone(), |own| own.over(main));
        if default.pool.is_none() {
            let message = match has_own {
                true => "default load balancer class: ipPoolName and ipPoolID is empty",
                false => "no default load balancer class defined",
            };
            errors.push(self.view(Part::LoadBalancer).error(&Class::pool_name, message));
        }
        let classes = partials.into_iter().map(|(name, own)| (name, own.over(&default)));
        let classes = classes.chain([(DEFAULT.to_owned(), default.clone())]);
        classes.filter_map(|(name, class)| Some((name, class.complete()?))).collect()
    }
}

fn service(keys: &LoadBalancer) -> Option<LbService> {
    let LoadBalancer { service_id, tier1, .. } = keys;
    let tier1 = (!tier1.is_empty()).then(|| tier1.clone());
    match service_id.as_str() {
        "" => tier1.map(|tier1| LbService::Managed { tier1 }),
        id => Some(LbService::Existing { id: id.to_owned(), tier1 }),
    }
}

fn check_profiles(view: &View<'_>, main: &Partial, errors: &mut Vec<ConfigError>) {
    let profiles =
        [(&main.tcp_profile, Class::tcp_profile_name, "TCP"), (&main.udp_profile, Class::udp_profile_name, "UDP")];
    for (_, key, protocol) in profiles.into_iter().filter(|(profile, ..)| profile.is_none()) {
        let message = format!("either load balancer {protocol} application profile name or path required");
        errors.push(view.error(&key, message));
    }
}

fn has_two_pools(class: &Class) -> bool {
    !class.pool_name.is_empty() && !class.pool_id.is_empty()
}

/// Returns the settings of a class itself. Of name and ID of the pool, the ID precedes.
// upstream: the same. Only in the main section, both together are an error.
fn partial(class: &Class) -> Partial {
    let pool = match (class.pool_name.as_str(), class.pool_id.as_str()) {
        ("", "") => None,
        (name, "") => Some(IpPool::Name(name.to_owned())),
        (_, id) => Some(IpPool::Id(id.to_owned())),
    };
    let tcp_profile = profile(&class.tcp_profile_name, &class.tcp_profile_path);
    Partial { pool, tcp_profile, udp_profile: profile(&class.udp_profile_name, &class.udp_profile_path) }
}

fn profile(name: &str, path: &str) -> Option<AppProfile> {
    match (name, path) {
        ("", "") => None,
        (name, "") => Some(AppProfile::Name(name.to_owned())),
        (_, path) => Some(AppProfile::Path(path.to_owned())),
    }
}
