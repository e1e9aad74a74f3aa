//! The annotations that only this cloud has: those of the Go manager, with its rules for values. A text that is there counts even if
//! it is empty; an invalid number or boolean is ignored with a warning.

use bowline_core::Warning;
use bowline_core::annotations::{Bool, Integer, OrNone, Reader, Table, Text, Written, annotations};

/// Why a value is ignored, in an Event.
const IGNORED: &str = "LoadBalancerAnnotationIgnored";

/// All annotations of this cloud.
pub(crate) const TABLE: Table = Table {
    all: ALL,
    prefixes: &["loadbalancer.openstack.org/", "service.beta.kubernetes.io/openstack-"],
    message: |it| {
        format!(
            "the annotation {} is passed over: {:?} is not {}; without it: {}",
            it.key, it.value, it.form, it.default
        )
    },
    head: HEAD,
    ..Table::EMPTY
};

annotations! {
    pub(crate) const ALL;

    INTERNAL: Bool = Bool::Exact, "service.beta.kubernetes.io/openstack-internal-load-balancer", "false", "true",
        "The balancer gets no floating IP. Where `internal-lb` is set in `cloud.conf`, all balancers are internal, whatever this \
         says.";
    CLASS: OrNone<Text> = OrNone(Text), "loadbalancer.openstack.org/class", "none", "internet",
        "A `[LoadBalancerClass]` of `cloud.conf`, by its name, in the same case: where balancer and floating IP are taken from. One \
         that is not there is an error. An empty value is none.";
    NETWORK_ID: OrNone<Text> = OrNone(Text), "loadbalancer.openstack.org/network-id", "`network-id` of the class, else of `[LoadBalancer]`",
        "7e3f4b1c-58d4-4c0b-9a5b-0f6d2b7c9d10",
        "The network of the balancer's address. An empty value is none. For a new balancer that is not internal, the network of the \
         class goes before it.";
    SUBNET_ID: OrNone<Text> = OrNone(Text), "loadbalancer.openstack.org/subnet-id",
        "`subnet-id` of the class, else of `[LoadBalancer]`; where there is no network either, the subnet of the first node",
        "0e9d2f5a-3c47-4a0d-8a53-6c1e8b7a4f22",
        "The subnet of the balancer's address, and of its members unless something else says where they are. An empty value is none. \
         For a new balancer that is not internal, the subnet of the class goes before it.";
    MEMBER_SUBNET_ID: OrNone<Text> = OrNone(Text), "loadbalancer.openstack.org/member-subnet-id",
        "`member-subnet-id` of the class, else of `[LoadBalancer]`; else `subnet-id` of `[LoadBalancer]`, else the balancer's subnet",
        "4b1a7c39-6d0e-4f52-9b1c-2f7e5d8a6c33",
        "The subnet in which the nodes are reached. An empty value is none.";
    PORT_ID: Text = Text, "loadbalancer.openstack.org/port-id", "a port of the balancer's own", "9c2d8e47-1f5a-4b63-a07e-3d8c6f9b5e44",
        "A port that exists and becomes the balancer's when it is made. Then neither subnet nor network is sent.";
    FLOATING_NETWORK_ID: Text = Text, "loadbalancer.openstack.org/floating-network-id",
        "`floating-network-id` of `[LoadBalancer]`, else the first external network that has a subnet for IPv4",
        "a5e7b3c8-2d4f-4a96-8c1b-5f0e9d7a3b55",
        "The external network that the floating IP is from. That of the class goes before it. An empty value makes the network be \
         searched for although one is configured.";
    FLOATING_SUBNET_ID: Text = Text, "loadbalancer.openstack.org/floating-subnet-id", "those of `[LoadBalancer]`, unless this or one of the next two is there",
        "c6f8d4a9-3e5b-4ba7-9d2c-6a1f0e8b4c66",
        "The subnet that the floating IP is from. That of the class goes before it. It must be in the external network.";
    FLOATING_SUBNET: Text = Text, "loadbalancer.openstack.org/floating-subnet", "that of `[LoadBalancer]`", "public-*",
        "The subnets that the floating IP may be from, by their names: a pattern with `*`, `?`, `[ab]` and `{a,b}`, or a regular \
         expression behind `~`; `!` in front of either turns it round. They are tried one after the other.";
    FLOATING_SUBNET_TAGS: Text = Text, "loadbalancer.openstack.org/floating-subnet-tags", "that of `[LoadBalancer]`", "internet,ipv4",
        "The subnets that the floating IP may be from, by their tags: `a,b` has any of these, `&a,b` has all, `!a,b` has none, \
         `!&a,b` lacks at least one.";
    KEEP_FLOATING_IP: Bool = Bool::Exact, "loadbalancer.openstack.org/keep-floatingip", "false", "true",
        "The floating IP is never deleted, neither with the balancer nor when that becomes internal.";
    LOAD_BALANCER_ID: OrNone<Text> = OrNone(Text), "loadbalancer.openstack.org/load-balancer-id", "the balancer of the Service's name",
        "e7a9c5b0-4f6d-4cb8-8e3d-7b2a1f9c5d77",
        "The balancer to use. It is written here once there is one. With the ID of another Service's balancer, or of one that was \
         made by hand, the Service shares that one: its listeners are added, and its tag, and nothing else is changed. That one must \
         have a floating IP or an IPv6 address, the Service must not be internal, and `max-shared-lb` is the limit. If there is no \
         balancer of this ID, that is an error; remove the annotation to get a new one. An empty value is none.";
    LOAD_BALANCER_ADDRESS: Written = Written, "loadbalancer.openstack.org/load-balancer-address", "none", "203.0.113.10",
        "The address under which clients reach the balancer, whatever the status says. Written by the manager, never read.";
    HOSTNAME: Text = Text, "loadbalancer.openstack.org/hostname", "none", "web.example.com",
        "The only entry in the status of the Service is this name instead of the address.";
    CONNECTION_LIMIT: Integer = Integer::ANY, "loadbalancer.openstack.org/connection-limit", "-1, which is none", "10000",
        "How many connections a listener takes at once.";
    LB_METHOD: OrNone<Text> = OrNone(Text), "loadbalancer.openstack.org/lb-method", "`lb-method` of `[LoadBalancer]`", "LEAST_CONNECTIONS",
        "How members are chosen. An empty value is none. A method that Octavia does not take for a pool that exists is passed over with a warning.";
    PROXY_PROTOCOL: Text = Text, "loadbalancer.openstack.org/proxy-protocol", "the PROXY protocol is not spoken", "v2",
        "`true` or `v1` for version 1 of the PROXY protocol, `v2` for version 2; anything else turns it off. Not together with \
         `x-forwarded-for`, nor with ports of UDP or SCTP.";
    X_FORWARDED_FOR: Bool = Bool::Exact, "loadbalancer.openstack.org/x-forwarded-for", "false", "true",
        "All ports speak HTTP, and requests get the header `X-Forwarded-For`.";
    TLS_CONTAINER_REF: Text = Text, "loadbalancer.openstack.org/default-tls-container-ref",
        "`default-tls-container-ref` of `[LoadBalancer]`", "https://barbican.example.com/v1/containers/f8b0d6c1-5a7e-4dc9-9f4e-8c3b2a0d6e88",
        "Where the certificate is kept. All ports speak HTTPS to clients and HTTP to the nodes. An empty value turns off what is \
         configured.";
    TIMEOUT_CLIENT_DATA: Integer = Integer::ANY, "loadbalancer.openstack.org/timeout-client-data", "50000", "1800000",
        "Milliseconds after which a silent client is let go.";
    TIMEOUT_MEMBER_CONNECT: Integer = Integer::ANY, "loadbalancer.openstack.org/timeout-member-connect", "5000", "10000",
        "Milliseconds that connecting to a member may take.";
    TIMEOUT_MEMBER_DATA: Integer = Integer::ANY, "loadbalancer.openstack.org/timeout-member-data", "50000", "1800000",
        "Milliseconds after which a silent member is let go.";
    TIMEOUT_TCP_INSPECT: Integer = Integer::ANY, "loadbalancer.openstack.org/timeout-tcp-inspect", "0", "1000",
        "Milliseconds to wait for more of a connection's content before it is looked at.";
    ENABLE_HEALTH_MONITOR: Bool = Bool::Exact, "loadbalancer.openstack.org/enable-health-monitor", "`create-monitor` of `[LoadBalancer]`", "true",
        "Members are watched. With the traffic policy Local this is what keeps traffic from nodes without a pod of the Service.";
    HEALTH_MONITOR_DELAY: Integer = Integer::ANY, "loadbalancer.openstack.org/health-monitor-delay", "`monitor-delay` of `[LoadBalancer]`", "10",
        "Seconds between two looks at a member.";
    HEALTH_MONITOR_TIMEOUT: Integer = Integer::ANY, "loadbalancer.openstack.org/health-monitor-timeout", "`monitor-timeout` of `[LoadBalancer]`", "5",
        "Seconds that an answer may take.";
    HEALTH_MONITOR_MAX_RETRIES: Integer = Integer::ANY, "loadbalancer.openstack.org/health-monitor-max-retries",
        "`monitor-max-retries` of `[LoadBalancer]`", "2", "Good answers until a member gets traffic.";
    HEALTH_MONITOR_MAX_RETRIES_DOWN: Integer = Integer::ANY, "loadbalancer.openstack.org/health-monitor-max-retries-down",
        "`monitor-max-retries-down` of `[LoadBalancer]`", "3", "Bad answers until a member gets none.";
    FLAVOR_ID: Text = Text, "loadbalancer.openstack.org/flavor-id", "`flavor-id` of `[LoadBalancer]`", "0a1c7e5d-6b8f-4ed0-8a5f-9d4c3b1e7f99",
        "Octavia's flavor of a new balancer. Passed over where Octavia is older than 2.6, and with `ovn`.";
    AVAILABILITY_ZONE: Text = Text, "loadbalancer.openstack.org/availability-zone", "`availability-zone` of `[LoadBalancer]`", "az1",
        "Octavia's availability zone of a new balancer. Passed over with a warning where Octavia is older than 2.14, and with `ovn`.";
    NODE_SELECTOR: Text = Text, "loadbalancer.openstack.org/node-selector", "`node-selector` of `[LoadBalancer]`", "env=prod,gpu",
        "Only nodes with these labels are behind the balancer: `key=value`, or `key` for any value, with commas between them. An \
         empty value chooses all nodes.";
}

