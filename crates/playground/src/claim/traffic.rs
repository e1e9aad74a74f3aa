//! Claims about traffic: who answers, who does not, and who should.

use std::collections::BTreeSet;

use super::Snapshot;
use crate::traffic::Probe;

/// Every answer must be `hello from POD on NODE; …`.
pub(super) fn answered_by(snapshot: &Snapshot, probe: &Probe, wanted: &BTreeSet<String>) -> (bool, String) {
    let findings = snapshot.findings(probe);
    let mut pods = BTreeSet::new();
    for (address, answer) in findings {
        match answer {
            Ok(said) => match said.strip_prefix("hello from ").and_then(|rest| rest.split_whitespace().next()) {
                Some(pod) => drop(pods.insert(pod.to_owned())),
                None => return (false, format!("{address} said {said:?}")),
            },
            Err(error) => return (false, format!("{address} {probe} did not answer: {error}")),
        }
    }
    let seen =
        if findings.is_empty() { "no address to ask at".to_owned() } else { format!("answers by {}", words(&pods)) };
    (pods == *wanted, seen)
}

pub(super) fn silent(snapshot: &Snapshot, probe: &Probe) -> (bool, String) {
    match snapshot.findings(probe) {
        [] => (false, "no address to ask at".to_owned()),
        findings => match findings.iter().find_map(|(address, answer)| Some((address, answer.as_ref().ok()?))) {
            Some((address, said)) => (false, format!("{address} said {said:?}")),
            None => (true, "nobody answers".to_owned()),
        },
    }
}

pub(super) fn only_nodes_with_pods(snapshot: &Snapshot, name: &str) -> (bool, String) {
    let Some(service) = snapshot.service(name) else { return (false, format!("there is no Service {name}")) };
    let has_pod =
        |node: &str| snapshot.pods.iter().any(|pod| pod.node() == Some(node) && service.selects(pod) && pod.is_ready());
    let findings = snapshot.findings(&Probe::Health(name.to_owned()));
    let wrong = findings.iter().find_map(|(node, answer)| {
        let right = if has_pod(node) { "200" } else { "503" };
        (answer.as_deref() != Ok(right)).then(|| match answer {
            Ok(status) => format!("{node} says {status}, not {right}"),
            Err(error) => format!("{node} does not answer: {error}"),
        })
    });
    let seen = wrong.clone().unwrap_or_else(|| format!("{} Nodes asked", findings.len()));
    (wrong.is_none() && !findings.is_empty(), seen)
}

pub(super) fn words(names: &BTreeSet<String>) -> String {
    names.iter().map(String::as_str).collect::<Vec<_>>().join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Claim;
    use serde_json::{Value, json};

    fn decode<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    fn http() -> Probe {
        Probe::Http("s".to_owned(), 80)
    }

    /// A Service with a Pod on the Node `a`, and what was found with one probe.
    fn snapshot(probe: Probe, findings: &[(&str, Result<&str, &str>)]) -> Snapshot {
        let service = json!({
            "metadata": {"name": "s"}, "spec": {"selector": {"app": "s"}},
            "status": {"loadBalancer": {"ingress": [{"ip": "127.0.0.9"}]}},
        });
        let pod = json!({
            "metadata": {"name": "p", "labels": {"app": "s"}}, "spec": {"containers": [], "nodeName": "a"},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        });
        let owned = |(who, said): &(&str, Result<&str, &str>)| {
            ((*who).to_owned(), said.map(str::to_owned).map_err(str::to_owned))
        };
        let findings = [(probe, findings.iter().map(owned).collect())].into();
        Snapshot { services: vec![decode(service)], pods: vec![decode(pod)], findings, ..Snapshot::default() }
    }

    fn by(pods: &[&str]) -> Claim {
        Claim::AnsweredBy(http(), pods.iter().map(|pod| (*pod).to_owned()).collect())
    }

    #[test]
    fn a_service_is_answered_by_exactly_the_pods_that_were_named() {
        let (p, q) = (("x", Ok("hello from p on a; you are c")), ("x", Ok("hello from q on b; you are c")));
        let (refused, odd) = (("x", Err("refused")), ("x", Ok("SSH-2.0")));
        let cases = [
            (vec![p, q, p], by(&["p", "q"]), Ok(())),
            (vec![p, p], by(&["p", "q"]), Err("answers by p")),
            (vec![p, q], by(&["q"]), Err("answers by p and q")),
            (vec![q, refused], by(&["q"]), Err("x over HTTP on port 80 did not answer: refused")),
            (vec![odd], by(&["q"]), Err("x said \"SSH-2.0\"")),
            (vec![], by(&["q"]), Err("no address to ask at")),
            (vec![refused], Claim::Silent(http()), Ok(())),
            (vec![p], Claim::Silent(http()), Err("x said \"hello from p on a; you are c\"")),
            (vec![], Claim::Silent(http()), Err("no address to ask at")),
        ];
        for (findings, claim, outcome) in cases {
            assert_eq!(claim.check(&snapshot(http(), &findings)), outcome.map_err(str::to_owned), "{claim}");
        }
    }

    #[test]
    fn nodes_want_traffic_if_they_have_a_pod() {
        let cases = [
            (vec![("a", Ok("200")), ("b", Ok("503"))], Ok(())),
            (vec![("a", Ok("503"))], Err("a says 503, not 200")),
            (vec![("a", Ok("200")), ("b", Ok("200"))], Err("b says 200, not 503")),
            (vec![("a", Err("refused"))], Err("a does not answer: refused")),
            (vec![], Err("0 Nodes asked")),
        ];
        for (findings, outcome) in cases {
            let snapshot = snapshot(Probe::Health("s".to_owned()), &findings);
            let checked = Claim::OnlyNodesWithPods("s".to_owned()).check(&snapshot);
            assert_eq!(checked, outcome.map_err(str::to_owned), "{findings:?}");
        }
    }

    #[test]
    fn a_service_has_an_address_or_is_gone() {
        let snapshot = snapshot(http(), &[]);
        let [there, other] = ["s", "t"].map(str::to_owned);
        assert_eq!(Claim::HasAddress(there.clone()).check(&snapshot), Ok(()));
        assert_eq!(Claim::NoService(other.clone()).check(&snapshot), Ok(()));
        assert_eq!(Claim::HasAddress(other).check(&snapshot), Err("there is no Service t".to_owned()));
        let seen = "it is there, with the address 127.0.0.9".to_owned();
        assert_eq!(Claim::NoService(there).check(&snapshot), Err(seen));
        let waiting = Snapshot { services: vec![decode(json!({"metadata": {"name": "s"}}))], ..Snapshot::default() };
        assert!(Claim::HasAddress("s".to_owned()).check(&waiting).is_err());
        assert!(Claim::NoService("s".to_owned()).check(&waiting).is_err());
    }
}
