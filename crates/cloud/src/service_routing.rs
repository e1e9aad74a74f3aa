//! Routing of Services to clouds: by load balancer class, or to the default cloud.

use std::collections::BTreeMap;

use bowline_core::service::Scope;
use bowline_core::{Service, nearest};

use crate::{Cloud, Clouds};

/// Prefix of Bowline's load balancer classes, followed by the name of the cloud.
const CLASS_PREFIX: &str = "bowline.dev/";

/// Cloud of the Services without a load balancer class.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DefaultCloud {
    /// The first cloud that has load balancers.
    #[default]
    First,
    /// The cloud of this name.
    Named(String),
    /// No cloud: another controller serves them.
    None,
}

/// Decides which cloud serves a Service.
#[derive(Clone)]
pub struct Routing {
    default: Option<Cloud>,
    classes: BTreeMap<String, Cloud>,
    scope: Scope,
}

/// The configured default cloud does not exist or has no load balancers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no cloud {name:?} with load balancers; available: {available}")]
pub struct RoutingError {
    /// The configured name.
    pub name: String,
    /// Names of the clouds with load balancers.
    pub available: String,
}

impl Routing {
    /// Creates the routing to these clouds; `classes` enables Bowline's load balancer classes.
    pub fn new(clouds: &Clouds, default: &DefaultCloud, classes: bool) -> Result<Routing, RoutingError> {
        let capable: Vec<&Cloud> = clouds.iter().filter(|cloud| cloud.has_load_balancers()).collect();
        let default = match default {
            DefaultCloud::First => capable.first().copied().cloned(),
            DefaultCloud::None => None,
            DefaultCloud::Named(name) => Some(find(&capable, name)?.clone()),
        };
        let class = |cloud: &&Cloud| (format!("{CLASS_PREFIX}{}", cloud.name()), (*cloud).clone());
        let classes: BTreeMap<_, _> = if classes { capable.iter().map(class).collect() } else { BTreeMap::new() };
        let scope = Scope { unset: default.is_some(), classes: classes.keys().cloned().collect() };
        Ok(Routing { default, classes, scope })
    }

    /// Returns whether no Service is served.
    pub fn is_empty(&self) -> bool {
        self.default.is_none() && self.classes.is_empty()
    }

    /// Returns the cloud that serves this Service; `None` if another controller does.
    pub fn cloud(&self, service: &Service) -> Option<&Cloud> {
        service.class.as_ref().map_or(self.default.as_ref(), |class| self.classes.get(class))
    }

    /// Returns the cloud that a misspelt class of this Service probably means. A class that resembles none of Bowline's may belong
    /// to another controller.
    pub fn misspelt_class(&self, service: &Service) -> Option<&str> {
        let class = service.class.as_ref().filter(|class| !self.classes.contains_key(*class))?;
        nearest(class.strip_prefix(CLASS_PREFIX)?, self.classes.values().map(|cloud| &**cloud.name()))
    }

    /// Returns which Services are served by a cloud.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }
}

fn find<'a>(capable: &[&'a Cloud], name: &str) -> Result<&'a Cloud, RoutingError> {
    capable.iter().copied().find(|cloud| &**cloud.name() == name).ok_or_else(|| RoutingError {
        name: name.to_owned(),
        available: capable.iter().map(|cloud| cloud.name().to_string()).collect::<Vec<_>>().join(", "),
    })
}
