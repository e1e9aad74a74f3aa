//! Configuration file of the provider.

use std::path::PathBuf;

use bowline_cloud::{LoadBalancerCapabilities, LoadBalancerKind, RouteCapabilities, SecretRef};
use bowline_config::table::{Example, Format, Key, Section, Table, UnknownKeys, keys};
use bowline_config::{ConfigErrors, ConfigFile, Environment, Secret};
use bowline_core::IpFamily;
use bowline_core::annotations::ProxyProtocol;
use serde::Serialize;

use crate::client::Endpoint;

keys! {
    /// Configuration file of the provider. Every key is optional. Disabling a capability affects the provider only; the cloud still
    /// has it.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    #[serde(rename_all = "camelCase")]
    pub struct Config {
        endpoint: String = "endpoint", "http://127.0.0.1:7480", "Endpoint of the cloud (`bowline cloud --listen`).";
        token: Option<Secret> = "token", "",
            "Token of the user, if the cloud requires one (`bowline cloud --token-file`).";
        token_file: Option<PathBuf> = "tokenFile", "",
            "File with the token; a trailing newline is ignored. It is read when the provider is built.";
        token_secret: Option<String> = "tokenSecret", "",
            "Kubernetes Secret with the token in its key `token`, as `NAMESPACE/NAME`. The Secret is watched.";
        id_prefix: String = "idPrefix", "local",
            "Prefix of provider IDs. Two local clouds in one cluster need different prefixes.";
        listing: bool = "listing", "true", "Support listing all machines.";
        page_size: usize = "pageSize", "100",
            "Requested number of machines per page of a list; the cloud may return fewer.";
        batch_lookup: usize = "batchLookup", "100",
            "Maximum number of machines per lookup, at most the page size of the cloud.";
        max_parallel: usize = "maxParallel", "8", "Maximum number of concurrent calls.";
        lookup_by_name: bool = "lookupByName", "true", "Look up a Node without a provider ID by its name.";
        shutdown_state: bool = "shutdownState", "true", "Report stopped machines as shut down.";
        zones: bool = "zones", "true", "Report zone and region.";
        additional_labels: bool = "additionalLabels", "true", "Report additional labels.";
        additional_annotations: bool = "additionalAnnotations", "true",
            "Write the annotations of a machine to its Node.";
        tag_machines: bool = "tagMachines", "false",
            "Tag the machines of the cluster with `cluster:NAME`, and remove the tag when the Node is deleted.";
        pod_ranges: bool = "podRanges", "false",
            "Report and assign the pod CIDRs that the cloud routes to a machine.";
        ["loadBalancers"] load_balancers: LoadBalancerConfig, "Capabilities of load balancers.";
        ["routes"] routes: RouteConfig, "Capabilities of routes.";
    }
}

keys! {
    /// Capabilities of load balancers. As in [`Config`], disabling one affects the provider only.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    #[serde(rename_all = "camelCase")]
    pub struct LoadBalancerConfig {
        enabled: bool = "enabled", "true", "Support load balancers.";
        tcp: bool = "tcp", "true", "TCP ports.";
        udp: bool = "udp", "true", "UDP ports.";
        mixed_protocols: bool = "mixedProtocols", "true", "TCP and UDP ports on one load balancer.";
        source_ranges: bool = "sourceRanges", "true", "Source ranges: restrict clients by CIDR.";
        session_affinity: bool = "sessionAffinity", "true", "Session affinity by client IP.";
        local_traffic_policy: bool = "localTrafficPolicy", "true", "`externalTrafficPolicy: Local`: send traffic only to Nodes with a Pod of the Service.";
        proxy_protocol: bool = "proxyProtocol", "true", "PROXY protocol.";
        requested_address: bool = "requestedAddress", "true", "Requested addresses (`loadBalancerIP`).";
        drain: bool = "drain", "true", "Drain the connections of a leaving Node.";
        shared: bool = "shared", "true", "Share groups: several Services share one address.";
        internal: bool = "internal", "true", "Internal load balancers.";
        idle_timeout: bool = "idleTimeout", "true", "Idle timeout of connections.";
        health_check_settings: bool = "healthCheckSettings", "true",
            "Path, port and interval of health checks.";
        adoption: bool = "adoption", "true", "Adopt existing load balancers.";
        retention: bool = "retention", "true", "Retain load balancers of deleted Services.";
        ip_families: Vec<IpFamily> = "ipFamilies", "IPv4, IPv6", "IP families.";
        dual_stack: bool = "dualStack", "true", "Dual-stack load balancers.";
        batch_observe: usize = "batchObserve", "100",
            "Maximum number of load balancers per read, at most the page size of the cloud.";
        max_ports: Option<usize> = "maxPorts", "", "Maximum number of ports per load balancer. Default: no limit.";
        max_targets: Option<usize> = "maxTargets", "", "Maximum number of targets per load balancer. Default: no limit.";
    }
}

