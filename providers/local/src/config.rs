//! The provider's configuration file.

use std::path::PathBuf;

use bowline_cloud::{LoadBalancerCapabilities, LoadBalancerKind, RouteCapabilities, SecretRef};
use bowline_config::table::{Example, Format, Key, Section, Table, Unknown, keys};
use bowline_config::{ConfigErrors, ConfigFile, Environment, Secret};
use bowline_core::IpFamily;
use serde::Serialize;

use crate::client::Endpoint;

keys! {
    /// The provider's configuration file. Every key may be left out. What is switched off is off for the provider only; the
    /// cloud can still do it.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    #[serde(rename_all = "camelCase")]
    pub struct Config {
        endpoint: String = "endpoint", "http://127.0.0.1:7480", "Where the cloud listens (`bowline cloud --listen`).";
        token: Option<Secret> = "token", "",
            "What the cloud knows its users by (`bowline cloud --token-file`), if it asks.";
        token_file: Option<PathBuf> = "tokenFile", "",
            "The same in a file of its own, whose last line break does not count. It is read when the provider is built.";
        token_secret: Option<String> = "tokenSecret", "",
            "The same in the key `token` of a Kubernetes Secret, `NAMESPACE/NAME`. A change of the Secret is followed.";
        id_prefix: String = "idPrefix", "local",
            "What its provider IDs start with: two local clouds in one cluster need two.";
        listing: bool = "listing", "true", "Whether `list` is offered.";
        page_size: usize = "pageSize", "100",
            "How many machines a page of a listing is asked to hold; the cloud may send fewer.";
        batch_lookup: usize = "batchLookup", "100",
            "How many machines one lookup names; 1 asks one by one. No more than the cloud's page size.";
        max_parallel: usize = "maxParallel", "8", "How many calls may be under way at once.";
        lookup_by_name: bool = "lookupByName", "true", "Whether a node without provider ID is looked for by its name.";
        shutdown_state: bool = "shutdownState", "true", "Whether a stopped machine is told from a running one.";
        zones: bool = "zones", "true", "Whether zone and region are told.";
        additional_labels: bool = "additionalLabels", "true", "Whether further labels are told.";
        additional_annotations: bool = "additionalAnnotations", "true",
            "Whether the annotations of a machine are written to its Node.";
        tag_machines: bool = "tagMachines", "false",
            "Whether the machines of the cluster get the tag `cluster:NAME`, and lose it when their Node is gone.";
        pod_ranges: bool = "podRanges", "false",
            "Whether the pod ranges that the cloud leads to a machine are told, and can be assigned.";
        ["loadBalancers"] load_balancers: LoadBalancerConfig, "What is offered of balancing load.";
        ["routes"] routes: RouteConfig, "What is offered of leading pod ranges to machines.";
    }
}

keys! {
    /// What the provider offers of balancing load. As with all of [`Config`], what is switched off is off for the provider only.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    #[serde(rename_all = "camelCase")]
    pub struct LoadBalancerConfig {
        enabled: bool = "enabled", "true", "Whether load is balanced at all.";
        tcp: bool = "tcp", "true", "TCP ports.";
        udp: bool = "udp", "true", "UDP ports.";
        mixed_protocols: bool = "mixedProtocols", "true", "TCP and UDP ports on one balancer.";
        source_ranges: bool = "sourceRanges", "true", "Who may connect can be limited.";
        session_affinity: bool = "sessionAffinity", "true", "Connections of one client can stay together.";
        local_traffic_policy: bool = "localTrafficPolicy", "true", "Only nodes with a pod of the Service get traffic.";
        proxy_protocol: bool = "proxyProtocol", "true", "The client's address can be told to the backend.";
        requested_address: bool = "requestedAddress", "true", "The user may choose the address.";
        drain: bool = "drain", "true", "A leaving node keeps its connections for a while.";
        shared: bool = "shared", "true", "Several Services may share one address.";
        internal: bool = "internal", "true", "Balancers that are reached from inside only.";
        idle_timeout: bool = "idleTimeout", "true", "Silent connections can be closed after a chosen time.";
        health_check_settings: bool = "healthCheckSettings", "true",
            "Path, port and interval of health checks can be chosen.";
        adoption: bool = "adoption", "true", "A balancer that exists can become a Service's.";
        retention: bool = "retention", "true", "A balancer can be left behind.";
        ip_families: Vec<IpFamily> = "ipFamilies", "IPv4, IPv6", "Families of addresses.";
        dual_stack: bool = "dualStack", "true", "Two families on one balancer.";
        batch_observe: usize = "batchObserve", "100",
            "How many balancers one question is about; 1 asks one by one. No more than the cloud's page size.";
        max_ports: Option<usize> = "maxPorts", "", "Ports per balancer; without a limit if left out.";
        max_targets: Option<usize> = "maxTargets", "", "Machines per balancer; without a limit if left out.";
    }
}

