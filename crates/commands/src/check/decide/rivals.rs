//! Who else is at work in the cluster.

use bowline_kube::{SeenLease, SeenService, Writer};
use jiff::{SignedDuration, Timestamp};

use crate::check::finding::{Finding, Kind};
use crate::check::observed::{LONG_AGO, Manager, Observed};

/// What this program is called where the API server notes who wrote.
const OURS: &str = "bowline";
/// Leases of this name are held beside that of a manager, by the same program or by kube-controller-manager.
const MIGRATION: &str = "cloud-provider-extraction-migration";
/// Names of leases of managers that have neither of the usual words in them.
const OTHER_NAMES: &[&str] = &["ccm", "cloud-controller"];

pub(super) fn decide(observed: &Observed) -> Vec<Finding> {
    let mut findings = Vec::new();
    match &observed.leases {
        None => {}
        Some(Err(unseen)) => {
            findings.push(Finding::new(Kind::ReadError, "the leases of other managers", unseen.to_string()))
        }
        Some(Ok(leases)) => findings.extend(leases.iter().filter_map(|lease| self::lease(lease, &observed.manager))),
    }
    findings.extend(observed.own_lease.iter().filter_map(|lease| self::lease(lease, &observed.manager)));
    match &observed.services {
        None => {}
        Some(Err(unseen)) => findings.push(Finding::new(Kind::ReadError, "the Services", unseen.to_string())),
        Some(Ok(services)) => {
            findings.extend(services.iter().filter_map(|service| self::service(service, &observed.manager)));
        }
    }
    findings
}

fn lease(lease: &SeenLease, manager: &Manager) -> Option<Finding> {
    if !is_held(lease, manager.now?) {
        return None;
    }
    let kind = match (lease.name == manager.lease, is_ours(lease.writer.as_deref())) {
        (true, _) if !manager.elects => Kind::ElectionOff,
        (true, true) => Kind::LeaseHeld,
        (true, false) => Kind::LeaseOfAnother,
        (false, _) if is_of_a_manager(&lease.name) => Kind::SecondManager,
        (false, _) => return None,
    };
    let program = lease.writer.as_deref().map(|writer| format!(" ({writer})")).unwrap_or_default();
    Some(Finding::new(kind, &lease.name, format!("held by {}{program}", lease.holder)))
}

/// Somebody holds it and has renewed it of late.
fn is_held(lease: &SeenLease, now: Timestamp) -> bool {
    let longest = SignedDuration::from_secs(lease.seconds.max(LONG_AGO.as_secs().cast_signed()));
    !lease.holder.is_empty() && lease.renewed.is_some_and(|renewed| now.duration_since(renewed) < longest)
}

fn is_of_a_manager(lease: &str) -> bool {
    let has_usual_words = lease.contains("cloud-controller-manager") || lease.starts_with("cloud-provider-");
    lease != MIGRATION && (has_usual_words || OTHER_NAMES.contains(&lease))
}

fn is_ours(writer: Option<&str>) -> bool {
    writer.is_none_or(|writer| writer == OURS)
}

/// Who else wrote the load balancer of a Service that is ours to see to.
fn service(service: &SeenService, manager: &Manager) -> Option<Finding> {
    let is_for_us = match &service.class {
        None => manager.takes_classless,
        Some(class) => manager.classes.contains(class),
    };
    let (ours, others): (Vec<&Writer>, Vec<&Writer>) =
        service.writers.iter().partition(|writer| is_ours(Some(&writer.name)));
    let other = others.into_iter().max_by_key(|writer| writer.time).filter(|_| is_for_us)?;
    let time = other.time.map(|time| format!(" at {time}")).unwrap_or_default();
    // Whoever comes after us has not stopped.
    let is_later = ours.iter().any(|ours| other.time >= ours.time);
    let kind = if is_later { Kind::ServiceFoughtOver } else { Kind::ServiceOfAnother };
    Some(Finding::new(kind, &service.name, format!("written by {}{time}", other.name)))
}