keys! {
    /// Capabilities of routes.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    #[serde(rename_all = "camelCase")]
    pub struct RouteConfig {
        enabled: bool = "enabled", "true", "Support routes.";
        ip_families: Vec<IpFamily> = "ipFamilies", "IPv4, IPv6", "IP families.";
        max_routes: Option<usize> = "maxRoutes", "", "Maximum number of routes per cluster; 0 means no limit. Default: no limit.";
        max_parallel: usize = "maxParallel", "200", "Maximum number of concurrent calls.";
        node_addresses: bool = "nodeAddresses", "false",
            "Report the Node addresses of a route, so that the route is recreated when they change.";
    }
}

impl RouteConfig {
    /// Capabilities; `None` if routes are disabled.
    pub(crate) fn capabilities(&self) -> Option<RouteCapabilities> {
        self.enabled.then(|| RouteCapabilities {
            ip_families: self.ip_families.clone(),
            max_routes: self.limit(),
            max_parallel: self.max_parallel.max(1),
            batch: 1,
            marks_cluster_uid: true,
            knows_machines: true,
        })
    }

    /// Maximum number of routes per cluster.
    pub(crate) fn limit(&self) -> Option<usize> {
        self.max_routes.filter(|limit| *limit > 0)
    }

    /// Validates the values.
    fn errors(&self) -> Vec<InvalidValue> {
        let mut errors = Vec::new();
        if self.max_parallel == 0 {
            errors.push((ROUTES, RouteConfig::max_parallel, "must be at least 1".to_owned()));
        }
        errors.extend(family_error(ROUTES, RouteConfig::ip_families, &self.ip_families));
        errors
    }
}

/// Checks that families are named once each.
fn family_error(section: &'static str, key: Key, families: &[IpFamily]) -> Option<InvalidValue> {
    match families {
        [_] => None,
        [first, second] if first != second => None,
        _ => Some((section, key, "must be IPv4, IPv6, or both, each once".to_owned())),
    }
}

impl LoadBalancerConfig {
    /// Capabilities; `None` if load balancers are disabled.
    pub(crate) fn capabilities(&self) -> Option<LoadBalancerCapabilities> {
        let external = self.external();
        let internal = self.internal.then(|| external.to_internal());
        let kinds = [external].into_iter().chain(internal).collect();
        let batch_observe = self.batch_observe.max(1);
        self.enabled.then_some(LoadBalancerCapabilities { marks_uid: true, batch_observe, fixed_kind: false, kinds })
    }

    fn external(&self) -> LoadBalancerKind {
        LoadBalancerKind {
            name: "external",
            requested_by: &[],
            checks_spec: false,
            tcp: self.tcp,
            udp: self.udp,
            sctp: false,
            mixed_protocols: self.mixed_protocols && self.tcp && self.udp,
            source_ranges: self.source_ranges,
            session_affinity: self.session_affinity,
            local_traffic_policy: self.local_traffic_policy,
            proxy_protocol: if self.proxy_protocol { vec![ProxyProtocol::V1, ProxyProtocol::V2] } else { Vec::new() },
            requested_address: self.requested_address,
            drain: self.drain,
            shared: self.shared,
            internal: false,
            idle_timeout: self.idle_timeout,
            health_check_settings: self.health_check_settings,
            adoption: self.adoption,
            retention: self.retention,
            // Load balancers of this cloud connect to node ports.
            without_node_ports: false,
            needs_targets: false,
            ip_families: self.ip_families.clone(),
            dual_stack: self.dual_stack && self.ip_families.len() > 1,
            first_family: false,
            max_ports: self.max_ports,
            max_targets: self.max_targets,
        }
    }

