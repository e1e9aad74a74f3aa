//! Writes of this process to a Service, distinguished from those of users and of other controllers.
//!
//! * The watch lags behind: [`OwnWrites::latest`] returns the last write of this process until the watch shows it.
//! * An annotation that this process wrote is not a change by the user: [`OwnWrites::is_own_annotation`].
//! * A `status.loadBalancer` that this process neither wrote nor is about to write comes from another controller. It is corrected,
//!   with an Event and with a back-off: two controllers that correct each other would otherwise write without end. The writes of an
//!   earlier process are unknown, so the first sync of a process reports nothing.
//!
//! The caller passes the time, so that tests need no clock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Service, status_equal};
use crate::LoadBalancerStatus;

/// Maximum lag of the watch behind a write. After that time the watch counts as current, for example if the API server was restored
/// from a backup.
const MAX_LAG: Duration = Duration::from_secs(10);

/// Pause after the first correction of a status; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(60);

/// Maximum pause between two corrections of a status.
const MAX_PAUSE: Duration = Duration::from_secs(30 * 60);

/// Writes of this process to one Service.
#[derive(Debug, Default)]
pub struct OwnWrites {
    /// The last write, while the watch may still show what it replaced.
    last: Option<Write>,
    /// Annotation changes that the watch has not shown yet.
    annotations: AnnotationChanges,
    status: OwnStatus,
}

/// Value of each changed annotation before and after.
type AnnotationChanges = BTreeMap<String, (Option<String>, Option<String>)>;

#[derive(Debug)]
struct Write {
    /// Resource versions that this write has replaced.
    replaced: Vec<String>,
    service: Arc<Service>,
    at: Instant,
}

/// Statuses that this process wrote.
#[derive(Debug, Default)]
struct OwnStatus {
    /// UID of the Service that they were written to.
    uid: Option<String>,
    /// More than one while the outcome of a write is unknown.
    written: Vec<LoadBalancerStatus>,
    corrections: u32,
    /// End of the pause after the last correction.
    paused_until: Option<Instant>,
}

/// What to do about the status of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusAction {
    /// Write the desired status.
    Write,
    /// Another controller wrote the status: report that, and write the desired one.
    Correct,
    /// Another controller wrote the status, and it was corrected not long ago: leave it for now.
    LeaveFor(Duration),
}

impl OwnWrites {
    /// Records that `before` was changed, and that the API server returned `after`.
    pub fn record(&mut self, before: &Service, after: &Arc<Service>, now: Instant) {
        let known = self.last.take().filter(|last| last.service.resource_version == before.resource_version);
        let mut replaced = known.map(|last| last.replaced).unwrap_or_default();
        replaced.push(before.resource_version.clone());
        self.last = Some(Write { replaced, service: after.clone(), at: now });
    }

    /// Returns the current Service: the stored one, or the last write if the watch has not shown it yet.
    pub fn latest(&mut self, stored: Arc<Service>, now: Instant) -> Arc<Service> {
        match &self.last {
            Some(last) if now.saturating_duration_since(last.at) < MAX_LAG && last.replaces(&stored) => {
                last.service.clone()
            }
            _ => {
                self.last = None;
                stored
            }
        }
    }

    /// Records that these annotations are about to be written.
    pub fn record_annotations(&mut self, before: &Service, change: &BTreeMap<String, Option<String>>) {
        if change.is_empty() {
            return;
        }
        let old = |name: &String| before.annotations.get(name).cloned();
        self.annotations = change.iter().map(|(name, new)| (name.clone(), (old(name), new.clone()))).collect();
    }

    /// Returns whether this process changed the annotations of `old` to those of `new`. It returns true only once per write: the
    /// same change later comes from another client.
    pub fn is_own_annotation(&mut self, old: &Service, new: &Service) -> bool {
        let is_own =
            !self.annotations.is_empty() && differences(&old.annotations, &new.annotations) == self.annotations;
        if is_own {
            self.annotations.clear();
        }
        is_own
    }

