//! The annotations that only this cloud has, each declared once: key, form, default, meaning, example. They are those of the Go
//! manager, with its rules for values: a text that is there counts even if it is empty; what is no number, or neither `true` nor
//! `false`, is as if it were not there, which is told.

mod reference;

use std::collections::BTreeMap;

use bowline_core::Notice;

pub(crate) use reference::reference;

/// Why a value is passed over, in an Event.
const IGNORED: &str = "LoadBalancerAnnotationIgnored";

/// A declaration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Annotation {
    /// The whole key.
    pub(crate) key: &'static str,
    form: Form,
    /// What holds without it, in words.
    default: &'static str,
    example: &'static str,
    meaning: &'static str,
}

/// What values look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    Integer,
    Boolean,
    /// It is written by us, and what stands there is not looked at.
    Written,
}

/// The annotations of a Service, and what is wrong with them.
pub(crate) struct Reader<'a> {
    annotations: &'a BTreeMap<String, String>,
    notices: Vec<Notice>,
}

macro_rules! annotations {
    ($($name:ident = $key:literal, $form:ident, $default:literal, $example:literal, $meaning:literal;)*) => {
        $(pub(crate) const $name: Annotation = Annotation {
            key: $key, form: Form::$form, default: $default, example: $example, meaning: $meaning,
        };)*

        /// All of them, in the order of the reference.
        const ALL: &[Annotation] = &[$($name),*];
    };
}

