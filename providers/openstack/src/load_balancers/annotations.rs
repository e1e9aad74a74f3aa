//! Annotations of this cloud: those of the Go manager, with its rules for values. A text counts even if it is empty; an invalid
//! number or boolean is ignored with a warning.

use bowline_core::Warning;
use bowline_core::annotations::{Bool, Integer, OrNone, Reader, Table, Text, WriteOnly, annotations};

/// Event reason for an ignored value.
const IGNORED: &str = "LoadBalancerAnnotationIgnored";

/// All annotations of this cloud.
pub(crate) const TABLE: Table = Table {
    all: ALL,
    prefixes: &["loadbalancer.openstack.org/", "service.beta.kubernetes.io/openstack-"],
    message: |it| {
        format!("the annotation {} is ignored: {:?} is not {}; default: {}", it.key, it.value, it.form, it.default)
    },
    head: HEAD,
    ..Table::EMPTY
};

annotations! {
    pub(crate) const ALL;

    INTERNAL: Bool = Bool::Exact, "service.beta.kubernetes.io/openstack-internal-load-balancer", "false", "true",
        "The load balancer gets no floating IP. With `internal-lb` in `cloud.conf`, all load balancers are internal, whatever this \
         annotation is.";
    CLASS: OrNone<Text> = OrNone(Text), "loadbalancer.openstack.org/class", "none", "internet",
        "Name of a `[LoadBalancerClass]` of `cloud.conf`, case-sensitive, with the networks of load balancer and floating IP. An \
         unknown class is an error. An empty value is none.";
    NETWORK_ID: OrNone<Text> = OrNone(Text), "loadbalancer.openstack.org/network-id", "`network-id` of the class, else of `[LoadBalancer]`",
        "7e3f4b1c-58d4-4c0b-9a5b-0f6d2b7c9d10",
        "Network of the VIP. An empty value is none. For a new external load balancer, the network of the class takes precedence.";
    SUBNET_ID: OrNone<Text> = OrNone(Text), "loadbalancer.openstack.org/subnet-id",
        "`subnet-id` of the class, else of `[LoadBalancer]`; without a network, the subnet of the first node",
        "0e9d2f5a-3c47-4a0d-8a53-6c1e8b7a4f22",
        "Subnet of the VIP, and of the members by default. An empty value is none. For a new external load balancer, the subnet of \
         the class takes precedence.";
    MEMBER_SUBNET_ID: OrNone<Text> = OrNone(Text), "loadbalancer.openstack.org/member-subnet-id",
        "`member-subnet-id` of the class, else of `[LoadBalancer]`; else `subnet-id` of `[LoadBalancer]`, else the VIP subnet",
        "4b1a7c39-6d0e-4f52-9b1c-2f7e5d8a6c33",
        "Subnet of the members. An empty value is none.";
    PORT_ID: Text = Text, "loadbalancer.openstack.org/port-id", "a new port", "9c2d8e47-1f5a-4b63-a07e-3d8c6f9b5e44",
        "Existing port for the VIP of a new load balancer. Subnet and network are not sent then.";
    FLOATING_NETWORK_ID: Text = Text, "loadbalancer.openstack.org/floating-network-id",
        "`floating-network-id` of `[LoadBalancer]`, else the first external network with an IPv4 subnet",
        "a5e7b3c8-2d4f-4a96-8c1b-5f0e9d7a3b55",
        "External network of the floating IP. That of the class takes precedence. With an empty value, the network is detected even \
         if one is configured.";
    FLOATING_SUBNET_ID: Text = Text, "loadbalancer.openstack.org/floating-subnet-id", "that of `[LoadBalancer]`, unless one of the next two is set",
        "c6f8d4a9-3e5b-4ba7-9d2c-6a1f0e8b4c66",
        "Subnet of the floating IP, which must be in the external network. That of the class takes precedence.";
    FLOATING_SUBNET: Text = Text, "loadbalancer.openstack.org/floating-subnet", "that of `[LoadBalancer]`", "public-*",
        "Subnets of the floating IP by name: a glob with `*`, `?`, `[ab]` and `{a,b}`, or `~` and a regular expression; a leading `!` \
         negates either. Matching subnets are tried one after the other.";
    FLOATING_SUBNET_TAGS: Text = Text, "loadbalancer.openstack.org/floating-subnet-tags", "that of `[LoadBalancer]`", "internet,ipv4",
        "Subnets of the floating IP by tags: `a,b` matches any of these, `&a,b` all, `!a,b` none, `!&a,b` not all.";
    KEEP_FLOATING_IP: Bool = Bool::Exact, "loadbalancer.openstack.org/keep-floatingip", "false", "true",
        "The floating IP is not deleted, neither with the load balancer nor when that becomes internal.";
    LOAD_BALANCER_ID: OrNone<Text> = OrNone(Text), "loadbalancer.openstack.org/load-balancer-id", "the load balancer of the Service's name",
        "e7a9c5b0-4f6d-4cb8-8e3d-7b2a1f9c5d77",
        "ID of the load balancer. The manager sets it after creation. With the ID of another Service's load balancer, or of one that \
         was created by hand, the Service shares it: its listeners and its tag are added, and nothing else is changed. The shared load \
         balancer must have a floating IP or an IPv6 address, the Service must not be internal, and `max-shared-lb` is the limit. An \
         unknown ID is an error; remove the annotation to get a new load balancer. An empty value is none.";
    LOAD_BALANCER_ADDRESS: WriteOnly = WriteOnly, "loadbalancer.openstack.org/load-balancer-address", "none", "203.0.113.10",
        "Address of the load balancer for clients, even if the status has a host name. Set by the manager, never read.";
    HOSTNAME: Text = Text, "loadbalancer.openstack.org/hostname", "none", "web.example.com",
        "Host name in the status of the Service, instead of the address.";
    CONNECTION_LIMIT: Integer = Integer::ANY, "loadbalancer.openstack.org/connection-limit", "-1, no limit", "10000",
        "Maximum number of concurrent connections of a listener.";
    LB_METHOD: OrNone<Text> = OrNone(Text), "loadbalancer.openstack.org/lb-method", "`lb-method` of `[LoadBalancer]`", "LEAST_CONNECTIONS",
        "Load-balancing algorithm. An empty value is none. A method that Octavia rejects for an existing pool is ignored with a warning.";
    PROXY_PROTOCOL: Text = Text, "loadbalancer.openstack.org/proxy-protocol", "no PROXY protocol", "v2",
        "`true` or `v1` for version 1 of the PROXY protocol, `v2` for version 2; any other value turns it off. Cannot be combined with \
         `x-forwarded-for` or with UDP or SCTP ports.";
    X_FORWARDED_FOR: Bool = Bool::Exact, "loadbalancer.openstack.org/x-forwarded-for", "false", "true",
        "All listeners use HTTP and add the header `X-Forwarded-For` to requests.";
    TLS_CONTAINER_REF: Text = Text, "loadbalancer.openstack.org/default-tls-container-ref",
        "`default-tls-container-ref` of `[LoadBalancer]`", "https://barbican.example.com/v1/containers/f8b0d6c1-5a7e-4dc9-9f4e-8c3b2a0d6e88",
        "URL of the certificate in Barbican. All listeners terminate HTTPS and send HTTP to the nodes. An empty value disables the \
         configured one.";
    TIMEOUT_CLIENT_DATA: Integer = Integer::ANY, "loadbalancer.openstack.org/timeout-client-data", "50000", "1800000",
        "Idle timeout of clients in milliseconds.";
    TIMEOUT_MEMBER_CONNECT: Integer = Integer::ANY, "loadbalancer.openstack.org/timeout-member-connect", "5000", "10000",
        "Timeout for connecting to a member in milliseconds.";
    TIMEOUT_MEMBER_DATA: Integer = Integer::ANY, "loadbalancer.openstack.org/timeout-member-data", "50000", "1800000",
        "Idle timeout of members in milliseconds.";
    TIMEOUT_TCP_INSPECT: Integer = Integer::ANY, "loadbalancer.openstack.org/timeout-tcp-inspect", "0", "1000",
        "Time to wait for additional packets for content inspection, in milliseconds.";
    ENABLE_HEALTH_MONITOR: Bool = Bool::Exact, "loadbalancer.openstack.org/enable-health-monitor", "`create-monitor` of `[LoadBalancer]`", "true",
        "Create health monitors. With the traffic policy Local, they keep traffic from nodes without a Pod of the Service.";
    HEALTH_MONITOR_DELAY: Integer = Integer::ANY, "loadbalancer.openstack.org/health-monitor-delay", "`monitor-delay` of `[LoadBalancer]`", "10",
        "Seconds between two probes of a member.";
    HEALTH_MONITOR_TIMEOUT: Integer = Integer::ANY, "loadbalancer.openstack.org/health-monitor-timeout", "`monitor-timeout` of `[LoadBalancer]`", "5",
        "Timeout of a probe in seconds.";
    HEALTH_MONITOR_MAX_RETRIES: Integer = Integer::ANY, "loadbalancer.openstack.org/health-monitor-max-retries",
        "`monitor-max-retries` of `[LoadBalancer]`", "2", "Successful probes until a member is online.";
    HEALTH_MONITOR_MAX_RETRIES_DOWN: Integer = Integer::ANY, "loadbalancer.openstack.org/health-monitor-max-retries-down",
        "`monitor-max-retries-down` of `[LoadBalancer]`", "3", "Failed probes until a member is offline.";
    FLAVOR_ID: Text = Text, "loadbalancer.openstack.org/flavor-id", "`flavor-id` of `[LoadBalancer]`", "0a1c7e5d-6b8f-4ed0-8a5f-9d4c3b1e7f99",
        "Octavia flavor of a new load balancer. Ignored before Octavia API version 2.6 and with `ovn`.";
    AVAILABILITY_ZONE: Text = Text, "loadbalancer.openstack.org/availability-zone", "`availability-zone` of `[LoadBalancer]`", "az1",
        "Octavia availability zone of a new load balancer. Ignored with a warning before Octavia API version 2.14 and with `ovn`.";
    NODE_SELECTOR: Text = Text, "loadbalancer.openstack.org/node-selector", "`node-selector` of `[LoadBalancer]`", "env=prod,gpu",
        "Labels of the nodes behind the load balancer: `key=value`, or `key` for any value, separated by commas. An empty value \
         selects all nodes.";
}

