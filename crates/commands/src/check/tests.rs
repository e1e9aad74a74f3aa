//! Every finding, from an observed state that causes it.

use std::collections::BTreeSet;
use std::sync::Arc;

use bowline_cloud::{Error, ErrorKind, NoOwner, Ownership, Quota, Result};
use bowline_config::ConfigError;
use bowline_core::{Instance, InstanceState, ProviderId};
use bowline_kube::{ConnectFailure, Permission, ReadError, Scope, SeenLease, SeenNode, SeenService, Server, Writer};
use jiff::Timestamp;

use super::decide::decide;
use super::finding::{Finding, Kind};
use super::observed::{Manager, Observed, ObservedCloud, Review};
use super::print;

const ADDRESS: &str = "https://10.0.0.1:6443";

fn server(version: &str, user: &str) -> Observed {
    let server = Server { address: ADDRESS.into(), version: version.into(), user: Some(user.into()) };
    Observed { server: Some(Ok(server)), ..Observed::default() }
}

fn unreachable_server(make: fn(String, String) -> ConnectFailure) -> Observed {
    Observed { server: Some(Err(make(ADDRESS.into(), "why".into()))), ..Observed::default() }
}

fn reviewed(allowed: std::result::Result<bool, ReadError>, account: Option<&'static str>, scope: Scope) -> Observed {
    let (group, resource, verbs) = ("coordination.k8s.io", "leases", &["get"]);
    let permission = Permission { group, resource, verbs, scope, why: "leader election", without: None };
    Observed { reviews: vec![Review { account, permission, verb: "get", allowed }], ..Observed::default() }
}

/// An optional permission is missing.
fn optional_permission_denied() -> Observed {
    let mut observed = reviewed(Ok(false), None, Scope::Cluster);
    observed.reviews.iter_mut().for_each(|review| review.permission.without = Some("slower updates"));
    observed
}

fn cloud(check: Result<()>, quotas: Result<Vec<Quota>>) -> Observed {
    let outcome = check.map(|()| "responds".to_owned());
    let results = vec![bowline_cloud::CheckResult { subject: "cloud".into(), outcome }];
    Observed { clouds: vec![ObservedCloud { name: "harbour".into(), results, quotas }], ..Observed::default() }
}

fn error(kind: ErrorKind) -> Error {
    Error::new(kind, "check the cloud", "no")
}

fn quota(used: u64, limit: u64) -> Observed {
    cloud(Ok(()), Ok(vec![Quota { resource: "routes".into(), used, limit }]))
}

fn plain_node() -> SeenNode {
    SeenNode {
        name: "n".into(),
        provider_id: None,
        system_uuid: None,
        is_uninitialized: false,
        has_cloud_labels: false,
        kubelet: "v1.36.0".into(),
    }
}

fn with_id() -> SeenNode {
    SeenNode { provider_id: ProviderId::new("harbour://1"), ..plain_node() }
}

fn waiting() -> SeenNode {
    SeenNode { is_uninitialized: true, ..plain_node() }
}

fn node(node: SeenNode, machine: Result<Ownership>) -> Observed {
    Observed { nodes: Some(Ok(vec![(node, Some(machine))])), ..Observed::default() }
}

fn machine(name: &str) -> Result<Ownership> {
    let instance = Instance { id: "1".into(), name: name.into(), ..Instance::default() };
    Ok(Ownership::Owned { provider: "harbour".into(), state: InstanceState::Running(Arc::new(instance)) })
}

fn no_owner(reason: NoOwner) -> Result<Ownership> {
    Ok(Ownership::NoOwner(reason))
}