keys! {
    /// What the provider offers of leading pod ranges to machines.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    #[serde(rename_all = "camelCase")]
    pub struct RouteConfig {
        enabled: bool = "enabled", "true", "Whether there are routes at all.";
        ip_families: Vec<IpFamily> = "ipFamilies", "IPv4, IPv6", "Families of addresses.";
        max_routes: Option<usize> = "maxRoutes", "", "Routes per cluster; without a limit if left out, or 0.";
        max_parallel: usize = "maxParallel", "200", "How many calls may be under way at once.";
        node_addresses: bool = "nodeAddresses", "false",
            "Whether the addresses that a route was made with are told, so that it is made anew when the Node's change.";
    }
}

impl RouteConfig {
    /// What this leaves of what the cloud can do; `None` if nothing.
    pub(crate) fn capabilities(&self) -> Option<RouteCapabilities> {
        self.enabled.then(|| RouteCapabilities {
            ip_families: self.ip_families.clone(),
            max_routes: self.limit(),
            max_parallel: self.max_parallel.max(1),
            batch: 1,
            marks_cluster_uid: true,
        })
    }

    /// How many routes a cluster may have.
    pub(crate) fn limit(&self) -> Option<usize> {
        self.max_routes.filter(|most| *most > 0)
    }

    /// The keys whose values make no sense, and what would be right.
    fn mistakes(&self) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        if self.max_parallel == 0 {
            mistakes.push((ROUTES, RouteConfig::max_parallel, "must be at least 1".to_owned()));
        }
        mistakes.extend(family_mistake(ROUTES, RouteConfig::ip_families, &self.ip_families));
        mistakes
    }
}

/// A family that is left out, or that stands there twice.
fn family_mistake(section: &'static str, key: Key, families: &[IpFamily]) -> Option<Mistake> {
    match families {
        [_] => None,
        [first, second] if first != second => None,
        _ => Some((section, key, "must be IPv4, IPv6, or both, each once".to_owned())),
    }
}

impl LoadBalancerConfig {
    /// Capabilities that this leaves; `None` if load balancers are disabled.
    pub(crate) fn capabilities(&self) -> Option<LoadBalancerCapabilities> {
        let external = self.external();
        let internal = self.internal.then(|| external.to_internal());
        let kinds = [external].into_iter().chain(internal).collect();
        let batch_observe = self.batch_observe.max(1);
        self.enabled.then_some(LoadBalancerCapabilities { marks_uid: true, batch_observe, kinds })
    }

    fn external(&self) -> LoadBalancerKind {
        LoadBalancerKind {
            name: "external",
            requested_by: &[],
            tcp: self.tcp,
            udp: self.udp,
            sctp: false,
            mixed_protocols: self.mixed_protocols && self.tcp && self.udp,
            source_ranges: self.source_ranges,
            session_affinity: self.session_affinity,
            local_traffic_policy: self.local_traffic_policy,
            proxy_protocol: self.proxy_protocol,
            requested_address: self.requested_address,
            drain: self.drain,
            shared: self.shared,
            internal: false,
            idle_timeout: self.idle_timeout,
            health_check_settings: self.health_check_settings,
            adoption: self.adoption,
            retention: self.retention,
            // Load balancers of this cloud connect to their targets; without a node port there is nothing to connect to.
            without_node_ports: false,
            ip_families: self.ip_families.clone(),
            dual_stack: self.dual_stack && self.ip_families.len() > 1,
            first_family: false,
            max_ports: self.max_ports,
            max_targets: self.max_targets,
        }
    }

    /// The keys whose values make no sense, and what would be right.
    fn mistakes(&self) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        let numbers = [
            (LoadBalancerConfig::batch_observe, Some(self.batch_observe)),
            (LoadBalancerConfig::max_ports, self.max_ports),
            (LoadBalancerConfig::max_targets, self.max_targets),
        ];
        let zeros = numbers.into_iter().filter(|(_, number)| *number == Some(0));
        mistakes.extend(zeros.map(|(key, _)| (LOAD_BALANCERS, key, "must be at least 1".to_owned())));
        if self.enabled && !self.tcp && !self.udp {
            let message = "neither TCP nor UDP is left; set one of them to true, or loadBalancers.enabled to false";
            mistakes.push((LOAD_BALANCERS, LoadBalancerConfig::udp, message.to_owned()));
        }
        mistakes.extend(family_mistake(LOAD_BALANCERS, LoadBalancerConfig::ip_families, &self.ip_families));
        mistakes
    }
}

