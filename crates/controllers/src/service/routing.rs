//! Which cloud makes the balancer of a Service.

use std::collections::BTreeMap;

use bowline_cloud::{Cloud, Clouds};
use bowline_core::service::Scope;
use bowline_core::{Service, nearest};

/// What our class names start with; the name of the cloud follows.
const CLASS_PREFIX: &str = "bowline.dev/";

/// Who takes Services without a class.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DefaultCloud {
    /// The first cloud that has balancers.
    #[default]
    First,
    /// The cloud of this name.
    Named(String),
    /// Nobody.
    NoOwner,
}

/// Which cloud makes the balancer of a Service.
#[derive(Clone)]
pub struct Routing {
    default: Option<Cloud>,
    classes: BTreeMap<String, Cloud>,
    scope: Scope,
}

/// The configured default is no cloud with balancers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no cloud {wanted:?} with load balancers; there are: {there}")]
pub struct RoutingError {
    /// The configured name.
    pub wanted: String,
    /// The names that would do.
    pub there: String,
}

impl Routing {
    /// Among these clouds; `classes` says whether our class names count.
    pub fn new(clouds: &Clouds, default: &DefaultCloud, classes: bool) -> Result<Routing, RoutingError> {
        let able: Vec<&Cloud> = clouds.iter().filter(|cloud| cloud.has_load_balancers()).collect();
        let default = match default {
            DefaultCloud::First => able.first().copied().cloned(),
            DefaultCloud::NoOwner => None,
            DefaultCloud::Named(name) => Some(named(&able, name)?.clone()),
        };
        let class = |cloud: &&Cloud| (format!("{CLASS_PREFIX}{}", cloud.name()), (*cloud).clone());
        let classes: BTreeMap<_, _> = if classes { able.iter().map(class).collect() } else { BTreeMap::new() };
        let scope = Scope { unset: default.is_some(), classes: classes.keys().cloned().collect() };
        Ok(Routing { default, classes, scope })
    }

    /// No cloud has balancers.
    pub fn is_empty(&self) -> bool {
        self.default.is_none() && self.classes.is_empty()
    }

    /// The cloud for this Service; `None` if it is not ours.
    pub fn cloud(&self, service: &Service) -> Option<&Cloud> {
        service.class.as_ref().map_or(self.default.as_ref(), |class| self.classes.get(class))
    }

    /// The cloud that the class of this Service was probably meant to name. A class that resembles none of ours may be that of
    /// another manager.
    pub(crate) fn misspelt_class(&self, service: &Service) -> Option<&str> {
        let class = service.class.as_ref().filter(|class| !self.classes.contains_key(*class))?;
        nearest(class.strip_prefix(CLASS_PREFIX)?, self.classes.values().map(|cloud| &**cloud.name()))
    }

    /// The Services that have a cloud.
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
