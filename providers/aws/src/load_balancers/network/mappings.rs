//! Ports of the load balancer: what it accepts, and what it sends to the Nodes.

use bowline_core::{LoadBalancerSpec, PortSpec, Protocol};

use super::super::annotations::{self as keys, Values};

/// Protocols of listeners and target groups.
pub(super) const TCP: &str = "TCP";
pub(super) const UDP: &str = "UDP";
pub(super) const TLS: &str = "TLS";

/// Port of the load balancer with its node port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mapping {
    pub(super) port: u16,
    /// Protocol of the listener.
    pub(super) protocol: &'static str,
    pub(super) node_port: u16,
    /// Protocol of the target group.
    pub(super) traffic_protocol: &'static str,
}

/// Settings of TLS listeners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tls<'a> {
    /// ARN of the certificate.
    pub(super) certificate: Option<&'a str>,
    /// Policy; `None` for the default of AWS.
    pub(super) policy: Option<&'a str>,
    /// Ports with TLS; `None` for all.
    ports: Option<&'a str>,
    /// The Nodes get TLS as well.
    backend: bool,
}

impl<'a> Tls<'a> {
    pub(super) fn read(values: Values<'a>) -> Tls<'a> {
        Tls {
            certificate: values.text(&keys::SSL_CERT),
            policy: values.text(&keys::SSL_NEGOTIATION_POLICY).filter(|policy| !policy.is_empty()),
            ports: values.text(&keys::SSL_PORTS).filter(|ports| *ports != "*"),
            // upstream: exactly this text.
            backend: values.text(&keys::BACKEND_PROTOCOL) == Some("ssl"),
        }
    }

    // upstream: items are not trimmed, and the case of names matters.
    fn includes(&self, port: &PortSpec) -> bool {
        let is_named = |item: &str| match item.parse::<i64>() {
            Ok(number) => number == i64::from(port.port),
            Err(_) => item == port.name,
        };
        self.ports.is_none_or(|ports| ports.split(',').any(is_named))
    }
}

impl Mapping {
    /// Returns the protocol of security group rules: TLS is TCP there.
    // upstream: the rules of the own group ask for the protocol `tls`.
    pub(super) fn rule_protocol(&self) -> &'static str {
        if self.protocol == UDP { "udp" } else { "tcp" }
    }

    /// Returns the name of the listener, for plans.
    pub(super) fn name(&self) -> String {
        format!("{} {}", self.protocol, self.port)
    }
}

/// Returns the mappings, sorted by port. Ports without a node port have none.
pub(super) fn mappings(values: Values<'_>, spec: &LoadBalancerSpec) -> Vec<Mapping> {
    let tls = Tls::read(values);
    let mut mappings: Vec<_> = spec.ports.iter().filter_map(|port| mapping(port, &tls)).collect();
    mappings.sort_by_key(|mapping| (mapping.port, mapping.protocol));
    mappings
}

fn mapping(port: &PortSpec, tls: &Tls<'_>) -> Option<Mapping> {
    let node_port = port.node_port.filter(|port| *port > 0)?;
    let transport = if port.protocol == Protocol::Udp { UDP } else { TCP };
    let has_tls = transport == TCP && tls.certificate.is_some() && tls.includes(port);
    let protocol = if has_tls { TLS } else { transport };
    let traffic_protocol = if has_tls && tls.backend { TLS } else { transport };
    Some(Mapping { port: port.port, protocol, node_port, traffic_protocol })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{annotated, spec};
    use super::*;

    #[test]
    fn certificate_ports_and_backend_protocol_decide_the_protocols() {
        let cert = (keys::SSL_CERT.key, "arn:cert");
        for (pairs, expected) in [
            (vec![], ("TCP", "TCP")),
            (vec![cert], ("TLS", "TCP")),
            (vec![(keys::SSL_CERT.key, "")], ("TCP", "TCP")),
            (vec![cert, (keys::BACKEND_PROTOCOL.key, "ssl")], ("TLS", "TLS")),
            (vec![cert, (keys::BACKEND_PROTOCOL.key, "SSL")], ("TLS", "TCP")),
            (vec![(keys::BACKEND_PROTOCOL.key, "ssl")], ("TCP", "TCP")),
            (vec![cert, (keys::SSL_PORTS.key, "*")], ("TLS", "TCP")),
            (vec![cert, (keys::SSL_PORTS.key, "")], ("TLS", "TCP")),
            (vec![cert, (keys::SSL_PORTS.key, "443,80")], ("TLS", "TCP")),
            (vec![cert, (keys::SSL_PORTS.key, "443,Web")], ("TLS", "TCP")),
            (vec![cert, (keys::SSL_PORTS.key, "443,web")], ("TCP", "TCP")),
            (vec![cert, (keys::SSL_PORTS.key, "443, 80")], ("TCP", "TCP")),
            (vec![cert, (keys::SSL_PORTS.key, "1234,5678")], ("TCP", "TCP")),
        ] {
            let annotations = annotated(&pairs);
            let mut spec = spec();
            spec.ports[0].name = "Web".to_owned();
            let mappings = mappings(Values(&annotations), &spec);
            assert_eq!((mappings[0].protocol, mappings[0].traffic_protocol), expected, "{pairs:?}");
        }
    }

    #[test]
    fn udp_has_no_tls_and_ports_without_a_node_port_are_left_out() {
        let annotations = annotated(&[(keys::SSL_CERT.key, "arn:cert")]);
        let mut spec = spec();
        spec.ports[0].protocol = Protocol::Udp;
        spec.ports.push(PortSpec { port: 53, node_port: None, ..spec.ports[0].clone() });
        let expected = [Mapping { port: 80, protocol: UDP, node_port: 30080, traffic_protocol: UDP }];
        assert_eq!(mappings(Values(&annotations), &spec), expected);
        assert_eq!(expected[0].rule_protocol(), "udp");
    }
}
