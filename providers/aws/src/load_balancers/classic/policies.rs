//! Policies: the PROXY protocol on instance ports, and the predefined TLS policy of listeners.

use std::collections::{BTreeMap, BTreeSet};

use bowline_cloud::Result;
use bowline_core::Warning;
use bowline_core::annotations::ProxyProtocol;

use super::super::annotations as keys;
use super::super::{Inputs, checks};
use super::{ignored, listeners};
use crate::api::elb::{Listener, LoadBalancer, NewPolicy};

/// Name of the policy for the PROXY protocol.
pub(super) const PROXY_PROTOCOL: &str = "k8s-proxyprotocol-enabled";

/// Prefix of the names of TLS policies; the name of the predefined policy follows.
const TLS_PREFIX: &str = "k8s-SSLNegotiationPolicy-";

/// Returns whether the Service requests the PROXY protocol.
pub(super) fn has_proxy_protocol(inputs: &Inputs<'_>) -> Result<bool> {
    match inputs.values.text(&keys::PROXY_PROTOCOL) {
        None => Ok(inputs.settings.proxy_protocol == Some(ProxyProtocol::V1)),
        Some("*") => Ok(true),
        Some(other) => {
            let key = keys::PROXY_PROTOCOL.key;
            Err(checks::invalid(format!(
                "annotation {key:?}={other:?} detected, but the only value supported currently is '*'"
            )))
        }
    }
}

/// Returns the policy for the PROXY protocol.
pub(super) fn proxy_protocol() -> NewPolicy {
    NewPolicy {
        name: PROXY_PROTOCOL.to_owned(),
        kind: "ProxyProtocolPolicyType",
        attribute: ("ProxyProtocol", "true".to_owned()),
    }
}

/// Returns the TLS policy that the Service requests for its listeners; `None` if it has no listener with TLS.
// upstream: an empty annotation counts, too; AWS rejects the policy.
pub(super) fn tls(inputs: &Inputs<'_>, desired: &[Listener]) -> Option<NewPolicy> {
    let reference = inputs.values.text(&keys::SSL_NEGOTIATION_POLICY)?;
    desired.iter().any(listeners::is_tls).then(|| NewPolicy {
        name: format!("{TLS_PREFIX}{reference}"),
        kind: "SSLNegotiationPolicyType",
        attribute: ("Reference-Security-Policy", reference.to_owned()),
    })
}

/// Returns a warning about a TLS policy without a listener with TLS.
pub(super) fn warning(inputs: &Inputs<'_>, desired: &[Listener]) -> Option<Warning> {
    let key = keys::SSL_NEGOTIATION_POLICY.key;
    let is_unused =
        inputs.values.text(&keys::SSL_NEGOTIATION_POLICY).is_some() && !desired.iter().any(listeners::is_tls);
    is_unused
        .then(|| ignored(format!("{key} has no effect: no port of the Service has TLS; set {}", keys::SSL_CERT.key)))
}

/// Returns whether the load balancer has the policy.
pub(super) fn exists(observed: &LoadBalancer, name: &str) -> bool {
    let of_listeners = observed.listeners.iter().flat_map(|it| &it.policy_names);
    let of_backends = observed.backends.iter().flat_map(|it| &it.policy_names);
    observed.policies.other_policies.iter().chain(of_listeners).chain(of_backends).any(|it| it == name)
}

/// Returns the instance ports whose policies have to be changed, with their new policies. Other policies of a port in use stay.
// upstream: others are removed together with the PROXY protocol.
pub(super) fn backend_changes(
    observed: &LoadBalancer,
    desired: &[Listener],
    proxy_protocol: bool,
) -> BTreeMap<u16, Vec<String>> {
    let old: BTreeMap<u16, &[String]> =
        observed.backends.iter().map(|it| (it.instance_port, it.policy_names.as_slice())).collect();
    let used: BTreeSet<u16> = desired.iter().map(|listener| listener.instance_port).collect();
    let new = |port: &u16| -> Vec<String> {
        let kept = old.get(port).copied().unwrap_or_default().iter().filter(|it| *it != PROXY_PROTOCOL).cloned();
        kept.chain(proxy_protocol.then(|| PROXY_PROTOCOL.to_owned())).collect()
    };
    let has_proxy = |port: &u16| old.get(port).is_some_and(|names| names.iter().any(|it| it == PROXY_PROTOCOL));
    let changed = used.iter().filter(|port| has_proxy(port) != proxy_protocol).map(|port| (*port, new(port)));
    // Policies of an instance port remain when its listener is deleted.
    let unused = old.iter().filter(|(port, names)| !used.contains(port) && !names.is_empty());
    changed.chain(unused.map(|(port, _)| (*port, Vec::new()))).collect()
}