    /// Decides what to do about the status of a Service whose desired status is `desired`.
    pub fn decide_status(&mut self, service: &Service, desired: &LoadBalancerStatus, now: Instant) -> StatusAction {
        if !self.status.is_foreign(service) || status_equal(&service.status, desired) {
            return StatusAction::Write;
        }
        let pause = self.status.pause(now);
        if !pause.is_zero() {
            return StatusAction::LeaveFor(pause);
        }
        self.status.correct(now);
        StatusAction::Correct
    }

    /// Returns the time until the status is to be corrected; `None` if no other controller wrote it.
    pub fn correct_status_after(&self, service: &Service, now: Instant) -> Option<Duration> {
        self.status.is_foreign(service).then(|| self.status.pause(now))
    }

    /// Records that this status is about to be written. The outcome of the write may stay unknown.
    pub fn record_status(&mut self, service: &Service, status: &LoadBalancerStatus) {
        if self.status.uid.as_ref() != Some(&service.uid) {
            let written = vec![service.status.clone()];
            self.status = OwnStatus { uid: Some(service.uid.clone()), written, ..OwnStatus::default() };
        }
        if !self.status.written.contains(status) {
            self.status.written.push(status.clone());
        }
    }

    /// Records that the Service has this status. Do not call it with the status of another controller that is left for now.
    pub fn confirm_status(&mut self, status: &LoadBalancerStatus) {
        self.status.written.retain(|written| written == status);
    }
}

impl Write {
    /// Returns whether the stored version is older than this write: a version that the write replaced, or one that another client
    /// wrote in between. The latter was never read, and may have a finalizer or a condition that this write removed.
    fn replaces(&self, stored: &Service) -> bool {
        let is_older = || Some(version(stored)? < version(&self.service)?);
        stored.uid == self.service.uid
            && (self.replaced.contains(&stored.resource_version) || is_older().unwrap_or_default())
    }
}

/// Returns the resource version as a number. Versions are numbers in every Kubernetes API server, and can then be compared.
fn version(service: &Service) -> Option<u64> {
    service.resource_version.parse().ok()
}

impl OwnStatus {
    /// Returns whether another controller wrote the status. An empty status does not count: the API server clears it when the
    /// type of the Service changes.
    fn is_foreign(&self, service: &Service) -> bool {
        let is_own = || self.written.iter().any(|written| status_equal(written, &service.status));
        self.uid.as_ref() == Some(&service.uid) && !service.status.ingress.is_empty() && !is_own()
    }

    fn pause(&self, now: Instant) -> Duration {
        self.paused_until.map(|until| until.saturating_duration_since(now)).unwrap_or_default()
    }

    /// Counts a correction. Long after the last one, the count starts again.
    fn correct(&mut self, now: Instant) {
        let is_over = self.paused_until.is_some_and(|until| now.saturating_duration_since(until) > MAX_PAUSE);
        self.corrections = if is_over { 1 } else { self.corrections.saturating_add(1) };
        let doublings = self.corrections.saturating_sub(1).min(8);
        self.paused_until = Some(now + FIRST_PAUSE.saturating_mul(1 << doublings).min(MAX_PAUSE));
    }
}