fn time(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

fn manager() -> Manager {
    Manager {
        elects: true,
        lease: "cloud-controller-manager".into(),
        classes: vec!["bowline.dev/harbour".into()],
        takes_classless: true,
        now: time("2026-01-01T00:01:00Z"),
    }
}

fn lease(name: &str, writer: &str, renewed: &str) -> Observed {
    let lease = SeenLease {
        name: name.into(),
        holder: "host_1".into(),
        renewed: time(renewed),
        seconds: 15,
        writer: Some(writer.into()),
    };
    Observed { leases: Some(Ok(vec![lease])), manager: manager(), ..Observed::default() }
}

/// A Service with these writers, each at its second.
fn service(class: Option<&str>, writers: &[(&str, u32)]) -> Observed {
    let writer = |(name, second): &(&str, u32)| {
        let text = format!("2026-01-01T00:00:{second:02}Z");
        Writer { name: (*name).to_owned(), time: time(&text) }
    };
    let writers = writers.iter().map(writer).collect();
    let service = SeenService { name: "default/web".into(), class: class.map(str::to_owned), writers };
    Observed { services: Some(Ok(vec![service])), manager: manager(), ..Observed::default() }
}

fn forbidden() -> ReadError {
    ReadError::Forbidden("forbidden".into())
}

/// Observed states, each with all its findings.
#[rustfmt::skip]
fn cases() -> Vec<(Observed, &'static [&'static str])> {
    let just_now = "2026-01-01T00:00:55Z";
    let foreign = || ProviderId::new("moon://1").map(NoOwner::ForeignId);
    vec![
        (Observed::default(), &[]),
        (Observed { errors: vec![ConfigError::flag("cluster-cidr", "is wrong")], ..Observed::default() }, &["configuration| |--cluster-cidr: is wrong"]),
        (unreachable_server(|address, why| ConnectFailure::Dns { address, why }), &["api-name|https://10.0.0.1:6443|why"]),
        (unreachable_server(|address, why| ConnectFailure::Connection { address, why }), &["api-connection|https://10.0.0.1:6443|why"]),
        (unreachable_server(|address, why| ConnectFailure::Handshake { address, why }), &["api-conversation|https://10.0.0.1:6443|why"]),
        (unreachable_server(|address, why| ConnectFailure::Unauthenticated { address, why }), &["api-credentials|https://10.0.0.1:6443|why"]),
        (unreachable_server(|address, why| ConnectFailure::NotReady { address, why }), &["api-unwell|https://10.0.0.1:6443|why"]),
        (server("v1.36.1", "system:anonymous"), &["api-anonymous|https://10.0.0.1:6443|the server responds, and does not authenticate the client"]),
        (server("v1.36.1", "me"), &["api-reached|https://10.0.0.1:6443|version v1.36.1, authenticated as me"]),
        (server("v1.29.9+k3s1", "me"), &[
            "server-old|https://10.0.0.1:6443|version v1.29.9+k3s1; tested: 1.30 to 1.38",
            "in-tree-clouds|https://10.0.0.1:6443|version v1.29.9+k3s1",
            "api-reached|https://10.0.0.1:6443|version v1.29.9+k3s1, authenticated as me",
        ]),
        (server("v1.99.0", "me"), &[
            "api-reached|https://10.0.0.1:6443|version v1.99.0, authenticated as me",
            "server-new|https://10.0.0.1:6443|version v1.99.0; tested: 1.30 to 1.38",
        ]),
        (server("unknown", "me"), &["api-reached|https://10.0.0.1:6443|version unknown, authenticated as me"]),
        (reviewed(Ok(true), None, Scope::Cluster), &["rights-complete| |1 permissions"]),
        (reviewed(Ok(false), None, Scope::Named("kube-system".into(), "l".into())), &["right-missing|get leases.coordination.k8s.io l in kube-system|leader election"]),
        (reviewed(Ok(false), Some("node-controller"), Scope::Namespace("a".into())), &["right-missing|get leases.coordination.k8s.io in a (as kube-system:node-controller)|leader election"]),
        (optional_permission_denied(), &["right-dispensable|get leases.coordination.k8s.io|slower updates"]),
        (reviewed(Err(forbidden()), None, Scope::Cluster), &["right-unknown|get leases.coordination.k8s.io|forbidden"]),
        (cloud(Ok(()), Ok(Vec::new())), &["cloud-reached|harbour: cloud|responds"]),
        (cloud(Err(error(ErrorKind::Unauthenticated)), Err(error(ErrorKind::Unauthenticated))), &["cloud-credentials|harbour: cloud|check the cloud: no"]),
        (cloud(Err(error(ErrorKind::PermissionDenied)), Ok(Vec::new())), &["cloud-rights|harbour: cloud|check the cloud: no"]),
        (cloud(Err(error(ErrorKind::Unavailable)), Ok(Vec::new())), &["cloud-unreachable|harbour: cloud|check the cloud: no"]),
        (cloud(Err(error(ErrorKind::InvalidConfig)), Ok(Vec::new())), &["cloud-configuration|harbour: cloud|check the cloud: no"]),
        (cloud(Err(error(ErrorKind::NotFound)), Ok(Vec::new())), &["cloud-configuration|harbour: cloud|check the cloud: no"]),
        (cloud(Err(error(ErrorKind::Unsupported)), Ok(Vec::new())), &["cloud-lacks|harbour: cloud|check the cloud: no"]),
        (cloud(Ok(()), Err(error(ErrorKind::Unavailable))), &["unseen|quotas of harbour|check the cloud: no", "cloud-reached|harbour: cloud|responds"]),
        (quota(10, 10), &["quota-exhausted|harbour: routes|10 of 10 used", "cloud-reached|harbour: cloud|responds"]),
        (quota(8, 10), &["quota-low|harbour: routes|8 of 10 used", "cloud-reached|harbour: cloud|responds"]),
        (quota(7, 10), &["cloud-reached|harbour: cloud|responds"]),
        (node(plain_node(), machine("n")), &["kubelet-not-external|n|in harbour"]),
        (node(SeenNode { has_cloud_labels: true, ..plain_node() }, machine("n")), &["provider-id-missing|n|in harbour"]),
        (node(waiting(), no_owner(NoOwner::Unclaimed)), &["node-name-unknown|n|"]),
        (node(waiting(), machine("n")), &["nodes-waiting|n|in harbour"]),
        (node(plain_node(), no_owner(NoOwner::Unclaimed)), &["node-of-no-cloud|n|"]),
        (node(with_id(), no_owner(NoOwner::Declined("harbour".into()))), &["node-of-no-cloud|n|harbour does not manage it"]),
        (node(with_id(), no_owner(foreign().unwrap_or(NoOwner::Unclaimed))), &["provider-id-foreign|n|moon://1"]),
        (node(with_id(), Ok(Ownership::Owned { provider: "harbour".into(), state: InstanceState::Gone })), &["machine-gone|n|in harbour"]),
        (node(with_id(), machine("other")), &["node-name-mismatch|n|named other in harbour"]),
        (node(with_id(), machine("")), &["nodes-known|n|in harbour"]),
        (node(with_id(), machine("n")), &["nodes-known|n|in harbour"]),
        (node(with_id(), Err(error(ErrorKind::Unavailable))), &["machine-unknown|n|check the cloud: no"]),
        (Observed { nodes: Some(Err(forbidden())), ..Observed::default() }, &["unseen|Nodes|forbidden"]),
        (lease("cloud-controller-manager", "bowline", just_now), &["lease-held|cloud-controller-manager|held by host_1 (bowline)"]),
        (lease("cloud-controller-manager", "cloud-controller-manager", just_now), &["lease-of-another|cloud-controller-manager|held by host_1 (cloud-controller-manager)"]),
        (lease("cloud-controller-manager", "bowline", "2026-01-01T00:00:00Z"), &[]),
        (Observed { manager: Manager { elects: false, ..manager() }, ..lease("cloud-controller-manager", "x", just_now) }, &["election-off|cloud-controller-manager|held by host_1 (x)"]),
        (lease("hcloud-cloud-controller-manager", "hcloud", just_now), &["second-manager|hcloud-cloud-controller-manager|held by host_1 (hcloud)"]),
        (lease("cloud-provider-moon", "moon", just_now), &["second-manager|cloud-provider-moon|held by host_1 (moon)"]),
        (lease("ccm", "ccm", just_now), &["second-manager|ccm|held by host_1 (ccm)"]),
        (lease("cloud-provider-extraction-migration", "kube-controller-manager", just_now), &[]),
        (lease("kube-scheduler", "kube-scheduler", just_now), &[]),
        (Observed { leases: Some(Err(forbidden())), own_lease: lease("cloud-controller-manager", "bowline", just_now).leases.and_then(|leases| leases.ok()?.pop()), manager: manager(), ..Observed::default() }, &["unseen|leases of other managers|forbidden", "lease-held|cloud-controller-manager|held by host_1 (bowline)"]),
        (service(None, &[("bowline", 1)]), &[]),
        (service(None, &[("go-ccm", 1)]), &["service-of-another|default/web|written by go-ccm at 2026-01-01T00:00:01Z"]),
        (service(None, &[("go-ccm", 1), ("bowline", 2)]), &["service-of-another|default/web|written by go-ccm at 2026-01-01T00:00:01Z"]),
        (service(None, &[("bowline", 1), ("go-ccm", 2)]), &["service-fought-over|default/web|written by go-ccm at 2026-01-01T00:00:02Z"]),
        (service(Some("bowline.dev/harbour"), &[("bowline", 1), ("go-ccm", 2)]), &["service-fought-over|default/web|written by go-ccm at 2026-01-01T00:00:02Z"]),
        (service(Some("other"), &[("bowline", 1), ("go-ccm", 2)]), &[]),
        (Observed { services: Some(Err(forbidden())), ..Observed::default() }, &["unseen|Services|forbidden"]),
        (skewed(&["v1.36.9", "v1.33.0", "v1.32.9", "v1.37.0", ""]), &["kubelet-skew|n2|kubelet v1.32.9", "kubelet-skew|n3|kubelet v1.37.0", "api-reached|https://10.0.0.1:6443|version v1.36.1, authenticated as me"]),
    ]
}

