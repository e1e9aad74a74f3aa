//! Requests to OpenStack services.

use std::ops::Deref;

use bowline_simulator::Operation;

pub(crate) use bowline_simulator::{Body, Reply};

/// An OpenStack service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Service {
    /// Keystone.
    Identity,
    /// Nova.
    Compute,
    /// Neutron.
    Network,
    /// Octavia.
    LoadBalancer,
    /// Barbican.
    KeyManager,
}

impl Service {
    /// All services.
    pub const ALL: [Service; 5] =
        [Service::Identity, Service::Compute, Service::Network, Service::LoadBalancer, Service::KeyManager];

    /// Service type in the catalog, and path prefix in the simulator.
    pub fn kind(self) -> &'static str {
        match self {
            Service::Identity => "identity",
            Service::Compute => "compute",
            Service::Network => "network",
            Service::LoadBalancer => "load-balancer",
            Service::KeyManager => "key-manager",
        }
    }
}

impl From<Service> for &'static str {
    fn from(service: Service) -> &'static str {
        service.kind()
    }
}

/// Successful response, or an error response.
pub(crate) type Outcome = Result<Reply, Reply>;

/// A request to a service.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    call: bowline_simulator::Call,
    pub(crate) service: Service,
    /// Path relative to the service's root.
    pub(crate) path: Vec<String>,
}

impl Deref for Call {
    type Target = bowline_simulator::Call;

    fn deref(&self) -> &Self::Target {
        &self.call
    }
}

impl Call {
    /// Finds the service of a request; `None` if there is none. One leading segment is skipped, as a prefix of a region or a proxy.
    pub(crate) fn read(call: &bowline_simulator::Call) -> Option<Call> {
        let (at, service) = call.path.iter().take(2).enumerate().find_map(|(at, segment)| {
            Some((at, Service::ALL.into_iter().find(|service| service.kind() == segment)?))
        })?;
        let path = call.path.iter().skip(at + 1).cloned().collect();
        Some(Call { call: call.clone(), service, path })
    }

    /// Path without the version: `["pools", "1234", "members"]`.
    pub(crate) fn resource(&self) -> Vec<&str> {
        let is_version = |segment: &&String| segment.starts_with('v') && segment.contains(|c: char| c.is_ascii_digit());
        let skipped = self.path.iter().take(1).filter(is_version).count();
        let rest = self.path.iter().skip(skipped).map(String::as_str);
        rest.skip_while(|segment| *segment == "lbaas").collect()
    }

    /// Operation for the journal and faults. Token requests do not count as writes.
    pub(crate) fn operation(&self) -> Operation {
        let segments = self.resource();
        let template = segments.iter().enumerate().map(|(at, segment)| match at {
            0 => segment,
            _ if KEYWORDS.split(' ').any(|word| word == *segment) => segment,
            _ => "{id}",
        });
        Operation {
            part: self.service.kind(),
            template: template.collect::<Vec<_>>().join("/"),
            path: segments.join("/"),
            is_write: !self.is_read() && self.service != Service::Identity,
        }
    }

    /// URL of a resource of this service.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}/{}/{path}", self.origin, self.service.kind())
    }
}

/// Path segments that are not IDs.
const KEYWORDS: &str = "detail members tags add_extraroutes remove_extraroutes details.json details tokens catalog status \
                     stats action defaults";
