//! Leader election on a `coordination.k8s.io/v1` Lease, by the rules of client-go (LE-1 to LE-8).
//!
//! ```text
//!  Elector::acquire ── looks, waits, takes ──► Held ── Held::keep: renews ──► Lost: the process must end
//!                                               │       (dropped when the controllers have ended)
//!                                               └── Held::release: empty holder, one second
//! ```
//!
//! Whether somebody else's lease is still valid is judged by when *this* process last saw its record change, never by the
//! times written in it: clocks differ (LE-3). Each renewal extends a [`Term`](bowline_runtime::Term) of the process's fence
//! by the renew deadline, counted from before the request was sent, so that this process stops writing before another one
//! may start.
//!
//! What upstream does not do, and this does: a standby watches the lease beside asking for it, so that it knows to the
//! moment when the holder last renewed it, and takes a lease that was given back at once; it wakes up when the lease runs
//! out; and a holder that finds somebody else's name in the lease knows that it has lost, and does not try to win it back.

mod elector;
mod held;
mod permissions;
mod record;
mod request;
mod status;

use std::fmt;
use std::time::Duration;

pub use elector::Elector;
pub use held::{Held, Lost};
pub use status::ElectionMetrics;
pub(crate) use status::METRICS;
use uuid::Uuid;

/// How much longer than the retry period a standby may wait before it tries again, as a share of it.
const JITTER: f64 = 1.2;

/// Which lease, and how it is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseOptions {
    /// `--leader-elect-resource-namespace`.
    pub namespace: String,
    /// `--leader-elect-resource-name`.
    pub name: String,
    /// `--leader-elect-lease-duration`: how long others wait before they take it from a holder that is silent.
    pub lease_duration: Duration,
    /// `--leader-elect-renew-deadline`: how long the holder tries to renew it before it gives up.
    pub renew_deadline: Duration,
    /// `--leader-elect-retry-period`: the pause between two tries of either.
    pub retry_period: Duration,
}

impl Default for LeaseOptions {
    fn default() -> LeaseOptions {
        LeaseOptions {
            namespace: "kube-system".to_owned(),
            name: "cloud-controller-manager".to_owned(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// Why a lease cannot be held like this (LE-2). The words are upstream's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LeaseOptionsError {
    /// Another process would take over while this one still tries.
    #[error("leaseDuration must be greater than renewDeadline")]
    LeaseNotLongerThanDeadline,
    /// There would be time for one try only.
    #[error("renewDeadline must be greater than retryPeriod*JitterFactor")]
    DeadlineNotLongerThanRetry,
    /// It would be over as soon as it is held.
    #[error("leaseDuration must be greater than zero")]
    NoLease,
    /// There would be no time to renew it.
    #[error("renewDeadline must be greater than zero")]
    NoDeadline,
    /// It would be tried without a pause.
    #[error("retryPeriod must be greater than zero")]
    NoRetry,
}

impl LeaseOptions {
    /// Whether a lease can be held like this (LE-2).
    ///
    /// ```
    /// # use bowline_kube::{LeaseOptions, LeaseOptionsError};
    /// # use std::time::Duration;
    /// let options = LeaseOptions { renew_deadline: Duration::from_secs(15), ..LeaseOptions::default() };
    /// assert_eq!(options.check(), Err(LeaseOptionsError::LeaseNotLongerThanDeadline));
    /// ```
    pub fn check(&self) -> Result<(), LeaseOptionsError> {
        // The most telling first: with zeros, several are true.
        let errors = [
            (self.lease_duration.is_zero(), LeaseOptionsError::NoLease),
            (self.renew_deadline.is_zero(), LeaseOptionsError::NoDeadline),
            (self.retry_period.is_zero(), LeaseOptionsError::NoRetry),
            (self.lease_duration <= self.renew_deadline, LeaseOptionsError::LeaseNotLongerThanDeadline),
            (
                self.renew_deadline.as_secs_f64() <= self.retry_period.as_secs_f64() * JITTER,
                LeaseOptionsError::DeadlineNotLongerThanRetry,
            ),
        ];
        errors.into_iter().find(|(is_wrong, _)| *is_wrong).map_or(Ok(()), |(_, problem)| Err(problem))
    }

    /// What stands in the record. Parts of a second count as a whole one: to let others in early would be wrong.
    fn whole_seconds(&self) -> u64 {
        self.lease_duration.as_secs() + u64::from(self.lease_duration.subsec_nanos() > 0)
    }

    /// How long one request may take: there must be time for another one before the deadline.
    fn request_timeout(&self) -> Duration {
        (self.renew_deadline / 2).max(Duration::from_secs(1))
    }

    /// The pause between two tries to get the lease.
    fn pause(&self) -> Duration {
        self.retry_period.mul_f64(1.0 + JITTER * fastrand::f64())
    }
}

/// Who holds a lease: `<host name>_<random>`, so that a process that is started again is somebody else (LE-1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity(String);

impl Identity {
    /// A new one, for a process on this host.
    pub fn new(host: &str) -> Identity {
        Identity(format!("{host}_{}", Uuid::new_v4()))
    }

    /// A new one, for this process.
    pub fn of_this_process() -> Identity {
        Identity::new(&host_name())
    }

    /// As it stands in the lease.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The kernel's word, which in a pod is the pod's name or, on the host's network, the node's.
fn host_name() -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let told = kernel.or_else(|| std::env::var("HOSTNAME").ok()).map(|name| name.trim().to_owned());
    told.filter(|name| !name.is_empty()).unwrap_or_else(|| "localhost".to_owned())
}