/// Kubelets of these versions and an API server.
fn skewed(kubelets: &[&str]) -> Observed {
    let node = |(index, kubelet): (usize, &&str)| {
        let node = SeenNode { name: format!("n{index}"), kubelet: (*kubelet).to_owned(), ..with_id() };
        (node, None)
    };
    Observed { nodes: Some(Ok(kubelets.iter().enumerate().map(node).collect())), ..server("v1.36.1", "me") }
}

fn lines(findings: &[Finding]) -> Vec<String> {
    let line = |kind: Kind, about: &str, detail: &str| {
        format!("{}|{}|{detail}", kind.id(), if about.is_empty() { " " } else { about })
    };
    let all = findings.iter().flat_map(|finding| finding.about.iter().map(|(a, d)| line(finding.kind, a, d)));
    all.collect()
}

#[test]
fn the_newest_tested_version_is_that_of_the_embedded_api_server() {
    assert_eq!(*super::decide::TESTED.end(), bowline_apiserver::KUBERNETES_MINOR);
}

#[test]
fn every_finding_is_reported_for_its_observed_state() {
    let mut found = BTreeSet::new();
    for (observed, expected) in cases() {
        let findings = decide(&observed);
        assert_eq!(lines(&findings), expected);
        found.extend(findings.iter().map(|finding| finding.kind));
    }
    let missing: Vec<_> = Kind::ALL.iter().filter(|kind| !found.contains(kind)).collect();
    assert!(missing.is_empty(), "no case for {missing:?}");
}

