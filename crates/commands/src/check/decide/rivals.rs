//! Findings about other cloud controller managers in the cluster.

use bowline_kube::{SeenLease, SeenService, Writer};
use jiff::{SignedDuration, Timestamp};

use crate::check::finding::{Finding, Kind};
use crate::check::observed::{MIN_VALIDITY, Manager, Observed};

/// Field manager of this program.
const OURS: &str = "bowline";
/// Lease of leader migration, held in addition to a manager's own, by the manager or by kube-controller-manager.
const MIGRATION: &str = "cloud-provider-extraction-migration";
/// Lease names of managers that do not follow the usual patterns.
const OTHER_NAMES: &[&str] = &["ccm", "cloud-controller"];

pub(super) fn decide(observed: &Observed) -> Vec<Finding> {
    let mut findings = Vec::new();
    match &observed.leases {
        None => {}
        Some(Err(error)) => findings.push(Finding::new(Kind::ReadError, "leases of other managers", error.to_string())),
        Some(Ok(leases)) => findings.extend(leases.iter().filter_map(|lease| self::lease(lease, &observed.manager))),
    }
    findings.extend(observed.own_lease.iter().filter_map(|lease| self::lease(lease, &observed.manager)));
    match &observed.services {
        None => {}
        Some(Err(error)) => findings.push(Finding::new(Kind::ReadError, "Services", error.to_string())),
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
        (false, _) if is_manager_lease(&lease.name) => Kind::SecondManager,
        (false, _) => return None,
    };
    let program = lease.writer.as_deref().map(|writer| format!(" ({writer})")).unwrap_or_default();
    Some(Finding::new(kind, &lease.name, format!("held by {}{program}", lease.holder)))
}

/// Whether the lease has a holder that renewed it recently.
fn is_held(lease: &SeenLease, now: Timestamp) -> bool {
    let valid_for = SignedDuration::from_secs(lease.seconds.max(MIN_VALIDITY.as_secs().cast_signed()));
    !lease.holder.is_empty() && lease.renewed.is_some_and(|renewed| now.duration_since(renewed) < valid_for)
}

fn is_manager_lease(lease: &str) -> bool {
    let has_usual_name = lease.contains("cloud-controller-manager") || lease.starts_with("cloud-provider-");
    lease != MIGRATION && (has_usual_name || OTHER_NAMES.contains(&lease))
}

fn is_ours(writer: Option<&str>) -> bool {
    writer.is_none_or(|writer| writer == OURS)
}

/// Finds the last other writer of a Service that this manager is responsible for.
fn service(service: &SeenService, manager: &Manager) -> Option<Finding> {
    let is_responsible = match &service.class {
        None => manager.takes_classless,
        Some(class) => manager.classes.contains(class),
    };
    let (ours, others): (Vec<&Writer>, Vec<&Writer>) =
        service.writers.iter().partition(|writer| is_ours(Some(&writer.name)));
    let other = others.into_iter().max_by_key(|writer| writer.time).filter(|_| is_responsible)?;
    let time = other.time.map(|time| format!(" at {time}")).unwrap_or_default();
    // A manager that writes after us is still running.
    let is_later = ours.iter().any(|ours| other.time >= ours.time);
    let kind = if is_later { Kind::ServiceConflict } else { Kind::ServiceOfAnother };
    Some(Finding::new(kind, &service.name, format!("written by {}{time}", other.name)))
}
