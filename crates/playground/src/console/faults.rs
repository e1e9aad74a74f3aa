//! Faults of the cloud that the page can turn on, with the names of `bowline cloud fault`.

use std::time::Duration;

use bowline_local::{Fault, FaultSpec, LocalCloud};

/// A fault, and what happens while it is on.
pub(super) struct KnownFault {
    pub(super) name: &'static str,
    pub(super) text: &'static str,
    fault: Fault,
}

/// Returns all faults, each once.
pub(super) fn all() -> [KnownFault; 10] {
    let fault = |fault: Fault, text: &'static str| KnownFault { name: name(&fault), text, fault };
    [
        fault(
            Fault::Empty,
            "The cloud returns empty lists, as it would with the credentials of another project. No Node may be deleted \
             because of that.",
        ),
        fault(
            Fault::Failing(503),
            "The cloud answers with HTTP status 503. The controllers back off and retry; load balancers and routes keep \
             working.",
        ),
        fault(
            Fault::Failing(401),
            "The cloud answers with HTTP status 401, as it would with expired credentials. Events say so.",
        ),
        fault(
            Fault::Throttled(Some(Duration::from_secs(5))),
            "The cloud answers with HTTP status 429 and requests a pause of 5 s, which the controllers keep.",
        ),
        fault(Fault::Slow(Duration::from_secs(2)), "The cloud takes 2 s longer for each answer."),
        fault(Fault::Hanging, "The cloud accepts calls and never answers, so each call ends with a timeout."),
        fault(
            Fault::Stale,
            "The cloud returns its resources as they were when the fault was turned on. Changes are applied, but not visible.",
        ),
        fault(
            Fault::AnswerLost,
            "The cloud applies each call, but its answer is lost. The controllers must not create anything twice.",
        ),
        fault(Fault::Garbled, "The cloud returns invalid answers. The controllers report errors and change nothing."),
        fault(
            Fault::Foreign(502, "<html><title>502 Bad Gateway</title></html>".to_owned()),
            "A proxy in front of the cloud answers with an error page instead of the cloud.",
        ),
    ]
}

/// Returns the name of a fault.
pub(super) fn name(fault: &Fault) -> &'static str {
    match fault {
        Fault::Slow(_) => "slow",
        Fault::Throttled(_) => "throttled",
        Fault::Failing(401 | 403) => "unauthorized",
        Fault::Failing(_) => "failing",
        Fault::Hanging => "hanging",
        Fault::Empty => "empty",
        Fault::Stale => "stale",
        Fault::AnswerLost => "answer-lost",
        Fault::Garbled => "garbled",
        Fault::Foreign(..) => "proxy-error",
    }
}

/// Turns a fault on, and returns what happens now.
pub(super) fn start(cloud: &LocalCloud, wanted: &str) -> Result<String, String> {
    let Some(known) = all().into_iter().find(|known| known.name == wanted) else { return Err(unknown(wanted)) };
    if numbers(cloud, wanted).next().is_some() {
        return Ok(format!("The fault {wanted} is already on."));
    }
    cloud.inject(FaultSpec::always(known.fault));
    Ok(format!("The fault {wanted} is on. {}", known.text))
}

/// Turns off a fault, also one that `bowline cloud fault` or the tour has injected.
pub(super) fn stop(cloud: &LocalCloud, wanted: &str) -> Result<String, String> {
    if !all().iter().any(|known| known.name == wanted) {
        return Err(unknown(wanted));
    }
    let numbers: Vec<u64> = numbers(cloud, wanted).collect();
    if numbers.is_empty() {
        return Ok(format!("The fault {wanted} is already off."));
    }
    numbers.into_iter().for_each(|number| _ = cloud.repair(number));
    Ok(format!("The fault {wanted} is off."))
}

/// Returns the numbers of the faults of this name that are in force.
fn numbers(cloud: &LocalCloud, wanted: &str) -> impl Iterator<Item = u64> {
    cloud.faults().into_iter().filter(move |(_, fault)| name(fault) == wanted).map(|(number, _)| number)
}

fn unknown(wanted: &str) -> String {
    let names: Vec<_> = all().iter().map(|known| known.name).collect();
    format!("there is no fault {wanted:?}; the faults are {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use bowline_local::CloudOptions;

    use super::*;

    #[test]
    fn each_fault_has_a_name_and_a_sentence() {
        let names: BTreeSet<_> = all().iter().map(|known| known.name).collect();
        assert_eq!(names.len(), all().len());
        assert!(all().iter().all(|known| known.text.ends_with('.')));
    }

    #[test]
    fn a_fault_is_turned_on_once_and_off_whoever_turned_it_on() {
        let cloud = LocalCloud::open(CloudOptions::default()).unwrap();
        assert!(start(&cloud, "slow").unwrap().starts_with("The fault slow is on."));
        assert_eq!(start(&cloud, "slow").unwrap(), "The fault slow is already on.");
        assert_eq!(cloud.faults().len(), 1);
        cloud.inject(FaultSpec::always(Fault::Slow(Duration::from_millis(1))));
        cloud.inject(FaultSpec::always(Fault::Empty));
        assert_eq!(stop(&cloud, "slow").unwrap(), "The fault slow is off.");
        assert_eq!(stop(&cloud, "slow").unwrap(), "The fault slow is already off.");
        assert_eq!(cloud.faults().into_iter().map(|(_, fault)| fault).collect::<Vec<_>>(), [Fault::Empty]);
        for unknown in [start(&cloud, "storm"), stop(&cloud, "storm")] {
            assert!(unknown.unwrap_err().contains("the faults are empty, failing"));
        }
    }
}
