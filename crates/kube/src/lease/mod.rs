//! Leader election on a `coordination.k8s.io/v1` Lease, by the rules of client-go (LE-1 to LE-8).
//!
//! ```text
//!  Elector::acquire ── looks, waits, takes ──► Held ── Held::keep: renews ──► lost: Err(Lost)
//!                                               │                        └──► shutdown: Ok, still held
//!                                               └── Held::release: empty holder, one second
//! ```
//!
//! Whether somebody else's lease is still valid is judged by when *this* process last saw its record change, never by the
//! times written in it: clocks differ (LE-3). Each renewal extends a [`Term`] of the process's fence by the renew
//! deadline, counted from before the request was sent, so that this process stops writing before another one may start.

mod rights;

use std::time::Duration;

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
