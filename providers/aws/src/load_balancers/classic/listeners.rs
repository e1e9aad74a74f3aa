//! Listeners: one for each port of the Service that has a node port.

use bowline_cloud::Result;
use bowline_core::{PortSpec, Warning};

use super::super::annotations::{self as keys, Values};
use super::super::{Inputs, checks};
use super::ignored;
use crate::api::elb::{Listener, ListenerDescription};

/// Ports of the annotation `ssl-ports`, as numbers or lower-case names; `None` selects all.
struct TlsPorts<'a>(Option<Vec<&'a str>>);

impl<'a> TlsPorts<'a> {
    fn read(values: Values<'a>) -> TlsPorts<'a> {
        let listed = values.text(&keys::SSL_PORTS).filter(|text| *text != "*");
        TlsPorts(listed.map(|text| text.split(',').collect()))
    }

    fn contains(&self, port: &PortSpec) -> bool {
        let name = port.name.to_lowercase();
        // upstream: items are compared as they are written, with their blanks and capitals.
        let is_port = |item: &&str| item.parse().map_or(*item == name, |number: i64| number == i64::from(port.port));
        self.0.as_ref().is_none_or(|items| items.iter().any(is_port))
    }
}

/// Returns the listeners in the order of the Service's ports; at least one.
pub(super) fn desired(inputs: &Inputs<'_>) -> Result<Vec<Listener>> {
    let with_node_port = inputs.spec.ports.iter().filter_map(|port| Some((port, node_port(port)?)));
    let listeners: Vec<_> =
        with_node_port.map(|(port, node_port)| listener(inputs.values, port, node_port)).collect::<Result<_>>()?;
    if listeners.is_empty() {
        let message = "no port of the Service has a node port, and a Classic Load Balancer sends traffic to node ports; remove \
                       spec.allocateLoadBalancerNodePorts: false";
        return Err(checks::invalid(message));
    }
    Ok(listeners)
}

fn node_port(port: &PortSpec) -> Option<u16> {
    port.node_port.filter(|port| *port != 0)
}

fn listener(values: Values<'_>, port: &PortSpec, node_port: u16) -> Result<Listener> {
    let backend = values.text(&keys::BACKEND_PROTOCOL);
    let certificate = values.text(&keys::SSL_CERT).filter(|_| TlsPorts::read(values).contains(port));
    let (protocol, instance_protocol) = match (certificate, backend) {
        (None, Some("http")) => ("http", "http"),
        (None, _) => ("tcp", "tcp"),
        (Some(_), None | Some("tcp")) => ("ssl", "tcp"),
        (Some(_), Some("ssl")) => ("ssl", "ssl"),
        (Some(_), Some("http")) => ("https", "http"),
        (Some(_), Some("https")) => ("https", "https"),
        (Some(certificate), Some(other)) => {
            let key = keys::BACKEND_PROTOCOL.key;
            return Err(checks::invalid(format!("Invalid backend protocol {other} for {certificate} in {key}")));
        }
    };
    Ok(Listener {
        port: port.port,
        protocol: protocol.to_owned(),
        instance_port: node_port,
        instance_protocol: instance_protocol.to_owned(),
        certificate: certificate.map(str::to_owned),
    })
}

/// Returns whether clients connect to the listener with TLS.
pub(super) fn is_tls(listener: &Listener) -> bool {
    ["ssl", "https"].iter().any(|protocol| listener.protocol.eq_ignore_ascii_case(protocol))
}

/// Returns whether both are the same listener. AWS reports protocols in upper case.
pub(super) fn is_same(a: &Listener, b: &Listener) -> bool {
    let certificate = match (&a.certificate, &b.certificate) {
        (Some(a), Some(b)) => a.eq_ignore_ascii_case(b),
        (a, b) => a == b,
    };
    certificate
        && (a.port, a.instance_port) == (b.port, b.instance_port)
        && a.protocol.eq_ignore_ascii_case(&b.protocol)
        && a.instance_protocol.eq_ignore_ascii_case(&b.instance_protocol)
}

/// Returns the listeners to delete and those to create, sorted by port. A changed listener is both: AWS cannot change one.
pub(super) fn changes<'a>(
    observed: &'a [ListenerDescription],
    desired: &'a [Listener],
) -> (Vec<&'a Listener>, Vec<&'a Listener>) {
    let observed: Vec<&Listener> = observed.iter().map(|it| &it.listener).collect();
    let surplus = observed.iter().filter(|old| !desired.iter().any(|new| is_same(old, new)));
    let missing = desired.iter().filter(|new| !observed.iter().any(|old| is_same(old, new)));
    let (mut surplus, mut missing): (Vec<_>, Vec<_>) = (surplus.copied().collect(), missing.collect());
    surplus.sort();
    missing.sort();
    (surplus, missing)
}

