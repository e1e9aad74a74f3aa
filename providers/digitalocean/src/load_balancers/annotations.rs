//! Annotations of Services: those of the Go manager, with its rules for values and its error texts.

use std::collections::BTreeMap;

use bowline_core::annotations::{Annotation, Kind, OrNone, Parsed, Table, Text, annotations};
use bowline_core::parse_bool;

/// All annotations of this cloud.
pub(crate) const TABLE: Table = Table {
    all: ALL,
    prefixes: &["service.beta.kubernetes.io/do-", "kubernetes.digitalocean.com/", "service.kubernetes.io/do-"],
    head: HEAD,
    ..Table::EMPTY
};

/// Boolean, as Go parses it.
const BOOL: Parsed<bool> = Parsed { form: "true or false", read: go_bool };
/// Signed integer, as Go parses it.
const INTEGER: Parsed<i64> = Parsed { form: "a whole number", read: go_integer };
/// Integer without a sign.
const UNSIGNED: Parsed<u64> = Parsed { form: "a whole number without a sign", read: go_unsigned };
/// Comma-separated ports without blanks.
const PORTS: Parsed<Vec<i64>> = Parsed { form: "ports, separated by commas without blanks", read: ports };

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
    HTTP_PORTS: Parsed<Vec<i64>> = PORTS, "service.beta.kubernetes.io/do-loadbalancer-http-ports", "none", "80,8080",
        "Ports with HTTP. `REGIONAL` only.";
    TLS_PORTS: Parsed<Vec<i64>> = PORTS, "service.beta.kubernetes.io/do-loadbalancer-tls-ports",
        "443 with a certificate or TLS passthrough", "443,6443", "Ports with HTTPS. `REGIONAL` only.";
    HTTP2_PORTS: Parsed<Vec<i64>> = PORTS, "service.beta.kubernetes.io/do-loadbalancer-http2-ports", "none", "443",
        "Ports with HTTP/2. `REGIONAL` only.";
    HTTP3_PORT: Parsed<i64> = INTEGER, "service.beta.kubernetes.io/do-loadbalancer-http3-port", "none", "443",
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
    SIZE_UNIT: OrNone<Parsed<i64>> = OrNone(INTEGER), "service.beta.kubernetes.io/do-loadbalancer-size-unit", "1", "3",
        "Number of nodes of the load balancer.";
    STICKY_SESSIONS_TYPE: OrNone<Text> = OrNone(Text), "service.beta.kubernetes.io/do-loadbalancer-sticky-sessions-type", "none",
        "cookies", "`cookies` for session affinity by cookie; any other value is none.";
    STICKY_SESSIONS_COOKIE_NAME: OrNone<Text> = OrNone(Text), "service.beta.kubernetes.io/do-loadbalancer-sticky-sessions-cookie-name",
        "none", "lb", "Name of the cookie. Required with `cookies`.";
    STICKY_SESSIONS_COOKIE_TTL: OrNone<Parsed<i64>> = OrNone(INTEGER),
        "service.beta.kubernetes.io/do-loadbalancer-sticky-sessions-cookie-ttl", "none", "300",
        "Lifetime of the cookie in seconds. Required with `cookies`.";
    REDIRECT_HTTP_TO_HTTPS: Parsed<bool> = BOOL, "service.beta.kubernetes.io/do-loadbalancer-redirect-http-to-https", "false", "true",
        "HTTP requests are redirected to HTTPS.";
    DISABLE_LETS_ENCRYPT_DNS_RECORDS: Parsed<bool> = BOOL,
        "service.beta.kubernetes.io/do-loadbalancer-disable-lets-encrypt-dns-records", "false", "true",
        "No DNS records are created for Let's Encrypt certificates.";
    ENABLE_PROXY_PROTOCOL: Parsed<bool> = BOOL, "service.beta.kubernetes.io/do-loadbalancer-enable-proxy-protocol", "false", "true",
        "The PROXY protocol passes the client's address to the Nodes.";
    ENABLE_BACKEND_KEEPALIVE: Parsed<bool> = BOOL, "service.beta.kubernetes.io/do-loadbalancer-enable-backend-keepalive", "false", "true",
        "HTTP connections to the Nodes are kept open.";
    HTTP_IDLE_TIMEOUT_SECONDS: Parsed<u64> = UNSIGNED, "service.beta.kubernetes.io/do-loadbalancer-http-idle-timeout-seconds", "60",
        "120", "Idle timeout of HTTP connections, 30 to 600.";
    DENY_RULES: OrNone<Text> = OrNone(Text), "service.beta.kubernetes.io/do-loadbalancer-deny-rules", "none", "ip:1.2.3.4,cidr:2.3.0.0/16",
        "Clients that are rejected.";
    ALLOW_RULES: OrNone<Text> = OrNone(Text), "service.beta.kubernetes.io/do-loadbalancer-allow-rules", "all", "cidr:2.3.0.0/16",
        "Clients that may connect. Source ranges of the Service take precedence.";
    OVERRIDE_HEALTH_CHECK: Text = Text, "service.beta.kubernetes.io/do-loadbalancer-override-health-check", "not set", "true",
        "With any value, the next three annotations determine the health check. Otherwise it is that of kube-proxy.";
    HEALTH_CHECK_PATH: OrNone<Text> = OrNone(Text), "service.beta.kubernetes.io/do-loadbalancer-healthcheck-path", "none", "/ready",
        "Path of an HTTP health check.";
    HEALTH_CHECK_PORT: Parsed<Vec<i64>> = PORTS, "service.beta.kubernetes.io/do-loadbalancer-healthcheck-port",
        "the first TCP port", "80", "Port of the Service whose node port is checked.";
    HEALTH_CHECK_PROTOCOL: OrNone<Text> = OrNone(Text), "service.beta.kubernetes.io/do-loadbalancer-healthcheck-protocol",
        "http with a path, otherwise tcp", "http", "`tcp`, `http` or `https`.";
    HEALTH_CHECK_INTERVAL: Parsed<i64> = INTEGER, "service.beta.kubernetes.io/do-loadbalancer-healthcheck-check-interval-seconds", "3",
        "10", "Interval between two health checks, 3 to 300.";
    HEALTH_CHECK_TIMEOUT: Parsed<i64> = INTEGER, "service.beta.kubernetes.io/do-loadbalancer-healthcheck-response-timeout-seconds", "5",
        "10", "Timeout of a health check, 3 to 300.";
    UNHEALTHY_THRESHOLD: Parsed<i64> = INTEGER, "service.beta.kubernetes.io/do-loadbalancer-healthcheck-unhealthy-threshold", "3", "5",
        "Failed checks after which a Node gets no traffic, 2 to 10.";
    HEALTHY_THRESHOLD: Parsed<i64> = INTEGER, "service.beta.kubernetes.io/do-loadbalancer-healthcheck-healthy-threshold", "5", "3",
        "Successful checks after which a Node gets traffic, 2 to 10.";
    DISOWN: Parsed<bool> = BOOL, "service.kubernetes.io/do-loadbalancer-disown", "false", "true",
        "The manager leaves the load balancer alone: it is neither changed nor deleted.";
    FIREWALL_MANAGED: Parsed<bool> = BOOL, "kubernetes.digitalocean.com/firewall-managed", "true", "false",
        "The loop `firewall` opens the node ports of a Service of type NodePort. An invalid value counts as true, with a warning.";
}

