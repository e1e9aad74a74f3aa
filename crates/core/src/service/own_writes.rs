//! Writes of this process to a Service, told apart from those of users and of other controllers.
//!
//! * The watch lags behind: [`OwnWrites::latest`] returns what this process wrote until the watch shows it.
//! * An annotation that this process wrote is no change by the user: [`OwnWrites::is_own_annotation`].
//! * A `status.loadBalancer` that is neither what this process wrote nor what it is about to write comes from another controller. It is
//!   corrected, with an Event, and less often each time: two controllers that both insist would otherwise write without end. Nothing is
//!   known of what an earlier process wrote, so that the first sync of a process reports nothing.
//!
//! The caller passes the time, so that tests need no clock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Service, status_equal};
use crate::LoadBalancerStatus;

/// Maximum lag of the watch behind a write. What the watch shows after that is the truth, for example after the API server was restored
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

    /// Whether this process changed the annotations of `old` to those of `new`. Each write answers this once: the same change by
    /// another client, later, is that client's.
    pub fn is_own_annotation(&mut self, old: &Service, new: &Service) -> bool {
        let is_own =
            !self.annotations.is_empty() && differences(&old.annotations, &new.annotations) == self.annotations;
        if is_own {
            self.annotations.clear();
        }
        is_own
    }

    /// Decides about the status of this Service, which is to become `desired`.
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

    /// Time until this status is to be corrected; `None` if no other controller wrote it.
    pub fn correct_status_after(&self, service: &Service, now: Instant) -> Option<Duration> {
        self.status.is_foreign(service).then(|| self.status.pause(now))
    }

    /// Records that this status is about to be written: the outcome of the write may stay unknown.
    pub fn record_status(&mut self, service: &Service, status: &LoadBalancerStatus) {
        if self.status.uid.as_ref() != Some(&service.uid) {
            let written = vec![service.status.clone()];
            self.status = OwnStatus { uid: Some(service.uid.clone()), written, ..OwnStatus::default() };
        }
        if !self.status.written.contains(status) {
            self.status.written.push(status.clone());
        }
    }

    /// Records that the Service has this status. That of another controller, which is left for now, does not count.
    pub fn confirm_status(&mut self, status: &LoadBalancerStatus) {
        self.status.written.retain(|written| written == status);
    }
}

impl Write {
    /// Whether the store shows an older version: one that this write replaced, or one of another client in between. That one was never
    /// read, and may show a finalizer or a condition which this write removed.
    fn replaces(&self, stored: &Service) -> bool {
        let is_older = || Some(version(stored)? < version(&self.service)?);
        stored.uid == self.service.uid
            && (self.replaced.contains(&stored.resource_version) || is_older().unwrap_or_default())
    }
}

/// Versions can be compared if they are numbers, which they are in all API servers of Kubernetes.
fn version(service: &Service) -> Option<u64> {
    service.resource_version.parse().ok()
}

impl OwnStatus {
    /// An empty status is no other controller's: the API server clears it when the type of the Service changes.
    fn is_foreign(&self, service: &Service) -> bool {
        let is_own = || self.written.iter().any(|written| status_equal(written, &service.status));
        self.uid.as_ref() == Some(&service.uid) && !service.status.ingress.is_empty() && !is_own()
    }

    fn pause(&self, now: Instant) -> Duration {
        self.paused_until.map(|until| until.saturating_duration_since(now)).unwrap_or_default()
    }

    /// Counts a correction. A dispute that comes long after the last one is another dispute.
    fn correct(&mut self, now: Instant) {
        let is_over = self.paused_until.is_some_and(|until| now.saturating_duration_since(until) > MAX_PAUSE);
        self.corrections = if is_over { 1 } else { self.corrections.saturating_add(1) };
        let doublings = self.corrections.saturating_sub(1).min(8);
        self.paused_until = Some(now + FIRST_PAUSE.saturating_mul(1 << doublings).min(MAX_PAUSE));
    }
}

/// Annotations that differ, each with the old and the new value.
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
    fn own_writes_count_until_the_watch_shows_them_and_not_for_ever() {
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
    fn a_version_that_another_client_wrote_before_our_write_is_as_outdated_as_the_one_that_we_changed() {
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
        assert_eq!(
            latest(&mut written(), at("other")),
            "other",
            "versions that cannot be compared are taken as they come"
        );
        let successor = Service { uid: "another".to_owned(), ..Service::clone(&at("9")) };
        assert_eq!(latest(&mut written(), Arc::new(successor)), "9", "a new Service of the same name");
    }

    fn status(ip: &str) -> LoadBalancerStatus {
        let ip = (!ip.is_empty()).then(|| ip.to_owned());
        let ingress = ip.map(|ip| Ingress { ip: Some(ip), ..Ingress::default() });
        LoadBalancerStatus { ingress: ingress.into_iter().collect() }
    }

    fn showing(ip: &str) -> Service {
        Service { status: status(ip), ..service("default/web") }
    }

    /// Writes of a controller that wrote the status `a`.
    fn written() -> OwnWrites {
        let mut writes = OwnWrites::default();
        writes.record_status(&showing(""), &status("a"));
        writes.confirm_status(&status("a"));
        writes
    }

    #[test]
    fn only_a_status_that_is_neither_written_nor_desired_is_another_controllers() {
        let now = Instant::now();
        let unknown = OwnWrites::default().decide_status(&showing("x"), &status("a"), now);
        assert_eq!(unknown, StatusAction::Write, "nothing is known of it");
        let mut writes = written();
        for (shown, desired, action) in [
            ("a", "b", StatusAction::Write),
            ("", "a", StatusAction::Write),
            ("x", "x", StatusAction::Write),
            ("x", "a", StatusAction::Correct),
        ] {
            assert_eq!(writes.decide_status(&showing(shown), &status(desired), now), action, "{shown} {desired}");
        }
        let successor = Service { uid: "other".to_owned(), ..showing("x") };
        assert_eq!(writes.decide_status(&successor, &status("a"), now), StatusAction::Write);
        writes.record_status(&showing("a"), &status("b"));
        for shown in ["a", "b"] {
            let after = writes.correct_status_after(&showing(shown), now);
            assert_eq!(after, None, "{shown}: the outcome of the write is unknown");
        }
        assert_eq!(OwnWrites::default().correct_status_after(&showing("x"), now), None);
    }

    #[test]
    fn corrections_come_less_often_each_time_and_begin_again_after_peace() {
        let (mut writes, mut now) = (written(), Instant::now());
        let decide = |writes: &mut OwnWrites, now| writes.decide_status(&showing("x"), &status("a"), now);
        for pause in [60, 120, 240, 480, 960, 1800, 1800].map(Duration::from_secs) {
            assert_eq!(decide(&mut writes, now), StatusAction::Correct);
            assert_eq!(decide(&mut writes, now), StatusAction::LeaveFor(pause));
            assert_eq!(writes.correct_status_after(&showing("x"), now), Some(pause));
            now += pause;
        }
        now += MAX_PAUSE * 2;
        assert_eq!(decide(&mut writes, now), StatusAction::Correct);
        assert_eq!(decide(&mut writes, now), StatusAction::LeaveFor(FIRST_PAUSE));
    }
}