/// Returns the ports of listeners with TLS that do not have exactly this policy. A new listener has that of AWS.
pub(super) fn listener_changes(observed: &LoadBalancer, desired: &[Listener], policy: &str) -> BTreeSet<u16> {
    let has_policy = |wanted: &Listener| {
        let kept = observed.listeners.iter().find(|it| listeners::is_same(&it.listener, wanted));
        kept.is_some_and(|it| it.policy_names == [policy])
    };
    let with_tls = desired.iter().filter(|listener| listeners::is_tls(listener));
    with_tls.filter(|listener| !has_policy(listener)).map(|listener| listener.port).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::Fixture;
    use super::*;
    use crate::api::elb::{BackendDescription, ListenerDescription};

    #[test]
    fn only_one_value_enables_the_proxy_protocol() {
        let with =
            |value: &str| has_proxy_protocol(&Fixture::new().annotated(keys::PROXY_PROTOCOL.key, value).inputs());
        assert_eq!((with("*").ok(), with("").ok()), (Some(true), Some(false)));
        assert_eq!(
            with("tcp").unwrap_err().message(),
            "annotation \"service.beta.kubernetes.io/aws-load-balancer-proxy-protocol\"=\"tcp\" detected, but the only value \
             supported currently is '*'"
        );
        let mut common = Fixture::new();
        common.settings.proxy_protocol = Some(ProxyProtocol::V1);
        assert!(has_proxy_protocol(&common.inputs()).unwrap());
    }

    fn backends(policies: &[(u16, &[&str])]) -> LoadBalancer {
        let backend = |(port, names): &(u16, &[&str])| BackendDescription {
            instance_port: *port,
            policy_names: names.iter().map(|name| (*name).to_owned()).collect(),
        };
        LoadBalancer { backends: policies.iter().map(backend).collect(), ..LoadBalancer::default() }
    }

    #[test]
    fn instance_ports_get_and_lose_the_proxy_protocol() {
        let desired = [Listener { port: 80, instance_port: 30080, ..Listener::default() }];
        type Policies<'a> = &'a [(u16, &'a [&'a str])];
        let cases: [(Policies<'_>, bool, Policies<'_>); 7] = [
            (&[], true, &[(30080, &[PROXY_PROTOCOL])]),
            (&[], false, &[]),
            (&[(30080, &[PROXY_PROTOCOL])], true, &[]),
            (&[(30080, &[PROXY_PROTOCOL])], false, &[(30080, &[])]),
            (&[(30080, &["mine"])], true, &[(30080, &["mine", PROXY_PROTOCOL])]),
            (&[(30080, &["mine", PROXY_PROTOCOL])], false, &[(30080, &["mine"])]),
            (&[(30080, &["mine"]), (30081, &[PROXY_PROTOCOL]), (30082, &[])], false, &[(30081, &[])]),
        ];
        for (observed, proxy_protocol, expected) in cases {
            let changes = backend_changes(&backends(observed), &desired, proxy_protocol);
            let changes: Vec<(u16, Vec<&str>)> =
                changes.iter().map(|(port, names)| (*port, names.iter().map(String::as_str).collect())).collect();
            let expected: Vec<_> = expected.iter().map(|(port, names)| (*port, names.to_vec())).collect();
            assert_eq!(changes, expected, "{observed:?} {proxy_protocol}");
        }
    }

    #[test]
    fn listeners_with_tls_get_exactly_the_requested_policy() {
        let fixture = Fixture::new().annotated(keys::SSL_NEGOTIATION_POLICY.key, "Strict");
        let tls_listener = Listener { port: 443, protocol: "ssl".to_owned(), ..Listener::default() };
        let desired = [tls_listener.clone(), Listener { port: 80, protocol: "tcp".to_owned(), ..Listener::default() }];
        let policy = tls(&fixture.inputs(), &desired).unwrap();
        assert_eq!(policy.name, "k8s-SSLNegotiationPolicy-Strict");
        assert_eq!(policy.attribute, ("Reference-Security-Policy", "Strict".to_owned()));
        for (names, expected) in [
            (&[][..], true),
            (&["ELBSecurityPolicy-2016-08"], true),
            (&[policy.name.as_str()], false),
            (&[&policy.name, "b"], true),
        ] {
            let policy_names = names.iter().map(|name| (*name).to_owned()).collect();
            let listener = Listener { protocol: "SSL".to_owned(), ..tls_listener.clone() };
            let listeners = vec![ListenerDescription { listener, policy_names }];
            let observed = LoadBalancer { listeners, ..LoadBalancer::default() };
            let changed = listener_changes(&observed, &desired, &policy.name);
            assert_eq!(changed.into_iter().collect::<Vec<_>>(), if expected { vec![443] } else { vec![] }, "{names:?}");
        }
        assert_eq!(tls(&fixture.inputs(), &desired[1..]), None);
        assert!(warning(&fixture.inputs(), &desired[1..]).unwrap().message.contains("no port of the Service has TLS"));
    }

    #[test]
    fn a_policy_exists_if_the_load_balancer_lists_or_uses_it() {
        assert!(exists(&backends(&[(1, &["a"])]), "a") && !exists(&backends(&[(1, &["a"])]), "b"));
        let mut listed = LoadBalancer::default();
        listed.policies.other_policies.push("b".to_owned());
        assert!(exists(&listed, "b"));
    }
}
