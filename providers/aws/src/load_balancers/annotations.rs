//! Annotations of Services: those of the Go manager, with its rules for values.

use std::collections::BTreeMap;

pub(crate) use bowline_core::annotations::Strict as Values;
use bowline_core::annotations::{GO_BOOL, GO_INTEGER, OrNone, Parsed, Table, Text, annotations};

/// All annotations of this cloud.
pub(crate) const TABLE: Table =
    Table { all: ALL, prefixes: &["service.beta.kubernetes.io/aws-"], head: HEAD, ..Table::EMPTY };

annotations! {
    pub(crate) const ALL;

    TYPE: Text = Text, "service.beta.kubernetes.io/aws-load-balancer-type", "classic", "nlb",
        "`nlb` for a Network Load Balancer, `external` or `nlb-ip` if another controller is responsible; any other value, \
         or none, for a Classic Load Balancer. Fixed at creation.";
    INTERNAL: Text = Text, "service.beta.kubernetes.io/aws-load-balancer-internal", "false", "true",
        "The load balancer gets private addresses only. Any value but `false` and an empty one counts as true. Fixed at \
         creation.";
    SUBNETS: Text = Text, "service.beta.kubernetes.io/aws-load-balancer-subnets", "one subnet in each zone, chosen by tags", "subnet-0a1b2c3d,private-b",
        "Subnets, by ID or by the tag `Name`. Fixed at creation for a Network Load Balancer.";
    SECURITY_GROUPS: Text = Text, "service.beta.kubernetes.io/aws-load-balancer-security-groups", "a group of its own", "sg-0a1b2c3d",
        "Security groups in place of the own one. Their rules are not changed. For a Network Load Balancer only with \
         `NLBSecurityGroupMode = Managed`.";
    EXTRA_SECURITY_GROUPS: Text = Text, "service.beta.kubernetes.io/aws-load-balancer-extra-security-groups", "none", "sg-0a1b2c3d",
        "Security groups in addition. Classic only.";
    SSL_CERT: OrNone<Text> = OrNone(Text), "service.beta.kubernetes.io/aws-load-balancer-ssl-cert", "none", "arn:aws:acm:eu-west-1:123456789012:certificate/12345678",
        "ARN of the certificate for TLS.";
    SSL_PORTS: OrNone<Text> = OrNone(Text), "service.beta.kubernetes.io/aws-load-balancer-ssl-ports", "*", "443,https",
        "Ports with TLS, by number or name; `*` for all.";
    SSL_NEGOTIATION_POLICY: Text = Text, "service.beta.kubernetes.io/aws-load-balancer-ssl-negotiation-policy", "that of AWS", "ELBSecurityPolicy-TLS13-1-2-2021-06",
        "Predefined policy for TLS.";
    BACKEND_PROTOCOL: OrNone<Text> = OrNone(Text), "service.beta.kubernetes.io/aws-load-balancer-backend-protocol", "tcp", "http",
        "Protocol of the Nodes: `http`, `https`, `ssl` or `tcp`. A Network Load Balancer knows only `ssl`.";
    PROXY_PROTOCOL: OrNone<Text> = OrNone(Text), "service.beta.kubernetes.io/aws-load-balancer-proxy-protocol", "none", "*",
        "`*` passes the client's address with version 1 of the PROXY protocol. Classic only; see `\
         target-group-attributes`.";
    ACCESS_LOG_ENABLED: OrNone<Parsed<bool>> = OrNone(GO_BOOL), "service.beta.kubernetes.io/aws-load-balancer-access-log-enabled", "false", "true",
        "Access logs are written to a bucket of S3.";
    ACCESS_LOG_BUCKET: OrNone<Text> = OrNone(Text), "service.beta.kubernetes.io/aws-load-balancer-access-log-s3-bucket-name", "none", "my-logs",
        "Bucket of the access logs.";
    ACCESS_LOG_PREFIX: OrNone<Text> = OrNone(Text), "service.beta.kubernetes.io/aws-load-balancer-access-log-s3-bucket-prefix", "none", "production",
        "Prefix of the access logs in the bucket.";
    ACCESS_LOG_EMIT_INTERVAL: OrNone<Parsed<i64>> = OrNone(GO_INTEGER), "service.beta.kubernetes.io/aws-load-balancer-access-log-emit-interval", "60", "5",
        "Interval of the access logs, 5 or 60 minutes. Classic only.";
    CONNECTION_DRAINING_ENABLED: OrNone<Parsed<bool>> = OrNone(GO_BOOL), "service.beta.kubernetes.io/aws-load-balancer-connection-draining-enabled", "false", "true",
        "Connections of a removed Node continue for a while. Classic only.";
    CONNECTION_DRAINING_TIMEOUT: OrNone<Parsed<i64>> = OrNone(GO_INTEGER), "service.beta.kubernetes.io/aws-load-balancer-connection-draining-timeout", "300", "60",
        "Time in seconds for which they continue. Classic only.";
    CONNECTION_IDLE_TIMEOUT: OrNone<Parsed<i64>> = OrNone(GO_INTEGER), "service.beta.kubernetes.io/aws-load-balancer-connection-idle-timeout", "60", "120",
        "Timeout of idle connections in seconds. Classic only.";
    CROSS_ZONE: OrNone<Parsed<bool>> = OrNone(GO_BOOL), "service.beta.kubernetes.io/aws-load-balancer-cross-zone-load-balancing-enabled", "false", "true",
        "Nodes in all zones get traffic from the load balancer's address in each zone.";
    HEALTH_CHECK_PROTOCOL: Text = Text, "service.beta.kubernetes.io/aws-load-balancer-healthcheck-protocol", "that of the Service", "HTTP",
        "Protocol of the health check: `TCP`, `HTTP` or `HTTPS`, for Classic Load Balancers also `SSL`.";
    HEALTH_CHECK_PORT: Text = Text, "service.beta.kubernetes.io/aws-load-balancer-healthcheck-port", "that of the Service", "traffic-port",
        "Port of the health check on the Nodes, or `traffic-port`.";
    HEALTH_CHECK_PATH: Text = Text, "service.beta.kubernetes.io/aws-load-balancer-healthcheck-path", "that of the Service", "/ready",
        "Path of an HTTP health check.";
    HEALTH_CHECK_INTERVAL: Parsed<i64> = GO_INTEGER, "service.beta.kubernetes.io/aws-load-balancer-healthcheck-interval", "10 (Classic, and externalTrafficPolicy Local), 30", "5",
        "Interval between two health checks in seconds.";
    HEALTH_CHECK_TIMEOUT: Parsed<i64> = GO_INTEGER, "service.beta.kubernetes.io/aws-load-balancer-healthcheck-timeout", "5", "3",
        "Timeout of a health check in seconds. Classic only.";
    HEALTHY_THRESHOLD: Parsed<i64> = GO_INTEGER, "service.beta.kubernetes.io/aws-load-balancer-healthcheck-healthy-threshold", "2 (Classic, and externalTrafficPolicy Local), 3", "3",
        "Successful checks after which a Node gets traffic.";
    UNHEALTHY_THRESHOLD: Parsed<i64> = GO_INTEGER, "service.beta.kubernetes.io/aws-load-balancer-healthcheck-unhealthy-threshold", "6 (Classic), 2 (externalTrafficPolicy Local), 3", "3",
        "Failed checks after which a Node gets no traffic.";
    ADDITIONAL_TAGS: Text = Text, "service.beta.kubernetes.io/aws-load-balancer-additional-resource-tags", "none", "team=web,stage=test",
        "Tags of the created resources. Later changes apply to Classic Load Balancers only, and remove no tag.";
    TARGET_GROUP_ATTRIBUTES: Text = Text, "service.beta.kubernetes.io/aws-load-balancer-target-group-attributes", "those of AWS", "proxy_protocol_v2.enabled=true",
        "Attributes of the target groups: `preserve_client_ip.enabled` and `proxy_protocol_v2.enabled`. Network only.";
    EIP_ALLOCATIONS: Text = Text, "service.beta.kubernetes.io/aws-load-balancer-eip-allocations", "assigned by AWS", "eipalloc-1,eipalloc-2",
        "Elastic IP addresses, one for each subnet. Network only, fixed at creation.";
    PRIVATE_IPV4_ADDRESSES: Text = Text, "service.beta.kubernetes.io/aws-load-balancer-private-ipv4-addresses", "assigned by AWS", "10.0.1.9,10.0.2.9",
        "Private addresses of an internal load balancer, one for each subnet. Network only, fixed at creation.";
    TARGET_NODE_LABELS: Text = Text, "service.beta.kubernetes.io/aws-load-balancer-target-node-labels", "all Nodes", "pool=web,ingress",
        "Labels of the Nodes that get traffic; a key without a value accepts all values.";
}