annotations! {
    INTERNAL = "service.beta.kubernetes.io/openstack-internal-load-balancer", Boolean, "false", "true",
        "The balancer gets no floating IP. Where `internal-lb` is set in `cloud.conf`, all balancers are internal, whatever this \
         says.";
    CLASS = "loadbalancer.openstack.org/class", Text, "none", "internet",
        "A `[LoadBalancerClass]` of `cloud.conf`, by its name, in the same case: where balancer and floating IP are taken from. One \
         that is not there is an error. An empty value is none.";
    NETWORK_ID = "loadbalancer.openstack.org/network-id", Text, "`network-id` of the class, else of `[LoadBalancer]`",
        "7e3f4b1c-58d4-4c0b-9a5b-0f6d2b7c9d10",
        "The network of the balancer's address. An empty value is none. For a new balancer that is not internal, the network of the \
         class goes before it.";
    SUBNET_ID = "loadbalancer.openstack.org/subnet-id", Text,
        "`subnet-id` of the class, else of `[LoadBalancer]`; where there is no network either, the subnet of the first node",
        "0e9d2f5a-3c47-4a0d-8a53-6c1e8b7a4f22",
        "The subnet of the balancer's address, and of its members unless something else says where they are. An empty value is none. \
         For a new balancer that is not internal, the subnet of the class goes before it.";
    MEMBER_SUBNET_ID = "loadbalancer.openstack.org/member-subnet-id", Text,
        "`member-subnet-id` of the class, else of `[LoadBalancer]`; else `subnet-id` of `[LoadBalancer]`, else the balancer's subnet",
        "4b1a7c39-6d0e-4f52-9b1c-2f7e5d8a6c33",
        "The subnet in which the nodes are reached. An empty value is none.";
    PORT_ID = "loadbalancer.openstack.org/port-id", Text, "a port of the balancer's own", "9c2d8e47-1f5a-4b63-a07e-3d8c6f9b5e44",
        "A port that exists and becomes the balancer's when it is made. Then neither subnet nor network is sent.";
    FLOATING_NETWORK_ID = "loadbalancer.openstack.org/floating-network-id", Text,
        "`floating-network-id` of `[LoadBalancer]`, else the first external network that has a subnet for IPv4",
        "a5e7b3c8-2d4f-4a96-8c1b-5f0e9d7a3b55",
        "The external network that the floating IP is from. That of the class goes before it. An empty value makes the network be \
         searched for although one is configured.";
    FLOATING_SUBNET_ID = "loadbalancer.openstack.org/floating-subnet-id", Text, "those of `[LoadBalancer]`, unless this or one of the next two is there",
        "c6f8d4a9-3e5b-4ba7-9d2c-6a1f0e8b4c66",
        "The subnet that the floating IP is from. That of the class goes before it. It must be in the external network.";
    FLOATING_SUBNET = "loadbalancer.openstack.org/floating-subnet", Text, "that of `[LoadBalancer]`", "public-*",
        "The subnets that the floating IP may be from, by their names: a pattern with `*`, `?`, `[ab]` and `{a,b}`, or a regular \
         expression behind `~`; `!` in front of either turns it round. They are tried one after the other.";
    FLOATING_SUBNET_TAGS = "loadbalancer.openstack.org/floating-subnet-tags", Text, "that of `[LoadBalancer]`", "internet,ipv4",
        "The subnets that the floating IP may be from, by their tags: `a,b` has any of these, `&a,b` has all, `!a,b` has none, \
         `!&a,b` lacks at least one.";
    KEEP_FLOATING_IP = "loadbalancer.openstack.org/keep-floatingip", Boolean, "false", "true",
        "The floating IP is never deleted, neither with the balancer nor when that becomes internal.";
    LOAD_BALANCER_ID = "loadbalancer.openstack.org/load-balancer-id", Text, "the balancer of the Service's name",
        "e7a9c5b0-4f6d-4cb8-8e3d-7b2a1f9c5d77",
        "The balancer to use. It is written here once there is one. With the ID of another Service's balancer, or of one that was \
         made by hand, the Service shares that one: its listeners are added, and its tag, and nothing else is changed. That one must \
         have a floating IP or an IPv6 address, the Service must not be internal, and `max-shared-lb` is the limit. If there is no \
         balancer of this ID, that is an error; remove the annotation to get a new one. An empty value is none.";
    LOAD_BALANCER_ADDRESS = "loadbalancer.openstack.org/load-balancer-address", Written, "none", "203.0.113.10",
        "The address under which clients reach the balancer, whatever the status says. Written by the manager, never read.";
    HOSTNAME = "loadbalancer.openstack.org/hostname", Text, "none", "web.example.com",
        "The only entry in the status of the Service is this name instead of the address.";
    CONNECTION_LIMIT = "loadbalancer.openstack.org/connection-limit", Integer, "-1, which is none", "10000",
        "How many connections a listener takes at once.";
    LB_METHOD = "loadbalancer.openstack.org/lb-method", Text, "`lb-method` of `[LoadBalancer]`", "LEAST_CONNECTIONS",
        "How members are chosen. An empty value is none. A method that Octavia does not take for a pool that exists is passed over with a warning.";
    PROXY_PROTOCOL = "loadbalancer.openstack.org/proxy-protocol", Text, "the PROXY protocol is not spoken", "v2",
        "`true` or `v1` for version 1 of the PROXY protocol, `v2` for version 2; anything else turns it off. Not together with \
         `x-forwarded-for`, nor with ports of UDP or SCTP.";
    X_FORWARDED_FOR = "loadbalancer.openstack.org/x-forwarded-for", Boolean, "false", "true",
        "All ports speak HTTP, and requests get the header `X-Forwarded-For`.";
    TLS_CONTAINER_REF = "loadbalancer.openstack.org/default-tls-container-ref", Text,
        "`default-tls-container-ref` of `[LoadBalancer]`", "https://barbican.example.com/v1/containers/f8b0d6c1-5a7e-4dc9-9f4e-8c3b2a0d6e88",
        "Where the certificate is kept. All ports speak HTTPS to clients and HTTP to the nodes. An empty value turns off what is \
         configured.";
    TIMEOUT_CLIENT_DATA = "loadbalancer.openstack.org/timeout-client-data", Integer, "50000", "1800000",
        "Milliseconds after which a silent client is let go.";
    TIMEOUT_MEMBER_CONNECT = "loadbalancer.openstack.org/timeout-member-connect", Integer, "5000", "10000",
        "Milliseconds that connecting to a member may take.";
    TIMEOUT_MEMBER_DATA = "loadbalancer.openstack.org/timeout-member-data", Integer, "50000", "1800000",
        "Milliseconds after which a silent member is let go.";
    TIMEOUT_TCP_INSPECT = "loadbalancer.openstack.org/timeout-tcp-inspect", Integer, "0", "1000",
        "Milliseconds to wait for more of a connection's content before it is looked at.";
    ENABLE_HEALTH_MONITOR = "loadbalancer.openstack.org/enable-health-monitor", Boolean, "`create-monitor` of `[LoadBalancer]`", "true",
        "Members are watched. With the traffic policy Local this is what keeps traffic from nodes without a pod of the Service.";
    HEALTH_MONITOR_DELAY = "loadbalancer.openstack.org/health-monitor-delay", Integer, "`monitor-delay` of `[LoadBalancer]`", "10",
        "Seconds between two looks at a member.";
    HEALTH_MONITOR_TIMEOUT = "loadbalancer.openstack.org/health-monitor-timeout", Integer, "`monitor-timeout` of `[LoadBalancer]`", "5",
        "Seconds that an answer may take.";
    HEALTH_MONITOR_MAX_RETRIES = "loadbalancer.openstack.org/health-monitor-max-retries", Integer,
        "`monitor-max-retries` of `[LoadBalancer]`", "2", "Good answers until a member gets traffic.";
    HEALTH_MONITOR_MAX_RETRIES_DOWN = "loadbalancer.openstack.org/health-monitor-max-retries-down", Integer,
        "`monitor-max-retries-down` of `[LoadBalancer]`", "3", "Bad answers until a member gets none.";
    FLAVOR_ID = "loadbalancer.openstack.org/flavor-id", Text, "`flavor-id` of `[LoadBalancer]`", "0a1c7e5d-6b8f-4ed0-8a5f-9d4c3b1e7f99",
        "Octavia's flavor of a new balancer. Passed over where Octavia is older than 2.6, and with `ovn`.";
    AVAILABILITY_ZONE = "loadbalancer.openstack.org/availability-zone", Text, "`availability-zone` of `[LoadBalancer]`", "az1",
        "Octavia's availability zone of a new balancer. Passed over with a warning where Octavia is older than 2.14, and with `ovn`.";
    NODE_SELECTOR = "loadbalancer.openstack.org/node-selector", Text, "`node-selector` of `[LoadBalancer]`", "env=prod,gpu",
        "Only nodes with these labels are behind the balancer: `key=value`, or `key` for any value, with commas between them. An \
         empty value chooses all nodes.";
}

