//! Assertions about traffic.

use std::collections::BTreeSet;

use super::Snapshot;
use crate::traffic::Probe;

/// All requests are answered by these Pods. Every response must be `hello from POD on NODE; …`.
pub(super) fn answered_by(snapshot: &Snapshot, probe: &Probe, wanted: &BTreeSet<String>) -> (bool, String) {
    let results = snapshot.results(probe);
    let mut pods = BTreeSet::new();
    for (address, answer) in results {
        match answer {
            Ok(reply) => match reply.strip_prefix("hello from ").and_then(|rest| rest.split_whitespace().next()) {
                Some(pod) => drop(pods.insert(pod.to_owned())),
                None => return (false, format!("{address} answered {reply:?}")),
            },
            Err(error) => return (false, format!("{address} {probe} did not answer: {error}")),
        }
    }
    let observed =
        if results.is_empty() { "no address to probe".to_owned() } else { format!("answers from {}", join(&pods)) };
    (pods == *wanted, observed)
}

pub(super) fn not_answering(snapshot: &Snapshot, probe: &Probe) -> (bool, String) {
    match snapshot.results(probe) {
        [] => (false, "no address to probe".to_owned()),
        results => match results.iter().find_map(|(address, answer)| Some((address, answer.as_ref().ok()?))) {
            Some((address, reply)) => (false, format!("{address} answered {reply:?}")),
            None => (true, "no answer".to_owned()),
        },
    }
}

pub(super) fn only_nodes_with_pods(snapshot: &Snapshot, name: &str) -> (bool, String) {
    let Some(service) = snapshot.service(name) else { return (false, format!("there is no Service {name}")) };
    let has_pod =
        |node: &str| snapshot.pods.iter().any(|pod| pod.node() == Some(node) && service.selects(pod) && pod.is_ready());
    let results = snapshot.results(&Probe::Health(name.to_owned()));
    let wrong = results.iter().find_map(|(node, answer)| {
        let right = if has_pod(node) { "200" } else { "503" };
        (answer.as_deref() != Ok(right)).then(|| match answer {
            Ok(status) => format!("{node} returned {status}, expected {right}"),
            Err(error) => format!("{node} does not answer: {error}"),
        })
    });
    let observed = wrong.clone().unwrap_or_else(|| format!("{} Nodes probed", results.len()));
    (wrong.is_none() && !results.is_empty(), observed)
}

pub(super) fn join(names: &BTreeSet<String>) -> String {
    names.iter().map(String::as_str).collect::<Vec<_>>().join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assertion::Assertion;
    use serde_json::{Value, json};

    fn decode<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    fn http() -> Probe {
        Probe::Http("s".to_owned(), 80)
    }

    /// Creates a snapshot of a Service with a Pod on the Node `a`, and the results of one probe.
    fn snapshot(probe: Probe, results: &[(&str, Result<&str, &str>)]) -> Snapshot {
        let service = json!({
            "metadata": {"name": "s"}, "spec": {"selector": {"app": "s"}},
            "status": {"loadBalancer": {"ingress": [{"ip": "127.0.0.9"}]}},
        });
        let pod = json!({
            "metadata": {"name": "p", "labels": {"app": "s"}}, "spec": {"containers": [], "nodeName": "a"},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        });
        let owned = |(who, reply): &(&str, Result<&str, &str>)| {
            ((*who).to_owned(), reply.map(str::to_owned).map_err(str::to_owned))
        };
        let results = [(probe, results.iter().map(owned).collect())].into();
        Snapshot { services: vec![decode(service)], pods: vec![decode(pod)], results, ..Snapshot::default() }
    }

    fn by(pods: &[&str]) -> Assertion {
        Assertion::AnsweredBy(http(), pods.iter().map(|pod| (*pod).to_owned()).collect())
    }

    #[test]
    fn exactly_the_expected_pods_must_answer() {
        let (p, q) = (("x", Ok("hello from p on a; you are c")), ("x", Ok("hello from q on b; you are c")));
        let (refused, odd) = (("x", Err("refused")), ("x", Ok("SSH-2.0")));
        let cases = [
            (vec![p, q, p], by(&["p", "q"]), Ok(())),
            (vec![p, p], by(&["p", "q"]), Err("answers from p")),
            (vec![p, q], by(&["q"]), Err("answers from p and q")),
            (vec![q, refused], by(&["q"]), Err("x over HTTP on port 80 did not answer: refused")),
            (vec![odd], by(&["q"]), Err("x answered \"SSH-2.0\"")),
            (vec![], by(&["q"]), Err("no address to probe")),
            (vec![refused], Assertion::NotAnswering(http()), Ok(())),
            (vec![p], Assertion::NotAnswering(http()), Err("x answered \"hello from p on a; you are c\"")),
            (vec![], Assertion::NotAnswering(http()), Err("no address to probe")),
        ];
        for (results, assertion, outcome) in cases {
            assert_eq!(assertion.check(&snapshot(http(), &results)), outcome.map_err(str::to_owned), "{assertion}");
        }
    }

    #[test]
    fn nodes_with_a_pod_pass_the_health_check() {
        let cases = [
            (vec![("a", Ok("200")), ("b", Ok("503"))], Ok(())),
            (vec![("a", Ok("503"))], Err("a returned 503, expected 200")),
            (vec![("a", Ok("200")), ("b", Ok("200"))], Err("b returned 200, expected 503")),
            (vec![("a", Err("refused"))], Err("a does not answer: refused")),
            (vec![], Err("0 Nodes probed")),
        ];
        for (results, outcome) in cases {
            let snapshot = snapshot(Probe::Health("s".to_owned()), &results);
            let checked = Assertion::OnlyNodesWithPods("s".to_owned()).check(&snapshot);
            assert_eq!(checked, outcome.map_err(str::to_owned), "{results:?}");
        }
    }

    #[test]
    fn a_service_has_an_address_or_is_deleted() {
        let snapshot = snapshot(http(), &[]);
        let [there, other] = ["s", "t"].map(str::to_owned);
        assert_eq!(Assertion::HasAddress(there.clone()).check(&snapshot), Ok(()));
        assert_eq!(Assertion::NoService(other.clone()).check(&snapshot), Ok(()));
        assert_eq!(Assertion::HasAddress(other).check(&snapshot), Err("there is no Service t".to_owned()));
        let observed = "the Service has the address 127.0.0.9".to_owned();
        assert_eq!(Assertion::NoService(there).check(&snapshot), Err(observed));
        let waiting = Snapshot { services: vec![decode(json!({"metadata": {"name": "s"}}))], ..Snapshot::default() };
        assert!(Assertion::HasAddress("s".to_owned()).check(&waiting).is_err());
        assert!(Assertion::NoService("s".to_owned()).check(&waiting).is_err());
    }
}
