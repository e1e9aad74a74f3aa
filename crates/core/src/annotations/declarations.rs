//! The declarations: what each annotation is called, looks like and means, and how it is read.

use std::time::Duration;

use super::selector::{NodeSelector, is_name};
use super::{Annotation, DeletionPolicy, LoadBalancerSettings, ProxyProtocol};
use crate::service::parse_ranges;
use crate::{IpMode, parse_bool, parse_duration};

/// The key that makes a balancer internal.
pub const INTERNAL: &str = "bowline.dev/internal";
/// The key that limits who may connect.
pub const SOURCE_RANGES: &str = "bowline.dev/source-ranges";
/// The key that chooses a version of the PROXY protocol.
pub const PROXY_PROTOCOL: &str = "bowline.dev/proxy-protocol";
/// The key that says how long a connection may be silent.
pub const IDLE_TIMEOUT: &str = "bowline.dev/idle-timeout";
/// The key that chooses the path of health checks.
pub const HEALTH_CHECK_PATH: &str = "bowline.dev/health-check-path";
/// The key that chooses the port of health checks.
pub const HEALTH_CHECK_PORT: &str = "bowline.dev/health-check-port";
/// The key that chooses the interval of health checks.
pub const HEALTH_CHECK_INTERVAL: &str = "bowline.dev/health-check-interval";
/// The key that chooses the Nodes behind a balancer.
pub const TARGET_NODES: &str = "bowline.dev/target-nodes";
/// The key that says what becomes of a balancer in the end.
pub const POLICY: &str = "bowline.dev/policy";
/// The key that makes Services share an address.
pub const SHARE_GROUP: &str = "bowline.dev/share-group";
/// The key that says how nodes treat the address.
pub const IP_MODE: &str = "bowline.dev/ip-mode";
/// The key that names an existing balancer.
pub const ADOPT: &str = "bowline.dev/adopt";

pub(super) static DECLARATIONS: [Annotation; 12] = [
    Annotation {
        key: INTERNAL,
        form: "true or false",
        default: "false",
        example: "true",
        meaning: "The balancer gets an address that is reached from inside the cloud's network only.",
        read: |value, settings| set(&mut settings.internal, boolean(value)),
    },
    Annotation {
        key: SOURCE_RANGES,
        form: "ranges of addresses, with commas between them",
        default: "everybody may connect",
        example: "10.0.0.0/8, 2001:db8::/32",
        meaning: "From where clients may connect. `spec.loadBalancerSourceRanges` goes before it, and it goes before \
                  `service.beta.kubernetes.io/load-balancer-source-ranges`. Host bits are cleared, and doubles count once. \
                  `0.0.0.0/0` lets everybody in, also over IPv6 unless there is a range of IPv6 beside it.",
        read: source_ranges,
    },
    Annotation {
        key: PROXY_PROTOCOL,
        form: "v1 or v2",
        default: "the PROXY protocol is not spoken",
        example: "v2",
        meaning: "Every connection to a node starts with a header that tells the client's address. Whatever listens behind \
                  the Service must expect it.",
        read: |value, settings| some(&mut settings.proxy_protocol, one_of(value, &PROXY_PROTOCOLS, "v1 or v2")),
    },
    Annotation {
        key: IDLE_TIMEOUT,
        form: "a duration longer than zero, such as 90s or 10m",
        default: "what the cloud does",
        example: "10m",
        meaning: "A connection on which nothing was said for this long is closed.",
        read: |value, settings| some(&mut settings.idle_timeout, positive(value)),
    },
    Annotation {
        key: HEALTH_CHECK_PATH,
        form: "a path that starts with /",
        default: "/healthz where `spec.externalTrafficPolicy` is Local; else connections are tried and no path is asked for",
        example: "/ready",
        meaning: "What a node is asked for over HTTP to see whether it is well.",
        read: |value, settings| some(&mut settings.health_check_path, path(value)),
    },
    Annotation {
        key: HEALTH_CHECK_PORT,
        form: "a port from 1 to 65535",
        default: "`spec.healthCheckNodePort` where `spec.externalTrafficPolicy` is Local; else the node port of each port",
        example: "10256",
        meaning: "The port of the node that health checks go to.",
        read: |value, settings| some(&mut settings.health_check_port, port(value)),
    },
    Annotation {
        key: HEALTH_CHECK_INTERVAL,
        form: "a duration longer than zero, such as 5s",
        default: "what the cloud does",
        example: "5s",
        meaning: "How often a node is checked.",
        read: |value, settings| some(&mut settings.health_check_interval, positive(value)),
    },
    Annotation {
        key: TARGET_NODES,
        form: "a label selector as kubectl takes it: key, !key, =, ==, !=, in (a, b), notin (a, b)",
        default: "all Nodes of the balancer's cloud",
        example: "topology.kubernetes.io/zone in (a, b), !spot",
        meaning: "Only Nodes with labels like these are behind the balancer. It narrows the choice and never widens it: a \
                  Node that balancers leave out stays out. Where several requirements stand, all must hold.",
        read: |value, settings| {
            some(&mut settings.target_nodes, NodeSelector::parse(value).map_err(|why| format!("{value:?}: {why}")))
        },
    },
    Annotation {
        key: POLICY,
        form: "delete, retain or protect",
        default: "delete",
        example: "retain",
        meaning: "What becomes of the balancer when the Service is deleted or has another type. `delete`: it is removed. \
                  `retain`: it stays in the cloud, without our mark; nobody changes it any more, and a Service may adopt it \
                  later. `protect`: it stays, and so does the Service with its finalizer, until the annotation says \
                  something else. While the value cannot be read, nothing is removed either.",
        read: |value, settings| set(&mut settings.policy, one_of(value, &POLICIES, "delete, retain or protect")),
    },
    Annotation {
        key: SHARE_GROUP,
        form: "at most 63 letters, digits and any of -_. in between",
        default: "an address of its own",
        example: "web",
        meaning: "Services of one namespace with the same value share one address; their ports must differ. The same value in \
                  another namespace is another group.",
        read: |value, settings| some(&mut settings.share_group, share_group(value)),
    },
    Annotation {
        key: IP_MODE,
        form: "VIP or Proxy",
        default: "what the cloud says of its balancers",
        example: "Proxy",
        meaning: "How nodes treat the address in `status.loadBalancer`. `VIP`: they may shortcut it. `Proxy`: traffic from \
                  inside the cluster passes the balancer, too; right with the PROXY protocol, which a shortcut leaves out.",
        read: |value, settings| some(&mut settings.ip_mode, one_of(value, &IP_MODES, "VIP or Proxy")),
    },
    Annotation {
        key: ADOPT,
        form: "the name or the ID of a balancer",
        default: "a balancer of its own is made",
        example: "old-balancer",
        meaning: "A balancer that exists becomes this Service's: it gets our mark and is made to fit. One that bears the mark \
                  of somebody else is refused. May be left there afterwards; it changes nothing then.",
        read: |value, settings| some(&mut settings.adopt, plain_text(value)),
    },
];

