//! The load balancer status of Services, if another controller writes it as well.
//!
//! A status that is neither what this controller wrote nor what it is about to write comes from another one. It is corrected, with an
//! Event, and less often each time: two controllers that both insist would otherwise write without end. Nothing is known of what an
//! earlier process wrote, so that the first sync of a process reports nothing.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_core::service::status_equal;
use bowline_core::{LoadBalancerStatus, Service, ServiceKey};
use bowline_runtime::Backoff;
use tokio::time::Instant;

/// Pause after a correction of a status.
const PAUSE: Backoff = Backoff { first: Duration::from_secs(60), max: Duration::from_secs(30 * 60) };

/// The statuses that this controller wrote, by Service. Bounded by the number of Services, if those that are gone are forgotten.
#[derive(Default)]
pub(super) struct Statuses(Mutex<HashMap<ServiceKey, Record>>);

#[derive(Default)]
struct Record {
    uid: String,
    /// Written by this controller; several while the outcome of a write is unknown.
    ours: Vec<LoadBalancerStatus>,
    corrections: u32,
    /// End of the pause after the last correction.
    paused_until: Option<Instant>,
}

/// What to do about the status of a Service.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Write what is wanted.
    Write,
    /// Another controller wrote it: report that, and write what is wanted.
    Correct,
    /// Another controller wrote it, and it was corrected not long ago: leave it for now.
    LeaveFor(Duration),
}

impl Statuses {
    /// Decides about the status of this Service, of which `wanted` is to be written.
    pub(super) fn judge(&self, service: &Service, wanted: &LoadBalancerStatus) -> Verdict {
        let mut records = self.lock();
        let record = records.get_mut(&service.key()).filter(|record| record.is_foreign(service));
        let Some(record) = record.filter(|_| !status_equal(&service.status, wanted)) else { return Verdict::Write };
        let pause = record.pause();
        if !pause.is_zero() {
            return Verdict::LeaveFor(pause);
        }
        record.correct();
        Verdict::Correct
    }

    /// Time until this status is to be corrected; `None` if no other controller wrote it.
    pub(super) fn correct_after(&self, service: &Service) -> Option<Duration> {
        let records = self.lock();
        records.get(&service.key()).filter(|record| record.is_foreign(service)).map(Record::pause)
    }

    /// This controller is about to write this status, and may not learn whether it did.
    pub(super) fn writes(&self, service: &Service, status: &LoadBalancerStatus) {
        let mut records = self.lock();
        let record = records.entry(service.key()).or_default();
        if record.uid != service.uid {
            let ours = vec![service.status.clone()];
            *record = Record { uid: service.uid.clone(), ours, ..Record::default() };
        }
        if !record.ours.contains(status) {
            record.ours.push(status.clone());
        }
    }

    /// The Service has this status. That of another controller, which is left for now, does not count.
    pub(super) fn wrote(&self, service: &Service, status: &LoadBalancerStatus) {
        if let Some(record) = self.lock().get_mut(&service.key()) {
            record.ours.retain(|ours| ours == status);
        }
    }

    /// The Service is gone.
    pub(super) fn forget(&self, key: &ServiceKey) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ServiceKey, Record>> {
        // Every change above leaves the map whole, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Record {
    /// An empty status is no other controller's: the API server clears it when the type of the Service changes.
    fn is_foreign(&self, service: &Service) -> bool {
        let is_ours = || self.ours.iter().any(|ours| status_equal(ours, &service.status));
        self.uid == service.uid && !service.status.ingress.is_empty() && !is_ours()
    }

    fn pause(&self) -> Duration {
        self.paused_until.map(|until| until.saturating_duration_since(Instant::now())).unwrap_or_default()
    }

    /// Counts a correction. A dispute that comes long after the last one is another dispute.
    fn correct(&mut self) {
        let is_over = self.paused_until.is_some_and(|until| until.elapsed() > PAUSE.max);
        self.corrections = if is_over { 1 } else { self.corrections.saturating_add(1) };
        self.paused_until = Some(Instant::now() + PAUSE.after(self.corrections));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_core::Ingress;
    use bowline_core::testing::service;

    fn status(ip: &str) -> LoadBalancerStatus {
        let ip = (!ip.is_empty()).then(|| ip.to_owned());
        let ingress = ip.map(|ip| Ingress { ip: Some(ip), ..Ingress::default() });
        LoadBalancerStatus { ingress: ingress.into_iter().collect() }
    }

    fn showing(ip: &str) -> Service {
        Service { status: status(ip), ..service("default/web") }
    }

    /// Statuses of which this controller wrote `a`.
    fn written() -> Statuses {
        let statuses = Statuses::default();
        statuses.writes(&showing(""), &status("a"));
        statuses.wrote(&showing(""), &status("a"));
        statuses
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_status_that_is_neither_written_nor_wanted_is_another_controllers() {
        assert_eq!(Statuses::default().judge(&showing("x"), &status("a")), Verdict::Write, "nothing is known of it");
        let statuses = written();
        for (shown, wanted, verdict) in [
            ("a", "b", Verdict::Write),
            ("", "a", Verdict::Write),
            ("x", "x", Verdict::Write),
            ("x", "a", Verdict::Correct),
        ] {
            assert_eq!(statuses.judge(&showing(shown), &status(wanted)), verdict, "{shown} {wanted}");
        }
        let successor = Service { uid: "other".to_owned(), ..showing("x") };
        assert_eq!(statuses.judge(&successor, &status("a")), Verdict::Write);
        statuses.writes(&showing("a"), &status("b"));
        for shown in ["a", "b"] {
            assert_eq!(statuses.correct_after(&showing(shown)), None, "{shown}: the outcome of the write is unknown");
        }
        statuses.forget(&showing("").key());
        assert_eq!(statuses.correct_after(&showing("x")), None);
    }

    #[tokio::test(start_paused = true)]
    async fn corrections_come_less_often_each_time_and_begin_again_after_peace() {
        let statuses = written();
        let judge = || statuses.judge(&showing("x"), &status("a"));
        for pause in [60, 120, 240, 480, 960, 1800, 1800] {
            assert_eq!(judge(), Verdict::Correct);
            assert_eq!(judge(), Verdict::LeaveFor(Duration::from_secs(pause)));
            assert_eq!(statuses.correct_after(&showing("x")), Some(Duration::from_secs(pause)));
            tokio::time::advance(Duration::from_secs(pause)).await;
        }
        tokio::time::advance(PAUSE.max * 2).await;
        assert_eq!((judge(), judge()), (Verdict::Correct, Verdict::LeaveFor(Duration::from_secs(60))));
    }
}
