//! Routing of Services to clouds: by load balancer class, or to the default cloud.

use std::collections::BTreeMap;

use bowline_core::service::Scope;
use bowline_core::{Service, nearest};

use crate::{Cloud, Clouds};

/// Prefix of our load balancer classes; the name of the cloud follows.
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

/// The configured default is no cloud with load balancers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no cloud {wanted:?} with load balancers; there are: {there}")]
pub struct RoutingError {
    /// The configured name.
    pub wanted: String,
    /// Names of the clouds with load balancers.
    pub there: String,
}

impl Routing {
    /// Routes to these clouds; `classes` says whether our load balancer classes are served.
    pub fn new(clouds: &Clouds, default: &DefaultCloud, classes: bool) -> Result<Routing, RoutingError> {
        let able: Vec<&Cloud> = clouds.iter().filter(|cloud| cloud.has_load_balancers()).collect();
        let default = match default {
            DefaultCloud::First => able.first().copied().cloned(),
            DefaultCloud::None => None,
            DefaultCloud::Named(name) => Some(named(&able, name)?.clone()),
        };
        let class = |cloud: &&Cloud| (format!("{CLASS_PREFIX}{}", cloud.name()), (*cloud).clone());
        let classes: BTreeMap<_, _> = if classes { able.iter().map(class).collect() } else { BTreeMap::new() };
        let scope = Scope { unset: default.is_some(), classes: classes.keys().cloned().collect() };
        Ok(Routing { default, classes, scope })
    }

    /// Whether no cloud has load balancers.
    pub fn is_empty(&self) -> bool {
        self.default.is_none() && self.classes.is_empty()
    }

    /// Returns the cloud that serves this Service; `None` if it is not ours.
    pub fn cloud(&self, service: &Service) -> Option<&Cloud> {
        service.class.as_ref().map_or(self.default.as_ref(), |class| self.classes.get(class))
    }

    /// Returns the cloud that the misspelt class of this Service probably means. A class that resembles none of ours may belong to
    /// another controller.
    pub fn misspelt_class(&self, service: &Service) -> Option<&str> {
        let class = service.class.as_ref().filter(|class| !self.classes.contains_key(*class))?;
        nearest(class.strip_prefix(CLASS_PREFIX)?, self.classes.values().map(|cloud| &**cloud.name()))
    }

    /// Returns the Services that a cloud serves.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }
}

fn named<'a>(able: &[&'a Cloud], name: &str) -> Result<&'a Cloud, RoutingError> {
    able.iter().copied().find(|cloud| &**cloud.name() == name).ok_or_else(|| RoutingError {
        wanted: name.to_owned(),
        there: able.iter().map(|cloud| cloud.name().to_string()).collect::<Vec<_>>().join(", "),
    })
}
