//! Forwarding rules.

use std::collections::BTreeSet;

use bowline_core::annotations::{Annotation, Parsed};
use bowline_core::{PortSpec, Protocol, parse_bool};

use super::annotations::{self as keys, Values};
use super::request::{CertificateLookup, LoadBalancerType};
use crate::api::ForwardingRule;

/// Port that is served with TLS if a certificate is set and no annotation names the TLS ports.
const DEFAULT_TLS_PORT: i64 = 443;

/// Builds the rules of a load balancer.
pub(super) fn build(
    values: Values<'_>,
    kind: LoadBalancerType,
    ports: &[PortSpec],
    certificate: &CertificateLookup,
) -> Result<Vec<ForwardingRule>, String> {
    match kind {
        LoadBalancerType::RegionalNetwork => ports.iter().map(pass_through).collect(),
        LoadBalancerType::Regional => Proxy::read(values, certificate)?.rules(values, ports),
    }
}

/// Packets keep their port: kube-proxy accepts them by the address of the load balancer, not by the node port.
fn pass_through(port: &PortSpec) -> Result<ForwardingRule, String> {
    let (protocol, number) = (transport(port)?, u64::from(port.port));
    Ok(rule(protocol, number, protocol, number))
}

fn transport(port: &PortSpec) -> Result<&'static str, String> {
    match port.protocol {
        Protocol::Tcp => Ok("tcp"),
        Protocol::Udp => Ok("udp"),
        other => Err(format!("only TCP or UDP protocol is supported, got: \"{other}\"")),
    }
}

fn rule(entry: &str, entry_port: u64, target: &str, target_port: u64) -> ForwardingRule {
    let (entry_protocol, target_protocol) = (entry.to_owned(), target.to_owned());
    ForwardingRule { entry_protocol, entry_port, target_protocol, target_port, ..ForwardingRule::default() }
}

/// Settings of a proxy's rules.
struct Proxy<'a> {
    default: &'a str,
    http: Vec<i64>,
    https: Vec<i64>,
    http2: Vec<i64>,
    certificate: Option<&'a str>,
    passthrough: bool,
}

impl<'a> Proxy<'a> {
    fn read(values: Values<'a>, certificate: &'a CertificateLookup) -> Result<Proxy<'a>, String> {
        let default = default_protocol(values)?;
        let [http, mut https, http2] = lists(values)?;
        let (certificate, passthrough) = (certificate.id()?, passthrough(values));
        let has_tls_ports = values.0.contains_key(keys::TLS_PORTS.key);
        if (certificate.is_some() || passthrough) && !has_tls_ports && !http2.contains(&DEFAULT_TLS_PORT) {
            https.push(DEFAULT_TLS_PORT);
        }
        Ok(Proxy { default, http, https, http2, certificate, passthrough })
    }

    fn rules(&self, values: Values<'_>, ports: &[PortSpec]) -> Result<Vec<ForwardingRule>, String> {
        let mut rules = ports.iter().map(|port| self.rule(port)).collect::<Result<Vec<_>, _>>()?;
        rules.extend(
            self.http3(values, ports).map_err(|why| format!("failed to construct http3 forwarding rule: {why}"))?,
        );
        Ok(rules)
    }

    fn rule(&self, port: &PortSpec) -> Result<ForwardingRule, String> {
        let (number, target_port) = (i64::from(port.port), node_port(port)?);
        let protocol = match transport(port)? {
            "udp" => "udp",
            _ if self.http2.contains(&number) => "http2",
            _ if self.https.contains(&number) => "https",
            _ if self.http.contains(&number) => "http",
            _ => self.default,
        };
        let plain = rule(protocol, port.port.into(), protocol, target_port);
        match protocol {
            "https" | "http2" => {
                self.with_tls(plain).map_err(|why| format!("failed to build TLS part(s) of forwarding rule: {why}"))
            }
            _ => Ok(plain),
        }
    }

    fn with_tls(&self, rule: ForwardingRule) -> Result<ForwardingRule, String> {
        match (self.certificate, self.passthrough) {
            (None, false) => Err("must set certificate id or enable tls pass through".to_owned()),
            (Some(_), true) => {
                Err("either certificate id should be set or tls pass through enabled, not both".to_owned())
            }
            (None, true) => Ok(ForwardingRule { tls_passthrough: true, ..rule }),
            (Some(id), false) => {
                Ok(ForwardingRule { certificate_id: id.to_owned(), target_protocol: "http".to_owned(), ..rule })
            }
        }
    }

    fn http3(&self, values: Values<'_>, ports: &[PortSpec]) -> Result<Option<ForwardingRule>, String> {
        let Some(number) = values.get(&keys::HTTP3_PORT)? else { return Ok(None) };
        if self.passthrough {
            return Err("TLS passthrough is not allowed to be used in conjunction with HTTP3".to_owned());
        }
        let id = self.certificate.ok_or("certificate ID is required for HTTP3")?;
        let port = ports.iter().find(|port| i64::from(port.port) == number);
        port.map(|port| {
            let rule = rule("http3", port.port.into(), "http", node_port(port)?);
            Ok(ForwardingRule { certificate_id: id.to_owned(), ..rule })
        })
        .transpose()
    }
}

/// Returns the node port, which a proxy connects to.
// upstream: the rule is sent without a port, and the API rejects it.
fn node_port(port: &PortSpec) -> Result<u64, String> {
    let missing = || {
        let (number, key) = (port.port, keys::TYPE.key);
        format!(
            "port {number} has no node port; remove spec.allocateLoadBalancerNodePorts, or set {key} to \"REGIONAL_NETWORK\""
        )
    };
    port.node_port.filter(|port| *port > 0).map(u64::from).ok_or_else(missing)
}

fn default_protocol(values: Values<'_>) -> Result<&str, String> {
    match values.text(&keys::PROTOCOL) {
        None => Ok("tcp"),
        Some(protocol @ ("tcp" | "http" | "https" | "http2" | "http3")) => Ok(protocol),
        Some(other) => Err(format!("invalid protocol {other:?} specified in annotation {:?}", keys::PROTOCOL.key)),
    }
}

/// Returns the ports with HTTP, HTTPS and HTTP/2. No port may be listed twice.
fn lists(values: Values<'_>) -> Result<[Vec<i64>; 3], String> {
    let list = |annotation: &Annotation<Parsed<Vec<i64>>>| Ok::<_, String>(values.get(annotation)?.unwrap_or_default());
    let lists = [list(&keys::HTTP_PORTS)?, list(&keys::TLS_PORTS)?, list(&keys::HTTP2_PORTS)?];
    let mut seen = BTreeSet::new();
    let twice = lists.iter().flatten().filter(|port| !seen.insert(**port));
    let twice: BTreeSet<String> = twice.map(ToString::to_string).collect();
    if !twice.is_empty() {
        let found = twice.into_iter().collect::<Vec<_>>().join(", ");
        return Err(format!(
            "ports from annotations \"service.beta.kubernetes.io/do-loadbalancer-*-ports\" cannot be shared but found: {found}"
        ));
    }
    Ok(lists)
}

// upstream: an invalid value is false.
fn passthrough(values: Values<'_>) -> bool {
    values.text(&keys::TLS_PASSTHROUGH).and_then(parse_bool).unwrap_or_default()
}