    /// Validates the values.
    fn errors(&self) -> Vec<InvalidValue> {
        let mut errors = Vec::new();
        let numbers = [
            (LoadBalancerConfig::batch_observe, Some(self.batch_observe)),
            (LoadBalancerConfig::max_ports, self.max_ports),
            (LoadBalancerConfig::max_targets, self.max_targets),
        ];
        let zeros = numbers.into_iter().filter(|(_, number)| *number == Some(0));
        errors.extend(zeros.map(|(key, _)| (LOAD_BALANCERS, key, "must be at least 1".to_owned())));
        if self.enabled && !self.tcp && !self.udp {
            let message = "TCP and UDP are both disabled; set one of them to true, or loadBalancers.enabled to false";
            errors.push((LOAD_BALANCERS, LoadBalancerConfig::udp, message.to_owned()));
        }
        errors.extend(family_error(LOAD_BALANCERS, LoadBalancerConfig::ip_families, &self.ip_families));
        errors
    }
}

/// Section and key with an invalid value, and the message.
type InvalidValue = (&'static str, Key, String);

const LOAD_BALANCERS: &str = "loadBalancers";
const ROUTES: &str = "routes";

/// Schema of the file.
fn table() -> Table {
    Table { format: Format::Yaml, unknown: UnknownKeys::Reject, sections: Section::document::<Config>() }
}

/// Reference page.
pub(crate) fn reference() -> String {
    HEAD.to_owned() + &table().reference()
}

const HEAD: &str = "\
# The local cloud: configuration

<!-- Generated by `cargo xtask generate` from providers/local/src/config.rs; change that instead. -->

YAML or JSON file for `--cloud-config` with `--cloud-provider=local`. Every key is optional. Disabling a capability affects the \
provider only; the cloud still has it.
";

impl Config {
    /// Template of the file.
    pub(crate) fn template() -> String {
        table().template(&[("", &[Example::Set(Config::endpoint, Config::endpoint.default)])])
    }

    /// Reads the file and reports all errors in it.
    pub fn read(file: &ConfigFile) -> Result<Config, ConfigErrors> {
        let settings = table().read(Some(file), &Environment::default())?;
        let config: Config = settings.section("");
        let mut errors = ConfigErrors::new();
        for (section, key, message) in config.errors().into_iter().chain(config.token_error()) {
            errors.push(settings.view(section).error(&key, message));
        }
        if errors.is_empty() { Ok(config) } else { Err(errors) }
    }

    /// Token of the user. The file is read on every call.
    pub(crate) fn credential(&self) -> std::io::Result<Option<Secret>> {
        match &self.token_file {
            None => Ok(self.token.clone()),
            Some(path) => {
                let text = std::fs::read_to_string(path)?;
                Ok(Some(Secret::from(text.trim_end_matches(['\n', '\r']))))
            }
        }
    }

    /// Validates the token. Its messages never quote the token.
    fn token_error(&self) -> Option<InvalidValue> {
        let key = if self.token_file.is_some() { Config::token_file } else { Config::token };
        if self.token.is_some() && self.token_file.is_some() {
            return Some(("", key, "is set together with token; set only one of them".to_owned()));
        }
        if let Some(secret) = &self.token_secret {
            let key = Config::token_secret;
            if self.token.is_some() || self.token_file.is_some() {
                return Some(("", key, "is set together with token or tokenFile; set only one of them".to_owned()));
            }
            return match SecretRef::parse(secret) {
                None => Some((
                    "",
                    key,
                    format!("{secret:?} is not NAMESPACE/NAME of a Secret, for example kube-system/local-cloud"),
                )),
                Some(_) => None,
            };
        }
        match self.credential() {
            Err(error) => Some(("", key, format!("cannot be read: {error}"))),
            Ok(Some(token)) if !is_bearer(token.reveal()) => {
                Some(("", key, "is not a valid token: use only letters, digits and -._~+/=".to_owned()))
            }
            Ok(_) => None,
        }
    }

    /// Validates the values.
    fn errors(&self) -> Vec<InvalidValue> {
        let prefix = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'+');
        let mut errors = Vec::new();
        if let Err(error) = Endpoint::parse(&self.endpoint) {
            errors.push(("", Config::endpoint, error.message().to_owned()));
        }
        if self.id_prefix.is_empty() || !self.id_prefix.bytes().all(prefix) {
            let message =
                format!("{:?} is not a valid provider ID prefix; use letters, digits, '-', '.', '+'", self.id_prefix);
            errors.push(("", Config::id_prefix, message));
        }
        let numbers = [
            (Config::page_size, self.page_size),
            (Config::batch_lookup, self.batch_lookup),
            (Config::max_parallel, self.max_parallel),
        ];
        let zeros = numbers.into_iter().filter(|(_, number)| *number == 0);
        errors.extend(zeros.map(|(key, _)| ("", key, "must be at least 1".to_owned())));
        errors.extend(self.load_balancers.errors());
        errors.extend(self.routes.errors());
        errors
    }
}