const HEAD: &str = "\
# DigitalOcean: annotations of Services

<!-- Generated by `cargo xtask generate` from providers/digitalocean/src/load_balancers/annotations.rs; edit that file instead. -->

The annotations of digitalocean-cloud-controller-manager. They take precedence over the [common annotations](annotations.md). \
Keywords are case-sensitive, and only addresses, subnets and firewall rules are trimmed. With an invalid value the load balancer is \
neither created nor changed, and an Event names the first one.
";

/// Annotations of a Service. Unlike [`Table::reader`], a value that cannot be read is an error of the caller at once, because the
/// first error decides which message users see.
#[derive(Clone, Copy)]
pub(crate) struct Values<'a>(pub(crate) &'a BTreeMap<String, String>);

impl<'a> Values<'a> {
    /// Returns the value; `None` if the annotation is missing, or empty where that counts as missing.
    pub(crate) fn get<K: Kind>(self, annotation: &Annotation<K>) -> Result<Option<K::Value<'a>>, String> {
        match self.0.get(annotation.key) {
            Some(text) if !annotation.kind.is_absent(text) => {
                annotation.kind.read(text).map(Some).map_err(|errors| errors.join(", "))
            }
            _ => Ok(None),
        }
    }

    /// Like [`get`](Values::get), with an error of its own, from the text of the annotation and the cause.
    pub(crate) fn get_or<K: Kind>(
        self,
        annotation: &Annotation<K>,
        error: impl FnOnce(&str, &str) -> String,
    ) -> Result<Option<K::Value<'a>>, String> {
        let text = self.0.get(annotation.key).map(String::as_str).unwrap_or_default();
        self.get(annotation).map_err(|why| error(text, &why))
    }

    /// Returns a text; `None` if the annotation is missing, or empty where that counts as missing.
    pub(crate) fn text<K: Kind<Value<'a> = &'a str>>(self, annotation: &Annotation<K>) -> Option<&'a str> {
        self.get(annotation).ok().flatten()
    }

    /// Returns a boolean, false if the annotation is missing. `setting` names it in the error.
    pub(crate) fn flag(self, annotation: &Annotation<Parsed<bool>>, setting: &str) -> Result<bool, String> {
        let value = self.get_or(annotation, |text, why| {
            let key = annotation.key;
            format!("failed to get {setting} configuration setting: cannot convert value {text:?} for annotation {key:?} to bool: {why}")
        });
        value.map(Option::unwrap_or_default)
    }

    /// Whether the load balancer is left alone.
    pub(crate) fn is_disowned(self) -> Result<bool, String> {
        self.flag(&DISOWN, "disown LB")
    }
}