/// Returns the annotations that differ, each with its old and new value.
fn differences(old: &BTreeMap<String, String>, new: &BTreeMap<String, String>) -> AnnotationChanges {
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let differing = keys.into_iter().filter(|key| old.get(*key) != new.get(*key));
    differing.map(|key| (key.clone(), (old.get(key).cloned(), new.get(key).cloned()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ingress;
    use crate::testing::service;

    fn at(version: &str) -> Arc<Service> {
        Arc::new(Service { resource_version: version.to_owned(), ..service("web/a") })
    }

    #[test]
    fn own_writes_are_returned_until_the_watch_shows_them_or_the_maximum_lag_is_over() {
        let (mut writes, now) = (OwnWrites::default(), Instant::now());
        writes.record(&at("1"), &at("2"), now);
        writes.record(&at("2"), &at("3"), now);
        let mut latest = |stored: &str| writes.latest(at(stored), now).resource_version.clone();
        assert_eq!([latest("1"), latest("2")], ["3", "3"]);
        assert_eq!(latest("4"), "4", "another client has written since");
        assert_eq!(latest("1"), "1", "the write is forgotten then");
        writes.record(&at("1"), &at("2"), now);
        assert_eq!(writes.latest(at("1"), now + MAX_LAG).resource_version, "1", "the API server was restored");
    }

    #[test]
    fn versions_that_other_clients_wrote_before_an_own_write_are_outdated() {
        let now = Instant::now();
        let latest = |writes: &mut OwnWrites, stored: Arc<Service>| writes.latest(stored, now).resource_version.clone();
        let written = || {
            let mut writes = OwnWrites::default();
            writes.record(&at("8"), &at("10"), now);
            writes
        };
        let mut writes = written();
        assert_eq!([latest(&mut writes, at("8")), latest(&mut writes, at("9"))], ["10", "10"]);
        assert_eq!(latest(&mut writes, at("11")), "11");
        assert_eq!(latest(&mut written(), at("other")), "other", "versions that cannot be compared count as current");
        let successor = Service { uid: "another".to_owned(), ..Service::clone(&at("9")) };
        assert_eq!(latest(&mut written(), Arc::new(successor)), "9", "a new Service of the same name");
    }

    fn status(ip: &str) -> LoadBalancerStatus {
        let ip = (!ip.is_empty()).then(|| ip.to_owned());
        let ingress = ip.map(|ip| Ingress { ip: Some(ip), ..Ingress::default() });
        LoadBalancerStatus { ingress: ingress.into_iter().collect() }
    }

    fn with_status(ip: &str) -> Service {
        Service { status: status(ip), ..service("default/web") }
    }

    /// Writes of a controller that wrote the status `a`.
    fn written() -> OwnWrites {
        let mut writes = OwnWrites::default();
        writes.record_status(&with_status(""), &status("a"));
        writes.confirm_status(&status("a"));
        writes
    }

    #[test]
    fn a_status_that_is_neither_written_nor_desired_comes_from_another_controller() {
        let now = Instant::now();
        let unknown = OwnWrites::default().decide_status(&with_status("x"), &status("a"), now);
        assert_eq!(unknown, StatusAction::Write, "the first sync of the process");
        let mut writes = written();
        for (shown, desired, action) in [
            ("a", "b", StatusAction::Write),
            ("", "a", StatusAction::Write),
            ("x", "x", StatusAction::Write),
            ("x", "a", StatusAction::Correct),
        ] {
            assert_eq!(writes.decide_status(&with_status(shown), &status(desired), now), action, "{shown} {desired}");
        }
        let successor = Service { uid: "other".to_owned(), ..with_status("x") };
        assert_eq!(writes.decide_status(&successor, &status("a"), now), StatusAction::Write);
        writes.record_status(&with_status("a"), &status("b"));
        for shown in ["a", "b"] {
            let after = writes.correct_status_after(&with_status(shown), now);
            assert_eq!(after, None, "{shown}: the outcome of the write is unknown");
        }
        assert_eq!(OwnWrites::default().correct_status_after(&with_status("x"), now), None);
    }

    #[test]
    fn corrections_back_off_and_the_back_off_is_reset_after_a_while() {
        let (mut writes, mut now) = (written(), Instant::now());
        let decide = |writes: &mut OwnWrites, now| writes.decide_status(&with_status("x"), &status("a"), now);
        for pause in [60, 120, 240, 480, 960, 1800, 1800].map(Duration::from_secs) {
            assert_eq!(decide(&mut writes, now), StatusAction::Correct);
            assert_eq!(decide(&mut writes, now), StatusAction::LeaveFor(pause));
            assert_eq!(writes.correct_status_after(&with_status("x"), now), Some(pause));
            now += pause;
        }
        now += MAX_PAUSE * 2;
        assert_eq!(decide(&mut writes, now), StatusAction::Correct);
        assert_eq!(decide(&mut writes, now), StatusAction::LeaveFor(FIRST_PAUSE));
    }
}
