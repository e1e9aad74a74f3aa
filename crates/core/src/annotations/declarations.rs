//! Declarations of the common annotations: key, kind, default, example and description.

use super::kinds::{Bool, Cidrs, OneOf, Parsed, Port, PositiveDuration};
use super::selector::{NodeSelector, is_name};
use super::{DeletionPolicy, PREFIX, ProxyProtocol, Table, annotations};
use crate::IpMode;

/// Annotations that have the same meaning for every provider.
pub const COMMON: Table = Table { all: ALL, prefixes: &[PREFIX], trim: true, head: HEAD, ..Table::EMPTY };

annotations! {
    pub const ALL;

    INTERNAL: Bool = Bool::Go, "bowline.dev/internal", "false", "true",
        "The load balancer gets an address that is reachable from inside the cloud's network only.";
    SOURCE_RANGES: Cidrs = Cidrs, "bowline.dev/source-ranges", "all clients may connect", "10.0.0.0/8, 2001:db8::/32",
        "CIDRs from which clients may connect. `spec.loadBalancerSourceRanges` takes precedence over it, and it takes \
         precedence over `service.beta.kubernetes.io/load-balancer-source-ranges`. Host bits are cleared, and duplicates \
         are removed. `0.0.0.0/0` allows all clients, also over IPv6 unless the list has an IPv6 CIDR.";
    PROXY_PROTOCOL: OneOf<ProxyProtocol> = OneOf::any_case(&PROXY_PROTOCOLS), "bowline.dev/proxy-protocol",
        "no PROXY protocol", "v2",
        "Version of the PROXY protocol header, with the client's address, at the start of every connection to a Node. The backend \
         of the Service must expect it.";
    IDLE_TIMEOUT: PositiveDuration = PositiveDuration, "bowline.dev/idle-timeout", "default of the cloud", "10m",
        "Time after which a connection without traffic is closed.";
    HEALTH_CHECK_PATH: Parsed<String> = PATH, "bowline.dev/health-check-path",
        "/healthz if `spec.externalTrafficPolicy` is Local; otherwise a TCP connection without a request", "/ready",
        "Path of the HTTP health check of the Nodes.";
    HEALTH_CHECK_PORT: Port = Port, "bowline.dev/health-check-port",
        "`spec.healthCheckNodePort` if `spec.externalTrafficPolicy` is Local; otherwise the node port of each port", "10256",
        "Port of the health check on the Nodes.";
    HEALTH_CHECK_INTERVAL: PositiveDuration = PositiveDuration, "bowline.dev/health-check-interval", "default of the cloud", "5s",
        "Interval between two health checks of a Node.";
    TARGET_NODES: Parsed<NodeSelector> = SELECTOR, "bowline.dev/target-nodes", "all Nodes of the load balancer's cloud",
        "topology.kubernetes.io/zone in (a, b), !spot",
        "Label selector: only matching Nodes are targets of the load balancer. It narrows the selection and never widens it: a \
         Node that is excluded from load balancers stays excluded. Of several requirements, all must be met.";
    POLICY: OneOf<DeletionPolicy> = OneOf::any_case(&POLICIES), "bowline.dev/policy", "delete", "retain",
        "What happens to the load balancer when the Service is deleted or gets another type. `delete`: it is deleted. \
         `retain`: it stays in the cloud without the mark of Bowline; it is no longer managed, and a Service may adopt it later. \
         `protect`: it stays, and the Service keeps its finalizer, until the annotation has another value. While the value is \
         invalid, nothing is deleted either.";
    SHARE_GROUP: Parsed<String> = NAME, "bowline.dev/share-group", "an address of its own", "web",
        "Services of one namespace with the same value share one address; their ports must differ. The same value in another \
         namespace is another group.";
    IP_MODE: OneOf<IpMode> = OneOf::any_case(&IP_MODES), "bowline.dev/ip-mode", "the mode of the cloud's load balancers", "Proxy",
        "How Nodes treat the address in `status.loadBalancer`. `VIP`: traffic from inside the cluster may bypass the load \
         balancer. `Proxy`: it also passes through the load balancer; use this with the PROXY protocol, whose header is \
         missing otherwise.";
    ADOPT: Parsed<String> = NAME_OR_ID, "bowline.dev/adopt", "a new load balancer is created", "old-balancer",
        "Name or ID of an existing load balancer that the Service adopts: it gets the mark of Bowline and is changed to the \
         desired state. A load balancer with the mark of another owner is rejected. The annotation may stay; it has no further \
         effect.";
    PAUSED: Bool = Bool::Go, "bowline.dev/paused", "false", "true",
        "On a Service or a Node: no controller changes it, or anything in a cloud on its behalf, until the annotation is removed. \
         The load balancer keeps working, but does not follow changes of the Service or the Nodes. A Service that is deleted \
         stays, with its finalizer. A Node is neither initialized, tainted nor deleted, and keeps its addresses, pod CIDRs, \
         routes, and tags of its machine. The Event `Paused` and `/statusz` show paused objects, and `bowline plan` prints a note for each. A value that is neither \
         true nor false counts as true, with a warning Event.";
}

