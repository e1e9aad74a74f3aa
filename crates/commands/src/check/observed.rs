//! What there is to decide on: plain values, gathered by [`observe`](super::observe).

use std::time::Duration;

use bowline_cloud::{Finding, Ownership, Quota, Result};
use bowline_config::ConfigError;
use bowline_kube::{ConnectFailure, Permission, ReadError, SeenLease, SeenNode, SeenService, Server};

/// Everything that was seen. What was not looked at because something before it failed is `None` or empty.
#[derive(Default)]
pub(super) struct Observed {
    /// What is wrong with flags and files.
    pub(super) errors: Vec<ConfigError>,
    pub(super) server: Option<std::result::Result<Server, ConnectFailure>>,
    pub(super) reviews: Vec<Review>,
    pub(super) clouds: Vec<SeenCloud>,
    /// Each with what the clouds say of it, if they were asked.
    pub(super) nodes: Option<std::result::Result<Vec<Sighted>, ReadError>>,
    pub(super) services: Option<std::result::Result<Vec<SeenService>, ReadError>>,
    /// Those that managers may have.
    pub(super) leases: Option<std::result::Result<Vec<SeenLease>, ReadError>>,
    /// Our own, where it can be seen and the rest cannot.
    pub(super) own_lease: Option<SeenLease>,
    pub(super) manager: Manager,
}

/// A node, and what the clouds say of its machine.
pub(super) type Sighted = (SeenNode, Option<Result<Ownership>>);

/// The manager that is to run here.
#[derive(Default)]
pub(super) struct Manager {
    /// It takes part in the election.
    pub(super) elects: bool,
    /// The name of its lease.
    pub(super) lease: String,
    /// The classes of Services that it sees to, besides those without one.
    pub(super) classes: Vec<String>,
    /// It sees to Services without a class.
    pub(super) takes_classless: bool,
    /// When the leases were looked at.
    pub(super) now: Option<jiff::Timestamp>,
}

/// Whether somebody may do something.
pub(super) struct Review {
    /// The client of a controller with an account of its own; `None` for the process.
    pub(super) who: Option<&'static str>,
    pub(super) permission: Permission,
    pub(super) verb: &'static str,
    pub(super) allowed: std::result::Result<bool, ReadError>,
}

pub(super) struct SeenCloud {
    pub(super) name: String,
    /// What it says of itself and of what its configuration names.
    pub(super) findings: Vec<Finding>,
    pub(super) quotas: Result<Vec<Quota>>,
}

/// A holder that was silent for longer than this has gone, whatever its lease says.
pub(super) const LONG_AGO: Duration = Duration::from_secs(60);