/// A key with an invalid value, by its section, and what would be right.
type Mistake = (&'static str, Key, String);

const LOAD_BALANCERS: &str = "loadBalancers";
const ROUTES: &str = "routes";

/// What the file may say.
fn table() -> Table {
    Table { format: Format::Yaml, unknown: Unknown::Refuse, sections: Section::document::<Config>() }
}

/// The reference page.
pub(crate) fn reference() -> String {
    HEAD.to_owned() + &table().reference()
}

const HEAD: &str = "\
# The local cloud: configuration

<!-- Made by `cargo xtask generate` from providers/local/src/config.rs; change that instead. -->

The YAML or JSON file that `--cloud-config` names for `--cloud-provider=local`. Every key may be left out. A capability that is switched \
off is off for the provider only; the cloud still has it.
";

impl Config {
    /// A file to start from.
    pub(crate) fn template() -> String {
        table().template(&[("", &[Example::Set(Config::endpoint, Config::endpoint.default)])])
    }

    /// Reads the file and reports everything that is wrong with it.
    pub fn read(file: &ConfigFile) -> Result<Config, ConfigErrors> {
        let settings = table().read(Some(file), &Environment::default())?;
        let config: Config = settings.section("");
        let mut problems = ConfigErrors::new();
        for (section, key, message) in config.mistakes().into_iter().chain(config.token_mistake()) {
            problems.push(settings.view(section).problem(&key, message));
        }
        if problems.is_empty() { Ok(config) } else { Err(problems) }
    }

    /// What the cloud knows us by. The file is read anew each time.
    pub(crate) fn credential(&self) -> std::io::Result<Option<Secret>> {
        match &self.token_file {
            None => Ok(self.token.clone()),
            Some(path) => {
                let text = std::fs::read_to_string(path)?;
                Ok(Some(Secret::from(text.trim_end_matches(['\n', '\r']))))
            }
        }
    }

    /// Nothing of a credential is quoted.
    fn token_mistake(&self) -> Option<Mistake> {
        let key = if self.token_file.is_some() { Config::token_file } else { Config::token };
        if self.token.is_some() && self.token_file.is_some() {
            return Some(("", key, "is given beside token; one of them is enough".to_owned()));
        }
        if let Some(secret) = &self.token_secret {
            let key = Config::token_secret;
            if self.token.is_some() || self.token_file.is_some() {
                return Some(("", key, "is given beside token or tokenFile; one of them is enough".to_owned()));
            }
            return match SecretRef::parse(secret) {
                None => Some(("", key, format!("{secret:?} is no name of a Secret; kube-system/local-cloud is one"))),
                Some(_) => None,
            };
        }
        match self.credential() {
            Err(error) => Some(("", key, format!("cannot be read ({error}); name a file with the token in it"))),
            Ok(Some(token)) if !is_bearer(token.reveal()) => {
                Some(("", key, "is no token: it must be one word of letters, digits and -._~+/=".to_owned()))
            }
            Ok(_) => None,
        }
    }

    /// The keys whose values make no sense, and what would be right.
    fn mistakes(&self) -> Vec<Mistake> {
        let prefix = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'+');
        let mut mistakes = Vec::new();
        if let Err(error) = Endpoint::parse(&self.endpoint) {
            mistakes.push(("", Config::endpoint, error.message().to_owned()));
        }
        if self.id_prefix.is_empty() || !self.id_prefix.bytes().all(prefix) {
            let message =
                format!("{:?} cannot stand before \"://\"; use letters, digits, '-', '.', '+'", self.id_prefix);
            mistakes.push(("", Config::id_prefix, message));
        }
        let numbers = [
            (Config::page_size, self.page_size),
            (Config::batch_lookup, self.batch_lookup),
            (Config::max_parallel, self.max_parallel),
        ];
        let zeros = numbers.into_iter().filter(|(_, number)| *number == 0);
        mistakes.extend(zeros.map(|(key, _)| ("", key, "must be at least 1".to_owned())));
        mistakes.extend(self.load_balancers.mistakes());
        mistakes.extend(self.routes.mistakes());
        mistakes
    }
}