const HEAD: &str = "\
# AWS: annotations of Services

<!-- Generated by `cargo xtask generate` from providers/aws/src/load_balancers/annotations.rs; edit that file instead. -->

The annotations of aws-cloud-controller-manager. They take precedence over the [common annotations](annotations.md). Keywords are \
case-sensitive. With an invalid value nothing is changed, and an Event names the first one.
";

/// Returns the items of a list, separated by commas, without surrounding blanks and without empty ones.
pub(super) fn items(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

/// Returns the pairs of a list such as `a=1,b=,c`. The text after a second `=` is lost, and an item without a key is ignored.
// upstream: the same parser reads tags and labels.
pub(super) fn pairs(text: &str) -> BTreeMap<String, String> {
    let pair = |item: &str| {
        let mut parts = item.trim().split('=').map(str::trim);
        let (key, value) = (parts.next()?, parts.next().unwrap_or_default());
        (!key.is_empty()).then(|| (key.to_owned(), value.to_owned()))
    };
    text.trim().split(',').filter_map(pair).collect()
}

/// Whether a Service requests an internal load balancer.
pub(super) fn is_internal(values: Values<'_>, default: bool) -> bool {
    values.text(&INTERNAL).map_or(default, |text| !text.is_empty() && text != "false")
}

/// Returns the reference page.
pub(crate) fn reference() -> String {
    TABLE.reference()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_declarations_are_consistent() {
        assert_eq!(TABLE.validate(), Vec::<String>::new());
    }

    #[test]
    fn items_and_pairs_are_read_as_upstream_does() {
        assert_eq!(items(" a, ,b ,"), ["a", "b"]);
        let cases: [(&str, &[(&str, &str)]); 4] = [
            ("Key1=Val1,Key2=", &[("Key1", "Val1"), ("Key2", "")]),
            ("K=V K1=V2,Key1========, =====, ======Val, =Val, , 234,", &[("234", ""), ("K", "V K1"), ("Key1", "")]),
            ("k=v,k2=,k3", &[("k", "v"), ("k2", ""), ("k3", "")]),
            ("", &[]),
        ];
        for (text, expected) in cases {
            let read = pairs(text);
            let read: Vec<_> = read.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            assert_eq!(read, expected, "{text:?}");
        }
    }

    #[test]
    fn only_false_and_nothing_are_not_internal() {
        for (value, expected) in
            [("true", true), ("0.0.0.0/0", true), ("no", true), ("False", true), ("false", false), ("", false)]
        {
            let annotations = [(INTERNAL.key.to_owned(), value.to_owned())].into();
            assert_eq!(is_internal(Values(&annotations), true), expected, "{value:?}");
        }
        assert!(is_internal(Values(&BTreeMap::new()), true));
    }
}