fn go_bool(text: &str) -> Result<bool, String> {
    parse_bool(text).ok_or_else(|| format!("strconv.ParseBool: parsing {text:?}: invalid syntax"))
}

fn go_integer(text: &str) -> Result<i64, String> {
    text.parse().map_err(|error| go_number_error("Atoi", text, &error))
}

fn go_unsigned(text: &str) -> Result<u64, String> {
    let number = text.parse().map_err(|error| go_number_error("ParseUint", text, &error))?;
    if text.starts_with('+') { Err(format!("strconv.ParseUint: parsing {text:?}: invalid syntax")) } else { Ok(number) }
}

fn go_number_error(function: &str, text: &str, error: &std::num::ParseIntError) -> String {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    let cause = match error.kind() {
        PosOverflow | NegOverflow => "value out of range",
        _ => "invalid syntax",
    };
    format!("strconv.{function}: parsing {text:?}: {cause}")
}

fn ports(text: &str) -> Result<Vec<i64>, String> {
    text.split(',').map(go_integer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_declarations_are_consistent() {
        assert_eq!(TABLE.validate(), Vec::<String>::new());
    }

    #[test]
    fn numbers_are_parsed_as_in_go() {
        assert_eq!(go_integer("+5"), Ok(5));
        assert_eq!(go_integer(" 8080").unwrap_err(), "strconv.Atoi: parsing \" 8080\": invalid syntax");
        assert_eq!(
            go_integer("9223372036854775808").unwrap_err(),
            "strconv.Atoi: parsing \"9223372036854775808\": value out of range"
        );
        assert_eq!(go_unsigned("+60").unwrap_err(), "strconv.ParseUint: parsing \"+60\": invalid syntax");
        assert_eq!(go_unsigned("60"), Ok(60));
    }
}