const HEAD: &str = "\
# Annotations of Services

<!-- Generated by `cargo xtask generate` from crates/core/src/annotations/declarations.rs; edit that file instead. -->

These annotations have the same meaning for every provider. An annotation of the provider takes precedence over them.

- Whitespace around a value is ignored. An empty value is an error: remove the annotation to get the default.
- Keywords are case-insensitive. `true` and `false` accept the spellings of Go: `1`, `t`, `T`, `TRUE`, `true`, \
`True` and their opposites. Durations have the syntax of Go: `300ms`, `1m30s`, `2h`.
- With an invalid value the load balancer is neither created nor changed, and one Event lists all invalid values. \
It is still deleted with the Service, unless the invalid value is that of `bowline.dev/policy`.
- A setting that the cloud does not support is rejected in the same way, before any call to the cloud.
- An unknown key with the prefix `bowline.dev/` causes a warning Event that suggests the most similar known key.
";

const PROXY_PROTOCOLS: [(&str, ProxyProtocol); 2] = [("v1", ProxyProtocol::V1), ("v2", ProxyProtocol::V2)];

const POLICIES: [(&str, DeletionPolicy); 3] =
    [("delete", DeletionPolicy::Delete), ("retain", DeletionPolicy::Retain), ("protect", DeletionPolicy::Protect)];

const IP_MODES: [(&str, IpMode); 2] = [("VIP", IpMode::Vip), ("Proxy", IpMode::Proxy)];

const SELECTOR: Parsed<NodeSelector> = Parsed {
    form: "a label selector as in kubectl: key, !key, =, ==, !=, in (a, b), notin (a, b)",
    read: |value| NodeSelector::parse(value).map_err(|why| format!("{value:?}: {why}")),
};

const PATH: Parsed<String> = Parsed { form: "a path that starts with /", read: path };

const NAME: Parsed<String> = Parsed { form: "at most 63 letters, digits and any of -_. in between", read: share_group };

const NAME_OR_ID: Parsed<String> = Parsed { form: "the name or the ID of a load balancer", read: plain_text };

fn path(value: &str) -> Result<String, String> {
    if !value.starts_with('/') {
        return Err(format!("{value:?} is not a path that starts with /"));
    }
    // The path becomes part of an HTTP request line, which these characters would end.
    if value.chars().any(|letter| letter.is_whitespace() || letter.is_control()) {
        return Err(format!("{value:?} contains a space or a control character; write a space as %20"));
    }
    Ok(value.to_owned())
}

fn share_group(value: &str) -> Result<String, String> {
    if !is_name(value) {
        return Err(format!("{value:?} is not a name of at most 63 letters, digits and any of -_. in between"));
    }
    Ok(value.to_owned())
}

fn plain_text(value: &str) -> Result<String, String> {
    if value.chars().any(char::is_control) {
        return Err(format!("{value:?} contains a control character"));
    }
    Ok(value.to_owned())
}
