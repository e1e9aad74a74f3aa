//! The declarations: name, kind, default, example and meaning of each annotation.

use super::kinds::{Bool, Cidrs, OneOf, Parsed, Port, PositiveDuration};
use super::selector::{NodeSelector, is_name};
use super::{DeletionPolicy, PREFIX, ProxyProtocol, Table, annotations};
use crate::IpMode;

/// The annotations that mean the same with every provider.
pub const COMMON: Table = Table { all: ALL, prefixes: &[PREFIX], trim: true, head: HEAD, ..Table::EMPTY };

annotations! {
    pub const ALL;

    INTERNAL: Bool = Bool::Go, "bowline.dev/internal", "false", "true",
        "The load balancer gets an address that is reached from inside the cloud's network only.";
    SOURCE_RANGES: Cidrs = Cidrs, "bowline.dev/source-ranges", "all clients may connect", "10.0.0.0/8, 2001:db8::/32",
        "CIDRs from which clients may connect. `spec.loadBalancerSourceRanges` goes before it, and it goes before \
         `service.beta.kubernetes.io/load-balancer-source-ranges`. Host bits are cleared, and duplicates count once. \
         `0.0.0.0/0` allows all clients, also over IPv6 unless there is an IPv6 CIDR beside it.";
    PROXY_PROTOCOL: OneOf<ProxyProtocol> = OneOf::any_case(&PROXY_PROTOCOLS), "bowline.dev/proxy-protocol",
        "the PROXY protocol is not spoken", "v2",
        "Every connection to a node starts with a header that has the client's address. The backend of the Service must expect it.";
    IDLE_TIMEOUT: PositiveDuration = PositiveDuration, "bowline.dev/idle-timeout", "the cloud's own", "10m",
        "A connection without traffic is closed after this time.";
    HEALTH_CHECK_PATH: Parsed<String> = PATH, "bowline.dev/health-check-path",
        "/healthz where `spec.externalTrafficPolicy` is Local; else connections are tried, without a request", "/ready",
        "Path of the HTTP request that a node has to answer to count as healthy.";
    HEALTH_CHECK_PORT: Port = Port, "bowline.dev/health-check-port",
        "`spec.healthCheckNodePort` where `spec.externalTrafficPolicy` is Local; else the node port of each port", "10256",
        "The port of the node that health checks go to.";
    HEALTH_CHECK_INTERVAL: PositiveDuration = PositiveDuration, "bowline.dev/health-check-interval", "the cloud's own", "5s",
        "Interval between two checks of a node.";
    TARGET_NODES: Parsed<NodeSelector> = SELECTOR, "bowline.dev/target-nodes", "all Nodes of the load balancer's cloud",
        "topology.kubernetes.io/zone in (a, b), !spot",
        "Only Nodes with labels like these are behind the load balancer. It narrows the selection and never widens it: a Node \
         that is excluded from load balancers stays excluded. Where there are several requirements, all must hold.";
    POLICY: OneOf<DeletionPolicy> = OneOf::any_case(&POLICIES), "bowline.dev/policy", "delete", "retain",
        "What happens to the load balancer when the Service is deleted or gets another type. `delete`: it is deleted. \
         `retain`: it stays in the cloud, without our mark; it is no longer managed, and a Service may adopt it later. \
         `protect`: it stays, and so does the Service with its finalizer, until the annotation has another value. While the \
         value cannot be read, nothing is deleted either.";
    SHARE_GROUP: Parsed<String> = NAME, "bowline.dev/share-group", "an address of its own", "web",
        "Services of one namespace with the same value share one address; their ports must differ. The same value in another \
         namespace is another group.";
    IP_MODE: OneOf<IpMode> = OneOf::any_case(&IP_MODES), "bowline.dev/ip-mode", "the mode of the cloud's load balancers", "Proxy",
        "How nodes treat the address in `status.loadBalancer`. `VIP`: they may shortcut it. `Proxy`: traffic from inside the \
         cluster passes the load balancer, too; right with the PROXY protocol, which a shortcut leaves out.";
    ADOPT: Parsed<String> = NAME_OR_ID, "bowline.dev/adopt", "a new load balancer is created", "old-balancer",
        "An existing load balancer becomes this Service's: it gets our mark and is changed to match. One with the mark of \
         another owner is refused. The annotation may stay; it has no further effect.";
    PAUSED: Bool = Bool::Go, "bowline.dev/paused", "false", "true",
        "On a Service or a Node: no controller changes it, or anything in a cloud for it, until the annotation is removed. The \
         load balancer keeps working as it is, without following the Service or the Nodes. A Service that is deleted stays, with \
         its finalizer. A Node is neither initialized, tainted nor deleted, and keeps its addresses, pod CIDRs and routes. The \
         Event `Paused` and `/statusz` show paused objects, and `bowline plan` has a note for each. A value that is neither true \
         nor false counts as true, with a warning Event.";
}

const HEAD: &str = "\
# Annotations of Services

<!-- Made by `cargo xtask generate` from crates/core/src/annotations/declarations.rs; change that instead. -->

These mean the same with every provider. A provider's own annotation goes before ours where both say something.

- Spaces around a value do not count. An empty value is a mistake: leave the annotation out for the default.
- Words may be written in any case. `true` and `false` have the spellings that Go knows: `1`, `t`, `T`, `TRUE`, `true`, \
`True` and their opposites. Durations are those of Go: `300ms`, `1m30s`, `2h`.
- With an invalid value the load balancer is neither created nor changed, and an Event names all such values at once. \
It is still deleted when the Service is, unless the invalid value is that of `bowline.dev/policy`.
- What the cloud cannot do is refused in the same way, before any call.
- A key with our prefix that is not in this list gets a warning Event with the nearest one that is.
";

const PROXY_PROTOCOLS: [(&str, ProxyProtocol); 2] = [("v1", ProxyProtocol::V1), ("v2", ProxyProtocol::V2)];

const POLICIES: [(&str, DeletionPolicy); 3] =
    [("delete", DeletionPolicy::Delete), ("retain", DeletionPolicy::Retain), ("protect", DeletionPolicy::Protect)];

const IP_MODES: [(&str, IpMode); 2] = [("VIP", IpMode::Vip), ("Proxy", IpMode::Proxy)];

const SELECTOR: Parsed<NodeSelector> = Parsed {
    form: "a label selector as kubectl takes it: key, !key, =, ==, !=, in (a, b), notin (a, b)",
    read: |value| NodeSelector::parse(value).map_err(|why| format!("{value:?}: {why}")),
};

const PATH: Parsed<String> = Parsed { form: "a path that starts with /", read: path };

const NAME: Parsed<String> = Parsed { form: "at most 63 letters, digits and any of -_. in between", read: share_group };

const NAME_OR_ID: Parsed<String> = Parsed { form: "the name or the ID of a load balancer", read: plain_text };

fn path(value: &str) -> Result<String, String> {
    if !value.starts_with('/') {
        return Err(format!("{value:?} is not a path that starts with /"));
    }
    // It becomes part of a line of HTTP, where these would end it.
    if value.chars().any(|letter| letter.is_whitespace() || letter.is_control()) {
        return Err(format!("{value:?} has a space or a control character in it; write a space as %20"));
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
        return Err(format!("{value:?} has a control character in it"));
    }
    Ok(value.to_owned())
}