/// Formats a listener for plans: `https 443 -> http 30443`.
pub(super) fn shown(listener: &Listener) -> String {
    let Listener { port, protocol, instance_port, instance_protocol, certificate } = listener;
    let certificate = certificate.as_ref().map(|arn| format!(" with {arn}")).unwrap_or_default();
    let (protocol, instance_protocol) = (protocol.to_lowercase(), instance_protocol.to_lowercase());
    format!("{protocol} {port} -> {instance_protocol} {instance_port}{certificate}")
}

/// Returns warnings about ports without a listener, and about annotations for TLS without effect.
pub(super) fn warnings(inputs: &Inputs<'_>) -> Vec<Warning> {
    let without = inputs.spec.ports.iter().filter(|port| node_port(port).is_none()).map(|port| {
        let port = port.port;
        format!(
            "port {port} has no node port, so it gets no listener; remove spec.allocateLoadBalancerNodePorts: false"
        )
    });
    let (certificate, ports) = (inputs.values.text(&keys::SSL_CERT), TlsPorts::read(inputs.values));
    let unused = certificate.is_some() && !inputs.spec.ports.iter().any(|port| ports.contains(port));
    let unused = unused
        .then(|| format!("{} has no effect: {} names no port of the Service", keys::SSL_CERT.key, keys::SSL_PORTS.key));
    let backend = inputs.values.text(&keys::BACKEND_PROTOCOL);
    let backend = backend.filter(|it| certificate.is_none() && !["http", "tcp"].contains(it)).map(|backend| {
        let (key, needed) = (keys::BACKEND_PROTOCOL.key, keys::SSL_CERT.key);
        format!("{key}: {backend} has no effect on listeners without {needed}")
    });
    without.chain(unused).chain(backend).map(ignored).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::Fixture;
    use super::*;

    const CERT: &str = "arn:cert";

    fn shown_of(fixture: &Fixture) -> Vec<String> {
        desired(&fixture.inputs()).unwrap().iter().map(shown).collect()
    }

    #[test]
    fn protocols_follow_certificate_ports_and_backend_protocol() {
        for (cert, ssl_ports, backend, expected) in [
            (None, None, None, "tcp 443 -> tcp 30443"),
            (None, None, Some("https"), "tcp 443 -> tcp 30443"),
            (None, None, Some("http"), "http 443 -> http 30443"),
            (None, Some("*"), Some("HTTP"), "tcp 443 -> tcp 30443"),
            (Some(""), None, Some("ssl"), "tcp 443 -> tcp 30443"),
            (Some(CERT), None, None, "ssl 443 -> tcp 30443 with arn:cert"),
            (Some(CERT), Some(""), Some(""), "ssl 443 -> tcp 30443 with arn:cert"),
            (Some(CERT), Some("*"), Some("http"), "https 443 -> http 30443 with arn:cert"),
            (Some(CERT), Some("443,https"), Some("https"), "https 443 -> https 30443 with arn:cert"),
            (Some(CERT), Some("foo,web"), Some("tcp"), "ssl 443 -> tcp 30443 with arn:cert"),
            (Some(CERT), Some("+443"), Some("ssl"), "ssl 443 -> ssl 30443 with arn:cert"),
            (Some(CERT), Some("1234,5678"), None, "tcp 443 -> tcp 30443"),
            (Some(CERT), Some("Web"), Some("http"), "http 443 -> http 30443"),
            (Some(CERT), Some("80, 443"), None, "tcp 443 -> tcp 30443"),
        ] {
            let mut fixture = Fixture::new().ports(&[("Web", 443)]);
            for (key, value) in
                [(keys::SSL_CERT.key, cert), (keys::SSL_PORTS.key, ssl_ports), (keys::BACKEND_PROTOCOL.key, backend)]
            {
                fixture = value.into_iter().fold(fixture, |fixture, value| fixture.annotated(key, value));
            }
            assert_eq!(shown_of(&fixture), [expected], "{cert:?} {ssl_ports:?} {backend:?}");
        }
    }

    #[test]
    fn an_unknown_backend_protocol_with_a_certificate_is_an_error() {
        let fixture = Fixture::new().annotated(keys::SSL_CERT.key, CERT).annotated(keys::BACKEND_PROTOCOL.key, "bacon");
        let error = desired(&fixture.inputs()).unwrap_err();
        let expected = "Invalid backend protocol bacon for arn:cert in service.beta.kubernetes.io/aws-load-balancer-backend-protocol";
        assert_eq!(error.message(), expected);
    }

    #[test]
    fn a_port_without_a_node_port_gets_no_listener_and_a_warning() {
        let mut fixture = Fixture::new().ports(&[("a", 80), ("b", 81)]);
        fixture.spec.ports[0].node_port = None;
        assert_eq!(shown_of(&fixture), ["tcp 81 -> tcp 30081"]);
        assert!(warnings(&fixture.inputs())[0].message.starts_with("port 80 has no node port"));
        fixture.spec.ports[1].node_port = None;
        assert!(desired(&fixture.inputs()).unwrap_err().message().starts_with("no port of the Service"));
    }

    #[test]
    fn annotations_for_tls_without_effect_are_reported() {
        let fixture = Fixture::new().annotated(keys::SSL_CERT.key, CERT).annotated(keys::SSL_PORTS.key, "444");
        assert!(warnings(&fixture.inputs())[0].message.ends_with("names no port of the Service"));
        let fixture = Fixture::new().annotated(keys::BACKEND_PROTOCOL.key, "https");
        assert!(warnings(&fixture.inputs())[0].message.contains("backend-protocol: https has no effect"));
        assert_eq!(warnings(&Fixture::new().annotated(keys::SSL_CERT.key, CERT).inputs()), []);
    }

    #[test]
    fn listeners_are_compared_without_regard_to_case() {
        let wanted = desired(&Fixture::new().annotated(keys::SSL_CERT.key, "arn:Cert").inputs()).unwrap();
        let upper = Listener {
            protocol: "SSL".to_owned(),
            instance_protocol: "TCP".to_owned(),
            certificate: Some("ARN:cert".to_owned()),
            ..wanted[0].clone()
        };
        let observed = |listener: Listener| [ListenerDescription { listener, policy_names: Vec::new() }];
        assert_eq!(changes(&observed(upper.clone()), &wanted), (vec![], vec![]));
        for other in [
            Listener { certificate: None, ..upper.clone() },
            Listener { protocol: "TCP".to_owned(), ..upper.clone() },
            Listener { instance_protocol: "SSL".to_owned(), ..upper.clone() },
            Listener { instance_port: 1, ..upper.clone() },
            Listener { port: 1, ..upper.clone() },
        ] {
            let observed = observed(other);
            assert_eq!(changes(&observed, &wanted), (vec![&observed[0].listener], vec![&wanted[0]]));
        }
    }
}
