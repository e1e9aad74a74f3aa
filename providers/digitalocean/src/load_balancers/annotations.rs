//! Annotations of Services: those of the Go manager, with its rules for values and its error texts.

pub(crate) use bowline_core::annotations::Strict as Values;
use bowline_core::annotations::{
    Annotation, GO_BOOL, GO_INTEGER, GO_INTEGERS, GO_UNSIGNED, OrNone, Parsed, Table, Text, annotations,
};

/// All annotations of this cloud.
pub(crate) const TABLE: Table = Table {
    all: ALL,
    prefixes: &["service.beta.kubernetes.io/do-", "kubernetes.digitalocean.com/", "service.kubernetes.io/do-"],
    head: HEAD,
    ..Table::EMPTY
};

annotations! {
    pub(crate) const ALL;

    LOAD_BALANCER_ID: OrNone<Text> = OrNone(Text), "kubernetes.digitalocean.com/load-balancer-id", "set by the manager",
        "9f4a1f6e-2b7c-4c5a-8d7e-0a1b2c3d4e5f",
        "ID of the load balancer. Set it before the Service is created to adopt an existing load balancer.";
    NAME: OrNone<Text> = OrNone(Text), "service.beta.kubernetes.io/do-loadbalancer-name", "`a` and the UID of the Service", "web",
        "Name of the load balancer. A new value renames it.";
    TYPE: OrNone<Text> = OrNone(Text), "service.beta.kubernetes.io/do-loadbalancer-type", "`DEFAULT_LB_TYPE`", "REGIONAL",
        "`REGIONAL` for a proxy (HTTP, TLS), `REGIONAL_NETWORK` for one that passes packets through. Fixed at creation: a later change \
         is set back.";
    NETWORK: OrNone<Text> = OrNone(Text), "service.beta.kubernetes.io/do-loadbalancer-network", "EXTERNAL", "INTERNAL",
        "`EXTERNAL`, or `INTERNAL` for an address in the VPC only. Fixed at creation.";
    NETWORK_STACK: OrNone<Text> = OrNone(Text), "service.beta.kubernetes.io/do-loadbalancer-network-stack",
        "DUALSTACK for REGIONAL and if every Node has IPv6, otherwise IPV4", "IPV4",
        "`IPV4` or `DUALSTACK`. Fixed at creation.";
    IP: OrNone<Text> = OrNone(Text), "service.beta.kubernetes.io/do-loadbalancer-ip", "assigned by DigitalOcean", "203.0.113.7",
        "Address of a new load balancer, from a range that was brought to DigitalOcean (BYOIP).";
    SUBNET_UUID: OrNone<Text> = OrNone(Text), "service.beta.kubernetes.io/do-loadbalancer-subnet-uuid", "none",
        "1c2d3e4f-5a6b-4c7d-8e9f-0a1b2c3d4e5f", "Subnet of the VPC.";
    PROTOCOL: Text = Text, "service.beta.kubernetes.io/do-loadbalancer-protocol", "tcp", "http",
        "Protocol of TCP ports that no other annotation names: `tcp`, `http`, `https`, `http2` or `http3`. `REGIONAL` only.";
    HTTP_PORTS: Parsed<Vec<i64>> = GO_INTEGERS, "service.beta.kubernetes.io/do-loadbalancer-http-ports", "none", "80,8080",
        "Ports with HTTP. `REGIONAL` only.";
    TLS_PORTS: Parsed<Vec<i64>> = GO_INTEGERS, "service.beta.kubernetes.io/do-loadbalancer-tls-ports",
        "443 with a certificate or TLS passthrough", "443,6443", "Ports with HTTPS. `REGIONAL` only.";
    HTTP2_PORTS: Parsed<Vec<i64>> = GO_INTEGERS, "service.beta.kubernetes.io/do-loadbalancer-http2-ports", "none", "443",
        "Ports with HTTP/2. `REGIONAL` only.";
    HTTP3_PORT: Parsed<i64> = GO_INTEGER, "service.beta.kubernetes.io/do-loadbalancer-http3-port", "none", "443",
        "Port with HTTP/3, in addition to the rules of the other annotations. Needs a certificate. `REGIONAL` only.";
    TLS_PASSTHROUGH: Text = Text, "service.beta.kubernetes.io/do-loadbalancer-tls-passthrough", "false", "true",
        "The load balancer passes TLS on to the Nodes. A value that is not a boolean counts as false. `REGIONAL` only.";
    CERTIFICATE_ID: OrNone<Text> = OrNone(Text), "service.beta.kubernetes.io/do-loadbalancer-certificate-id", "none",
        "892071a0-bb95-49bc-8021-3afd67a210bf",
        "ID of the certificate for HTTPS, HTTP/2 and HTTP/3. The manager changes it when DigitalOcean has renewed a Let's Encrypt \
         certificate.";
    CERTIFICATE_NAME: OrNone<Text> = OrNone(Text), "service.beta.kubernetes.io/do-loadbalancer-certificate-name", "none", "web-cert",
        "Name of the certificate. `certificate-id` takes precedence.";
    HOSTNAME: OrNone<Text> = OrNone(Text), "service.beta.kubernetes.io/do-loadbalancer-hostname", "none", "web.example.com",
        "Host name in the status of the Service, in place of the addresses.";
    ALGORITHM: OrNone<Text> = OrNone(Text), "service.beta.kubernetes.io/do-loadbalancer-algorithm", "round_robin", "least_connections",
        "Without effect at DigitalOcean; still sent.";
    SIZE_SLUG: OrNone<Text> = OrNone(Text), "service.beta.kubernetes.io/do-loadbalancer-size-slug", "none", "lb-small",
        "`lb-small`, `lb-medium` or `lb-large`: 1, 3 or 6 nodes. Deprecated: use `size-unit`.";
    SIZE_UNIT: OrNone<Parsed<i64>> = OrNone(GO_INTEGER), "service.beta.kubernetes.io/do-loadbalancer-size-unit", "1", "3",
        "Number of nodes of the load balancer.";
    STICKY_SESSIONS_TYPE: OrNone<Text> = OrNone(Text), "service.beta.kubernetes.io/do-loadbalancer-sticky-sessions-type", "none",
        "cookies", "`cookies` for session affinity by cookie; any other value is none.";
    STICKY_SESSIONS_COOKIE_NAME: OrNone<Text> = OrNone(Text), "service.beta.kubernetes.io/do-loadbalancer-sticky-sessions-cookie-name",
        "none", "lb", "Name of the cookie. Required with `cookies`.";
    STICKY_SESSIONS_COOKIE_TTL: OrNone<Parsed<i64>> = OrNone(GO_INTEGER),
        "service.beta.kubernetes.io/do-loadbalancer-sticky-sessions-cookie-ttl", "none", "300",
        "Lifetime of the cookie in seconds. Required with `cookies`.";
    REDIRECT_HTTP_TO_HTTPS: Parsed<bool> = GO_BOOL, "service.beta.kubernetes.io/do-loadbalancer-redirect-http-to-https", "false", "true",
        "HTTP requests are redirected to HTTPS.";
    DISABLE_LETS_ENCRYPT_DNS_RECORDS: Parsed<bool> = GO_BOOL,
        "service.beta.kubernetes.io/do-loadbalancer-disable-lets-encrypt-dns-records", "false", "true",
        "No DNS records are created for Let's Encrypt certificates.";
    ENABLE_PROXY_PROTOCOL: Parsed<bool> = GO_BOOL, "service.beta.kubernetes.io/do-loadbalancer-enable-proxy-protocol", "false", "true",
        "The PROXY protocol passes the client's address to the Nodes.";
    ENABLE_BACKEND_KEEPALIVE: Parsed<bool> = GO_BOOL, "service.beta.kubernetes.io/do-loadbalancer-enable-backend-keepalive", "false", "true",
        "HTTP connections to the Nodes are kept open.";
    HTTP_IDLE_TIMEOUT_SECONDS: Parsed<u64> = GO_UNSIGNED, "service.beta.kubernetes.io/do-loadbalancer-http-idle-timeout-seconds", "60",
        "120", "Idle timeout of HTTP connections, 30 to 600.";
    DENY_RULES: OrNone<Text> = OrNone(Text), "service.beta.kubernetes.io/do-loadbalancer-deny-rules", "none", "ip:1.2.3.4,cidr:2.3.0.0/16",
        "Clients that are rejected.";
    ALLOW_RULES: OrNone<Text> = OrNone(Text), "service.beta.kubernetes.io/do-loadbalancer-allow-rules", "all", "cidr:2.3.0.0/16",
        "Clients that may connect. Source ranges of the Service take precedence.";
    OVERRIDE_HEALTH_CHECK: Text = Text, "service.beta.kubernetes.io/do-loadbalancer-override-health-check", "not set", "true",
        "With any value, the next three annotations determine the health check. Otherwise it is that of kube-proxy.";
    HEALTH_CHECK_PATH: OrNone<Text> = OrNone(Text), "service.beta.kubernetes.io/do-loadbalancer-healthcheck-path", "none", "/ready",
        "Path of an HTTP health check.";
    HEALTH_CHECK_PORT: Parsed<Vec<i64>> = GO_INTEGERS, "service.beta.kubernetes.io/do-loadbalancer-healthcheck-port",
        "the first TCP port", "80", "Port of the Service whose node port is checked.";
    HEALTH_CHECK_PROTOCOL: OrNone<Text> = OrNone(Text), "service.beta.kubernetes.io/do-loadbalancer-healthcheck-protocol",
        "http with a path, otherwise tcp", "http", "`tcp`, `http` or `https`.";
    HEALTH_CHECK_INTERVAL: Parsed<i64> = GO_INTEGER, "service.beta.kubernetes.io/do-loadbalancer-healthcheck-check-interval-seconds", "3",
        "10", "Interval between two health checks, 3 to 300.";
    HEALTH_CHECK_TIMEOUT: Parsed<i64> = GO_INTEGER, "service.beta.kubernetes.io/do-loadbalancer-healthcheck-response-timeout-seconds", "5",
        "10", "Timeout of a health check, 3 to 300.";
    UNHEALTHY_THRESHOLD: Parsed<i64> = GO_INTEGER, "service.beta.kubernetes.io/do-loadbalancer-healthcheck-unhealthy-threshold", "3", "5",
        "Failed checks after which a Node gets no traffic, 2 to 10.";
    HEALTHY_THRESHOLD: Parsed<i64> = GO_INTEGER, "service.beta.kubernetes.io/do-loadbalancer-healthcheck-healthy-threshold", "5", "3",
        "Successful checks after which a Node gets traffic, 2 to 10.";
    DISOWN: Parsed<bool> = GO_BOOL, "service.kubernetes.io/do-loadbalancer-disown", "false", "true",
        "The manager leaves the load balancer alone: it is neither changed nor deleted.";
    FIREWALL_MANAGED: Parsed<bool> = GO_BOOL, "kubernetes.digitalocean.com/firewall-managed", "true", "false",
        "The loop `firewall` opens the node ports of a Service of type NodePort. An invalid value counts as true, with a warning.";
}

const HEAD: &str = "\
# DigitalOcean: annotations of Services

<!-- Generated by `cargo xtask generate` from providers/digitalocean/src/load_balancers/annotations.rs; edit that file instead. -->

The annotations of digitalocean-cloud-controller-manager. They take precedence over the [common annotations](annotations.md). \
Keywords are case-sensitive, and only addresses, subnets and firewall rules are trimmed. With an invalid value the load balancer is \
neither created nor changed, and an Event names the first one.
";

/// Returns a boolean, false if the annotation is missing. `setting` names it in the error.
pub(super) fn flag(values: Values<'_>, annotation: &Annotation<Parsed<bool>>, setting: &str) -> Result<bool, String> {
    let value = values.get_or(annotation, |text, why| {
        let key = annotation.key;
        format!("failed to get {setting} configuration setting: cannot convert value {text:?} for annotation {key:?} to bool: {why}")
    });
    value.map(Option::unwrap_or_default)
}

/// Whether the load balancer is left alone.
pub(super) fn is_disowned(values: Values<'_>) -> Result<bool, String> {
    flag(values, &DISOWN, "disown LB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_declarations_are_consistent() {
        assert_eq!(TABLE.validate(), Vec::<String>::new());
    }
}