const PROXY_PROTOCOLS: [(&str, ProxyProtocol); 2] = [("v1", ProxyProtocol::V1), ("v2", ProxyProtocol::V2)];

const POLICIES: [(&str, DeletionPolicy); 3] =
    [("delete", DeletionPolicy::Delete), ("retain", DeletionPolicy::Retain), ("protect", DeletionPolicy::Protect)];

const IP_MODES: [(&str, IpMode); 2] = [("VIP", IpMode::Vip), ("Proxy", IpMode::Proxy)];

// ---- where values go

fn set<T>(place: &mut T, read: Result<T, String>) -> Result<(), Vec<String>> {
    *place = read.map_err(|why| vec![why])?;
    Ok(())
}

fn some<T>(place: &mut Option<T>, read: Result<T, String>) -> Result<(), Vec<String>> {
    set(place, read.map(Some))
}

// ---- how values are read

fn boolean(value: &str) -> Result<bool, String> {
    parse_bool(value).ok_or_else(|| format!("{value:?} is not true or false"))
}

/// One of these words, in whatever case.
fn one_of<T: Copy>(value: &str, known: &[(&str, T)], form: &str) -> Result<T, String> {
    let found = known.iter().find(|(word, _)| word.eq_ignore_ascii_case(value));
    found.map(|(_, meant)| *meant).ok_or_else(|| format!("{value:?} is not {form}"))
}

fn positive(value: &str) -> Result<Duration, String> {
    let duration = parse_duration(value).map_err(|why| format!("{value:?} is not a duration: {why}"))?;
    if duration.is_zero() {
        return Err(format!("{value:?} is no time at all; leave the annotation out for the default"));
    }
    Ok(duration)
}

fn port(value: &str) -> Result<u16, String> {
    let is_number = value.bytes().all(|digit| digit.is_ascii_digit());
    let port = value.parse().ok().filter(|port| is_number && *port > 0);
    port.ok_or_else(|| format!("{value:?} is not a port from 1 to 65535"))
}

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

fn source_ranges(value: &str, settings: &mut LoadBalancerSettings) -> Result<(), Vec<String>> {
    let (ranges, wrong) = parse_ranges(SOURCE_RANGES, value.split(','));
    if !wrong.is_empty() {
        return Err(wrong.iter().map(|wrong| wrong.message()).collect());
    }
    settings.source_ranges = Some(ranges.into_iter().collect());
    Ok(())
}