const HEAD: &str = "\
# Annotations of Services on OpenStack

<!-- Made by `cargo xtask generate` from providers/openstack/src/load_balancers/annotations.rs; change that instead. -->

These are the annotations of `openstack-cloud-controller-manager`, with the same meaning. They take precedence over the \
[common annotations](annotations.md).

- A text counts even if it is empty, unless stated otherwise below.
- An invalid number, and a boolean other than exactly `true` or `false`, is ignored with a warning Event \
(`LoadBalancerAnnotationIgnored`). The Event also reports a key that is probably a misspelled one of this list.
- `service.beta.kubernetes.io/load-balancer-source-ranges` is used if `spec.loadBalancerSourceRanges` is empty, as with every \
provider.
";

/// Returns warnings about ignored values and about keys that are probably misspelled. Other unknown keys may belong to another
/// program.
pub(crate) fn warnings(reader: Reader<'_>) -> Vec<Warning> {
    let misspelled =
        reader.unknown().into_iter().filter(|unknown| unknown.nearest.is_some()).map(|unknown| unknown.to_string());
    let ignored = reader.into_errors().into_iter().map(|mistake| mistake.message);
    ignored.chain(misspelled).map(|message| Warning { reason: IGNORED.to_owned(), message }).collect()
}

/// Returns the reference page.
pub(crate) fn reference() -> String {
    TABLE.reference()
}