const HEAD: &str = "\
# Annotations of Services on OpenStack

<!-- Made by `cargo xtask generate` from providers/openstack/src/load_balancers/annotations.rs; change that instead. -->

These are the annotations of `openstack-cloud-controller-manager`, with the same meaning. Where one of them and one of the \
[annotations that all clouds have](annotations.md) say something about the same thing, the one on this page counts.

- A text that is there counts even if it is empty, unless it says otherwise below.
- What is no number where one is expected, and anything but exactly `true` or `false` where one of them is expected, is as if it were not there; a \
warning Event (`LoadBalancerAnnotationIgnored`) says so. It also reports a key that is probably a misspelled one of this list.
- `service.beta.kubernetes.io/load-balancer-source-ranges` works as everywhere: it counts where `spec.loadBalancerSourceRanges` is \
empty.
";

/// Warnings about the values that were ignored, and about keys that are probably misspelled. What is near no declared key may belong
/// to another program, and is left alone.
pub(crate) fn warnings(reader: Reader<'_>) -> Vec<Warning> {
    let misspelled =
        reader.unknown().into_iter().filter(|unknown| unknown.nearest.is_some()).map(|unknown| unknown.to_string());
    let ignored = reader.into_errors().into_iter().map(|mistake| mistake.message);
    ignored.chain(misspelled).map(|message| Warning { reason: IGNORED.to_owned(), message }).collect()
}

/// The reference page.
pub(crate) fn reference() -> String {
    TABLE.reference()
}