#[test]
fn the_guide_lists_every_finding_with_its_severity() {
    let guide = include_str!("../../../../docs/guides/check.md");
    for kind in Kind::ALL {
        let row = format!("| `{}` | {} | {} | {} |", kind.id(), kind.severity().word(), kind.why(), kind.fix());
        assert!(guide.contains(&row), "docs/guides/check.md lacks this row:\n{row}");
    }
    assert_eq!(
        guide.lines().filter(|line| line.starts_with("| `")).count(),
        Kind::ALL.len(),
        "the guide lists unknown findings"
    );
}

#[test]
fn every_error_and_warning_has_a_fix() {
    let without_fix: Vec<_> =
        Kind::ALL.iter().filter(|kind| kind.severity().word() != "ok" && kind.fix().is_empty()).collect();
    assert!(without_fix.is_empty(), "{without_fix:?}");
}

#[test]
fn findings_are_printed_as_text_and_as_json() {
    let mut observed = skewed(&["v1.20.0"; 7]);
    observed.errors.push(ConfigError::flag("cluster-cidr", "is wrong"));
    let findings = decide(&observed);
    let mut many = Observed::default();
    many.errors.extend((0..9).map(|number| ConfigError::new(format!("error {number}"))));
    assert!(print::text(&decide(&many)).contains("error 8"), "the text lists every configuration error");
    let text = print::text(&findings);
    let expected = "\
error    configuration: the manager does not start with these flags and files
         - --cluster-cidr: is wrong
         fix: correct the flags and files named in the messages
warning  kubelet-skew: a kubelet must not be newer than the API server, nor more than three minor versions older
         - n0: kubelet v1.20.0
         - n1: kubelet v1.20.0
         - n2: kubelet v1.20.0
         - n3: kubelet v1.20.0
         - n4: kubelet v1.20.0
         - and 2 more; -o json shows all
         fix: upgrade the API server first, then the kubelets
ok       api-reached: the API server responds
         - https://10.0.0.1:6443: version v1.36.1, authenticated as me
1 error, 1 warning.
";
    assert_eq!(text, expected);
    let json = print::json(&findings);
    assert_eq!((&json["version"], &json["errors"], &json["warnings"]), (&1.into(), &1.into(), &1.into()));
    assert_eq!(json["findings"][1]["found"].as_array().map(Vec::len), Some(7), "the JSON lists all Nodes");
    assert_eq!(json["findings"][0]["found"][0]["detail"], "--cluster-cidr: is wrong");
}
