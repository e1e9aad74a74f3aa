//! Leader election on a `coordination.k8s.io/v1` Lease, by the rules of client-go (LE-1 to LE-8).
//!
//! ```text
//!  Elector::acquire ── reads, waits, acquires ──► Held ── Held::keep: renews ──► Lost: the process must exit
//!                                                  │       (dropped when the controllers have stopped)
//!                                                  └── Held::release: empty holder, one second
//! ```
//!
//! A lease of another process is valid for its duration after *this* process last observed a change of its record. The times in
//! the record are never compared, because clocks differ (LE-3). Each renewal extends a [`Term`](bowline_runtime::Term) of the
//! fence by the renew deadline, counted from before the request was sent, so that this process stops writing before another one
//! may start.
//!
//! Differences from upstream: a standby watches the lease in addition to polling it, so it knows when the holder last renewed the
//! lease and acquires a released lease at once; it wakes up when the lease expires; and a holder that finds another identity
//! in the lease has lost it and does not try to get it back.

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

/// Maximum jitter that a standby adds to the retry period, as a fraction of it.
const JITTER: f64 = 1.2;

/// Options of a leader election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseOptions {
    /// `--leader-elect-resource-namespace`.
    pub namespace: String,
    /// `--leader-elect-resource-name`.
    pub name: String,
    /// `--leader-elect-lease-duration`: time without a renewal after which another process may acquire the lease.
    pub lease_duration: Duration,
    /// `--leader-elect-renew-deadline`: time for which the holder tries to renew the lease before it gives up.
    pub renew_deadline: Duration,
    /// `--leader-elect-retry-period`: pause between two attempts to acquire or renew.
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

/// Invalid lease options (LE-2), with the messages of upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LeaseOptionsError {
    /// Another process would acquire the lease while this one still tries to renew it.
    #[error("leaseDuration must be greater than renewDeadline")]
    LeaseNotLongerThanDeadline,
    /// There would be time for one attempt only.
    #[error("renewDeadline must be greater than retryPeriod*JitterFactor")]
    DeadlineNotLongerThanRetry,
    /// The lease would expire at once.
    #[error("leaseDuration must be greater than zero")]
    NoLease,
    /// There would be no time to renew the lease.
    #[error("renewDeadline must be greater than zero")]
    NoDeadline,
    /// There would be no pause between attempts.
    #[error("retryPeriod must be greater than zero")]
    NoRetry,
}

impl LeaseOptions {
    /// Validates the options (LE-2).
    ///
    /// ```
    /// # use bowline_kube::{LeaseOptions, LeaseOptionsError};
    /// # use std::time::Duration;
    /// let options = LeaseOptions { renew_deadline: Duration::from_secs(15), ..LeaseOptions::default() };
    /// assert_eq!(options.check(), Err(LeaseOptionsError::LeaseNotLongerThanDeadline));
    /// ```
    pub fn check(&self) -> Result<(), LeaseOptionsError> {
        // The most specific error first: with zeros, several apply.
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
        errors.into_iter().find(|(is_invalid, _)| *is_invalid).map_or(Ok(()), |(_, error)| Err(error))
    }

    /// `leaseDurationSeconds`, rounded up so that no other process acquires the lease early.
    fn whole_seconds(&self) -> u64 {
        self.lease_duration.as_secs() + u64::from(self.lease_duration.subsec_nanos() > 0)
    }

    /// Timeout of one request, which leaves time for another one before the deadline.
    fn request_timeout(&self) -> Duration {
        (self.renew_deadline / 2).max(Duration::from_secs(1))
    }

    /// Pause between two attempts to acquire the lease, with jitter.
    fn pause(&self) -> Duration {
        self.retry_period.mul_f64(1.0 + JITTER * fastrand::f64())
    }
}

/// Identity of a lease holder: `<host name>_<UUID>`, so that a restarted process has a new identity (LE-1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity(String);

impl Identity {
    /// Creates an identity for a process on this host.
    pub fn new(host: &str) -> Identity {
        Identity(format!("{host}_{}", Uuid::new_v4()))
    }

    /// Creates an identity for this process.
    pub fn of_this_process() -> Identity {
        Identity::new(&host_name())
    }

    /// `holderIdentity` of the lease.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Host name from the kernel: in a pod the name of the pod or, on the host network, of the node.
fn host_name() -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = kernel.or_else(|| std::env::var("HOSTNAME").ok()).map(|name| name.trim().to_owned());
    name.filter(|name| !name.is_empty()).unwrap_or_else(|| "localhost".to_owned())
}