impl<'a> Reader<'a> {
    pub(crate) fn new(annotations: &'a BTreeMap<String, String>) -> Reader<'a> {
        Reader { annotations, notices: Vec::new() }
    }

    /// What stands there, which may be nothing.
    pub(crate) fn text(&self, annotation: Annotation) -> Option<&'a str> {
        self.annotations.get(annotation.key).map(String::as_str)
    }

    /// What stands there, if that is something.
    pub(crate) fn something(&self, annotation: Annotation) -> Option<&'a str> {
        self.text(annotation).filter(|text| !text.is_empty())
    }

    /// The number that stands there.
    pub(crate) fn integer(&mut self, annotation: Annotation) -> Option<i64> {
        let text = self.text(annotation)?;
        // upstream: `+5` is a number, ` 5` is none.
        self.unless_ignored(annotation, text, text.parse().ok())
    }

    /// `true` or `false`, in just these letters.
    pub(crate) fn boolean(&mut self, annotation: Annotation) -> Option<bool> {
        let text = self.text(annotation)?;
        self.unless_ignored(annotation, text, text.parse().ok())
    }

    /// What was passed over.
    pub(crate) fn into_notices(self) -> Vec<Notice> {
        self.notices
    }

    fn unless_ignored<T>(&mut self, annotation: Annotation, text: &str, read: Option<T>) -> Option<T> {
        if read.is_none() {
            let Annotation { key, form, default, .. } = annotation;
            let message =
                format!("the annotation {key} is passed over: {text:?} is not {}; without it: {default}", form.words());
            self.notices.push(Notice { reason: IGNORED.to_owned(), message });
        }
        read
    }
}

impl Form {
    fn words(self) -> &'static str {
        match self {
            Form::Text => "text",
            Form::Integer => "a whole number",
            Form::Boolean => "true or false",
            Form::Written => "text, written by the manager",
        }
    }
}