/// Whether this can be sent as a bearer token (RFC 6750).
pub(crate) fn is_bearer(token: &str) -> bool {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    !token.is_empty() && token.bytes().all(is_valid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config, ConfigErrors> {
        Config::read(&ConfigFile::from_text("local.yaml", text))
    }

    #[test]
    fn every_key_is_optional() {
        for text in ["", "# nothing\n", "{}"] {
            assert_eq!(read(text), Ok(Config::default()), "{text:?}");
        }
    }

    #[test]
    fn the_template_equals_the_defaults() {
        assert_eq!(read(&Config::template()), Ok(Config::default()));
    }

    #[test]
    fn documented_keys_are_read() {
        let text = "endpoint: http://127.0.0.1:1\nidPrefix: other\nlisting: false\npageSize: 2\nbatchLookup: 3\n\
                    maxParallel: 4\nlookupByName: false\nshutdownState: false\nzones: false\nadditionalLabels: false\n\
                    podRanges: true\n";
        let config = Config {
            endpoint: "http://127.0.0.1:1".to_owned(),
            id_prefix: "other".to_owned(),
            listing: false,
            page_size: 2,
            batch_lookup: 3,
            max_parallel: 4,
            lookup_by_name: false,
            shutdown_state: false,
            zones: false,
            additional_labels: false,
            pod_ranges: true,
            ..Config::default()
        };
        assert_eq!(read(text), Ok(config));
    }

    #[test]
    fn a_token_is_read_from_the_configuration_or_a_file_and_never_printed() {
        let config = read("token: s3cr3t\n").unwrap();
        assert_eq!(config.credential().unwrap(), Some(Secret::from("s3cr3t")));
        let printed = format!("{config:?} {}", serde_json::to_string(&config).unwrap());
        assert!(!printed.contains("s3cr3t") && printed.contains("***"), "{printed}");
        let path = std::env::temp_dir().join(format!("bowline-token-{}", std::process::id()));
        std::fs::write(&path, "fr0m-file\n").unwrap();
        let config = read(&format!("tokenFile: {}\n", path.display())).unwrap();
        assert_eq!(config.credential().unwrap(), Some(Secret::from("fr0m-file")));
        let both = read(&format!("token: s3cr3t\ntokenFile: {}\n", path.display())).unwrap_err();
        std::fs::remove_file(&path).unwrap();
        let gone = read(&format!("tokenFile: {}\n", path.display())).unwrap_err();
        for (errors, expected, line) in [
            (both, "set only one of them", 2),
            (gone, "cannot be read", 1),
            (read("token: s3cr3t\ntokenSecret: a/b\n").unwrap_err(), "set only one of them", 2),
            (read("tokenSecret: local-cloud\n").unwrap_err(), "is not NAMESPACE/NAME of a Secret", 1),
            (read("token: 's3 cr3t'\n").unwrap_err(), "is not a valid token", 1),
            (read("token: ''\n").unwrap_err(), "is not a valid token", 1),
            (read("token: [s3cr3t]\n").unwrap_err(), "expected a string", 1),
        ] {
            let text = errors.to_string();
            assert!(text.contains(expected) && !text.contains("cr3t"), "{text}");
            assert_eq!(errors.iter().next().unwrap().line, Some(line), "{text}");
        }
    }

    #[test]
    fn every_load_balancer_capability_can_be_disabled_and_limited() {
        let all = serde_json::to_value(LoadBalancerConfig::default()).unwrap();
        let full = serde_json::to_value(LoadBalancerConfig::default().capabilities()).unwrap();
        let switches = all.as_object().unwrap().iter().filter(|(key, value)| value.is_boolean() && *key != "enabled");
        for (key, _) in switches {
            let config = read(&format!("loadBalancers:\n  {key}: false\n")).unwrap();
            let left = serde_json::to_value(config.load_balancers.capabilities()).unwrap();
            assert_ne!(left, full, "{key}");
        }
        assert_eq!(read("loadBalancers: {enabled: false}").unwrap().load_balancers.capabilities(), None);
        let limits = "loadBalancers:\n  maxPorts: 3\n  maxTargets: 4\n  batchObserve: 5\n  ipFamilies: [IPv6]\n";
        let left = read(limits).unwrap().load_balancers.capabilities().unwrap();
        assert_eq!(left.batch_observe, 5);
        assert_eq!(left.kinds.iter().map(|kind| kind.name).collect::<Vec<_>>(), ["external", "internal"]);
        for kind in left.kinds {
            assert_eq!((kind.max_ports, kind.max_targets), (Some(3), Some(4)));
            assert_eq!((kind.ip_families.as_slice(), kind.dual_stack), (&[IpFamily::IPv6][..], false));
        }
    }

    #[test]
    fn load_balancer_errors_are_reported_with_their_line() {
        let text = "zones: true\nloadBalancers:\n  tcp: false\n  udp: false\n  maxPorts: 0\n  batchObserve: 0\n  \
                    ipFamilies: [IPv4, IPv4]\n";
        let errors = read(text).unwrap_err();
        let mut positions: Vec<_> = errors.iter().map(|error| (error.line, error.field.as_deref())).collect();
        positions.sort();
        let expected = [(4, "udp"), (5, "maxPorts"), (6, "batchObserve"), (7, "ipFamilies")];
        let expected = expected.map(|(line, key)| (Some(line), format!("loadBalancers.{key}")));
        assert_eq!(positions, expected.iter().map(|(line, key)| (*line, Some(key.as_str()))).collect::<Vec<_>>());
        assert!(read("loadBalancers:\n  tpc: true\n").unwrap_err().iter().any(|error| error.line == Some(2)));
    }

    #[test]
    fn routes_are_configured_and_errors_are_reported_with_their_line() {
        let text = "routes:\n  ipFamilies: [IPv6]\n  maxRoutes: 50\n  maxParallel: 3\n  nodeAddresses: true\n";
        let config = read(text).unwrap().routes;
        let (ip_families, max_routes) = (vec![IpFamily::IPv6], Some(50));
        let expected = RouteCapabilities {
            ip_families,
            max_routes,
            max_parallel: 3,
            batch: 1,
            marks_cluster_uid: true,
            knows_machines: true,
        };
        assert_eq!((config.capabilities(), config.node_addresses), (Some(expected), true));
        assert_eq!(read("routes: {enabled: false}").unwrap().routes.capabilities(), None);
        assert_eq!(read("routes: {maxRoutes: 0}").unwrap().routes.capabilities().unwrap().max_routes, None);
        let table = [
            ("routes:\n  maxParallel: 0\nmaxParallel: 1\n", "routes.maxParallel", 2),
            ("routes:\n  maxParallel: 1\nmaxParallel: 0\n", "maxParallel", 3),
            ("maxParallel: 1\nroutes:\n  maxParallel: 0\n", "routes.maxParallel", 3),
            ("{\n  \"maxParallel\": 1,\n  \"routes\": {\n    \"maxParallel\": 0\n  }\n}\n", "routes.maxParallel", 4),
            ("routes:\n  ipFamilies: []\nloadBalancers:\n  ipFamilies: [IPv4]\n", "routes.ipFamilies", 2),
            ("loadBalancers:\n  ipFamilies: [IPv4]\nroutes:\n  ipFamilies: []\n", "routes.ipFamilies", 4),
        ];
        for (text, key, line) in table {
            let errors = read(text).unwrap_err();
            let positions: Vec<_> = errors.iter().map(|error| (error.line, error.field.as_deref())).collect();
            assert_eq!(positions, [(Some(line), Some(key))], "{text}: {errors}");
        }
        assert!(read("routes:\n  maxroutes: 1\n").is_err());
    }

    #[test]
    fn all_errors_are_reported_at_once_with_their_lines() {
        let text =
            "# ours\nendpoint: https://cloud\nidPrefix: \"a://b\"\n\npageSize: 0\nbatchLookup : 0\n'maxParallel': 0\n";
        let errors = read(text).unwrap_err();
        let positions: Vec<_> = errors.iter().map(|error| (error.line, error.field.as_deref())).collect();
        let expected = [(2, "endpoint"), (3, "idPrefix"), (5, "pageSize"), (6, "batchLookup"), (7, "maxParallel")]
            .map(|(line, field)| (Some(line), Some(field)));
        assert_eq!(positions, expected, "{errors}");
        assert!(errors.to_string().starts_with("local.yaml:2: endpoint: the endpoint \"https://cloud\" does not"));
    }

    #[test]
    fn an_invalid_configuration_is_rejected_with_its_line() {
        for (text, line) in
            [("zones: true\nzone: a\n", 2), ("listing: perhaps\n", 1), ("- a\n", 1), ("pageSize: -1", 1)]
        {
            let errors = read(text).unwrap_err();
            assert_eq!(errors.iter().next().and_then(|error| error.line), Some(line), "{text:?}: {errors}");
        }
    }
}
