//! Input of the decisions: plain values, read by [`observe`](super::observe).

use std::time::Duration;

use bowline_cloud::{CheckResult, Ownership, Quota, Result};
use bowline_config::ConfigError;
use bowline_kube::{ConnectFailure, Permission, ReadError, SeenLease, SeenNode, SeenService, Server};

/// Observed state. Fields that were not read because an earlier step failed are `None` or empty.
#[derive(Default)]
pub(super) struct Observed {
    /// Errors in flags and files.
    pub(super) errors: Vec<ConfigError>,
    pub(super) server: Option<std::result::Result<Server, ConnectFailure>>,
    pub(super) reviews: Vec<Review>,
    pub(super) clouds: Vec<ObservedCloud>,
    /// Nodes with their machines.
    pub(super) nodes: Option<std::result::Result<Vec<ObservedNode>, ReadError>>,
    pub(super) services: Option<std::result::Result<Vec<SeenService>, ReadError>>,
    /// Leases in the namespaces that managers use.
    pub(super) leases: Option<std::result::Result<Vec<SeenLease>, ReadError>>,
    /// Our own lease, if it is readable and the list is not.
    pub(super) own_lease: Option<SeenLease>,
    pub(super) manager: Manager,
}

/// A Node and its machine, if any cloud is configured.
pub(super) type ObservedNode = (SeenNode, Option<Result<Ownership>>);

/// Settings of the manager that will run here.
#[derive(Default)]
pub(super) struct Manager {
    /// Whether it takes part in leader election.
    pub(super) elects: bool,
    /// Name of its lease.
    pub(super) lease: String,
    /// Values of `spec.loadBalancerClass` that it manages.
    pub(super) classes: Vec<String>,
    /// Whether it manages Services without a class.
    pub(super) takes_classless: bool,
    /// Time at which the leases were read.
    pub(super) now: Option<jiff::Timestamp>,
}

/// Result of an access review.
pub(super) struct Review {
    /// Service account of a controller; `None` for the account of the process.
    pub(super) account: Option<&'static str>,
    pub(super) permission: Permission,
    pub(super) verb: &'static str,
    pub(super) allowed: std::result::Result<bool, ReadError>,
}

pub(super) struct ObservedCloud {
    pub(super) name: String,
    /// Checks of the cloud and of the resources that its configuration names.
    pub(super) results: Vec<CheckResult>,
    pub(super) quotas: Result<Vec<Quota>>,
}

/// A lease counts as held for at least this long after its last renewal, even if its own duration is shorter.
pub(super) const MIN_VALIDITY: Duration = Duration::from_secs(60);