/// Whether this can be sent as a bearer token (RFC 6750).
pub(crate) fn is_bearer(token: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    !token.is_empty() && token.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config, ConfigErrors> {
        Config::read(&ConfigFile::from_text("local.yaml", text))
    }

    #[test]
    fn every_key_may_be_left_out() {
        for text in ["", "# nothing\n", "{}"] {
            assert_eq!(read(text), Ok(Config::default()), "{text:?}");
        }
    }

    #[test]
    fn the_template_is_what_holds_without_a_file() {
        assert_eq!(read(&Config::template()), Ok(Config::default()));
    }

    #[test]
    fn keys_are_read_as_they_are_documented() {
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
    fn a_token_stands_in_the_file_or_in_one_of_its_own_and_is_never_printed() {
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
        for (problems, says, line) in [
            (both, "one of them is enough", 2),
            (gone, "cannot be read", 1),
            (read("token: s3cr3t\ntokenSecret: a/b\n").unwrap_err(), "one of them is enough", 2),
            (read("tokenSecret: local-cloud\n").unwrap_err(), "is no name of a Secret", 1),
            (read("token: 's3 cr3t'\n").unwrap_err(), "is no token", 1),
            (read("token: ''\n").unwrap_err(), "is no token", 1),
            (read("token: [s3cr3t]\n").unwrap_err(), "a text is wanted", 1),
        ] {
            let text = problems.to_string();
            assert!(text.contains(says) && !text.contains("cr3t"), "{text}");
            assert_eq!(problems.iter().next().unwrap().line, Some(line), "{text}");
        }
    }

    #[test]
    fn every_capability_of_balancers_can_be_switched_off_and_limits_lowered() {
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
    fn what_is_wrong_with_balancers_is_told_with_its_line() {
        let text = "zones: true\nloadBalancers:\n  tcp: false\n  udp: false\n  maxPorts: 0\n  batchObserve: 0\n  \
                    ipFamilies: [IPv4, IPv4]\n";
        let problems = read(text).unwrap_err();
        let mut places: Vec<_> = problems.iter().map(|problem| (problem.line, problem.field.as_deref())).collect();
        places.sort();
        let wanted = [(4, "udp"), (5, "maxPorts"), (6, "batchObserve"), (7, "ipFamilies")];
        let wanted = wanted.map(|(line, key)| (Some(line), format!("loadBalancers.{key}")));
        assert_eq!(places, wanted.iter().map(|(line, key)| (*line, Some(key.as_str()))).collect::<Vec<_>>());
        assert!(read("loadBalancers:\n  tpc: true\n").unwrap_err().iter().any(|problem| problem.line == Some(2)));
    }

    #[test]
    fn routes_are_configured_and_what_is_wrong_with_them_is_told_with_its_line() {
        let text = "routes:\n  ipFamilies: [IPv6]\n  maxRoutes: 50\n  maxParallel: 3\n  nodeAddresses: true\n";
        let config = read(text).unwrap().routes;
        let (ip_families, max_routes) = (vec![IpFamily::IPv6], Some(50));
        let wanted = RouteCapabilities { ip_families, max_routes, max_parallel: 3, batch: 1, marks_cluster_uid: true };
        assert_eq!((config.capabilities(), config.node_addresses), (Some(wanted), true));
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
            let problems = read(text).unwrap_err();
            let places: Vec<_> = problems.iter().map(|problem| (problem.line, problem.field.as_deref())).collect();
            assert_eq!(places, [(Some(line), Some(key))], "{text}: {problems}");
        }
        assert!(read("routes:\n  maxroutes: 1\n").is_err());
    }

    #[test]
    fn all_that_is_wrong_is_told_at_once_with_its_line() {
        let text =
            "# ours\nendpoint: https://cloud\nidPrefix: \"a://b\"\n\npageSize: 0\nbatchLookup : 0\n'maxParallel': 0\n";
        let problems = read(text).unwrap_err();
        let places: Vec<_> = problems.iter().map(|problem| (problem.line, problem.field.as_deref())).collect();
        let wanted = [(2, "endpoint"), (3, "idPrefix"), (5, "pageSize"), (6, "batchLookup"), (7, "maxParallel")]
            .map(|(line, field)| (Some(line), Some(field)));
        assert_eq!(places, wanted, "{problems}");
        assert!(problems.to_string().starts_with("local.yaml:2: endpoint: the endpoint \"https://cloud\" does not"));
    }

    #[test]
    fn what_is_not_a_configuration_is_refused_with_its_line() {
        for (text, line) in
            [("zones: true\nzone: a\n", 2), ("listing: perhaps\n", 1), ("- a\n", 1), ("pageSize: -1", 1)]
        {
            let problems = read(text).unwrap_err();
            assert_eq!(problems.iter().next().and_then(|problem| problem.line), Some(line), "{text:?}: {problems}");
        }
    }
}
