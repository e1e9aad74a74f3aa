//! Configuration: the environment variables of the Go manager, or a file with the same settings.

use std::path::PathBuf;

use bowline_cloud::{BuildContext, EnvironmentVariable, SecretKey};
use bowline_config::table::{Example, Format, Key, Keys as _, Section, Table, UnknownKeys, View, keys};
use bowline_config::{ConfigError, ConfigErrors, Secret};

use crate::load_balancers::LoadBalancerType;

/// Base URL of the public API.
const PUBLIC_API: &str = "https://api.digitalocean.com";

keys! {
    /// Settings, each with its environment variable.
    #[derive(Debug, Clone)]
    pub(crate) struct Keys {
        token: Secret = "token" env "DO_ACCESS_TOKEN", "", "API token. Required, unless `token-file` is set.";
        token_file: PathBuf = "token-file", "",
            "File with the API token, such as a mounted Secret. A new token in the file is used without a restart.";
        url: String = "url" env "DO_OVERRIDE_URL", "https://api.digitalocean.com", "Base URL of the API; a path before `/v2` is kept.";
        cluster_id: String = "cluster-id" env "DO_CLUSTER_ID", "",
            "ID of the cluster. Load balancers get the tag `k8s:ID`, and the loop `tags` adds it to existing ones.";
        vpc_id: String = "vpc-id" env "DO_CLUSTER_VPC_ID", "", "VPC of the load balancers. Default: that of the region.";
        region: String = "region" env "REGION", "", "Region of the load balancers. Default: the region of this Droplet, from its metadata service.";
        rate_limit: String = "rate-limit" env "DO_API_RATE_LIMIT_QPS", "",
            "Maximum number of API calls per second, such as `2.5`. Default: no limit beyond `--cloud-qps`.";
        default_type: String = "default-load-balancer-type" env "DEFAULT_LB_TYPE", "REGIONAL_NETWORK",
            "Type of load balancers whose Service sets none: `REGIONAL` or `REGIONAL_NETWORK`.";
        firewall_name: String = "firewall-name" env "PUBLIC_ACCESS_FIREWALL_NAME", "",
            "Name of the cloud firewall to manage. With a name, the loop `firewall` opens the ports of Services in it.";
        firewall_tags: String = "firewall-tags" env "PUBLIC_ACCESS_FIREWALL_TAGS", "",
            "Tags of the Droplets that the firewall applies to, separated by commas. Required with `firewall-name`.";
        debug_address: String = "debug-address" env "DEBUG_ADDR", "",
            "`host:port` of a plain HTTP server whose `/healthz` calls the API.";
        metrics_address: String = "metrics-address" env "METRICS_ADDR", "",
            "`host:port` of a plain HTTP server with `/metrics`.";
    }
}

/// Configuration of the provider.
#[derive(Debug, Clone)]
pub struct Config {
    /// Base URL of the API.
    pub url: String,
    /// API token.
    pub token: Secret,
    /// Cluster ID; empty if load balancers get no tag.
    pub cluster_id: String,
    /// VPC of the load balancers; empty for that of the region.
    pub vpc_id: String,
    /// Region; empty for that of this Droplet.
    pub region: String,
    /// URL of the metadata service, which has the region of this Droplet.
    pub metadata_url: String,
    pub(crate) rate_limit: Option<f64>,
    pub(crate) default_type: LoadBalancerType,
    /// Cloud firewall to manage.
    pub firewall: Option<ManagedFirewall>,
    pub(crate) debug_address: String,
    pub(crate) metrics_address: String,
    pub(crate) files: Vec<PathBuf>,
    pub(crate) warnings: Vec<ConfigError>,
}

/// The cloud firewall that the loop `firewall` manages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManagedFirewall {
    /// Name of the firewall.
    pub name: String,
    /// Tags of the Droplets that it applies to.
    pub tags: Vec<String>,
}

/// Address of the metadata service on a Droplet.
const METADATA: &str = "http://169.254.169.254";

fn table() -> Table {
    Table { format: Format::Yaml, unknown: UnknownKeys::Warn, sections: Section::document::<Keys>() }
}

/// Returns a commented example file.
pub(crate) fn template() -> String {
    use Example::{Optional, Set};
    table().template(&[(
        "",
        &[
            Set(Keys::token, "change-me"),
            Optional(Keys::cluster_id, "ID"),
            Optional(Keys::vpc_id, "ID"),
            Optional(Keys::region, "fra1"),
            Optional(Keys::firewall_name, "k8s-public-access"),
            Optional(Keys::firewall_tags, "k8s:worker"),
        ],
    )])
}

/// Returns the environment variables. The Go manager's manifests have the token in this Secret.
pub(crate) fn environment() -> Vec<EnvironmentVariable> {
    let token = |name| (name == "DO_ACCESS_TOKEN").then_some(SecretKey { name: "digitalocean", key: "access-token" });
    let keys = Keys::keys().into_iter();
    let variables = keys.flat_map(|key| key.env.iter().map(move |name| (*name, key.doc)));
    variables.map(|(name, summary)| EnvironmentVariable { name, summary, secret: token(name) }).collect()
}

/// Returns the reference page.
pub(crate) fn reference() -> String {
    HEAD.to_owned() + &table().reference()
}

const HEAD: &str = "\
# DigitalOcean: configuration

<!-- Generated by `cargo xtask generate` from providers/digitalocean/src/config.rs; edit that file instead. -->

With `--cloud-provider=digitalocean`, settings come from the environment variables of digitalocean-cloud-controller-manager, or from \
the YAML file of `--cloud-config`, which is optional. A variable takes precedence over the file. Values are not trimmed. \
`HTTPS_PROXY`, `HTTP_PROXY`, `NO_PROXY` and `SSL_CERT_FILE` apply as to every provider; see [the guide](../guides/digitalocean.md) \
for an example.

";

impl Default for Config {
    /// The public API without a token.
    fn default() -> Config {
        Config {
            url: PUBLIC_API.to_owned(),
            token: Secret::default(),
            cluster_id: String::new(),
            vpc_id: String::new(),
            region: String::new(),
            metadata_url: METADATA.to_owned(),
            rate_limit: None,
            default_type: LoadBalancerType::RegionalNetwork,
            firewall: None,
            debug_address: String::new(),
            metrics_address: String::new(),
            files: Vec::new(),
            warnings: Vec::new(),
        }
    }
}

impl Config {
    /// Reads the environment and the file, and reports all errors at once.
    pub fn read(context: &BuildContext<'_>) -> Result<Config, ConfigErrors> {
        let (settings, errors) = table().check(context.config, context.environment)?;
        let mut reader = Reader { view: settings.view(""), errors, warnings: settings.warnings().to_vec() };
        let config = reader.config(settings.section(""));
        let Reader { errors, warnings, .. } = reader;
        if errors.is_empty() { Ok(Config { warnings, ..config }) } else { Err(errors) }
    }

    /// Returns the tag of this cluster's load balancers; `None` without a cluster ID.
    pub(crate) fn cluster_tag(&self) -> Option<String> {
        (!self.cluster_id.is_empty()).then(|| format!("{TAG_PREFIX}{}", self.cluster_id))
    }
}

/// Prefix of the tags that name a cluster.
pub(crate) const TAG_PREFIX: &str = "k8s:";

struct Reader<'a> {
    view: View<'a>,
    errors: ConfigErrors,
    warnings: Vec<ConfigError>,
}

impl Reader<'_> {
    fn config(&mut self, keys: Keys) -> Config {
        Config {
            token: self.token(&keys),
            url: self.url(&keys.url),
            rate_limit: self.rate_limit(&keys.rate_limit),
            default_type: self.default_type(&keys.default_type),
            firewall: self.firewall(&keys),
            metrics_address: self.metrics_address(&keys.metrics_address),
            cluster_id: keys.cluster_id,
            vpc_id: keys.vpc_id,
            region: keys.region,
            debug_address: keys.debug_address,
            files: Some(keys.token_file).filter(|file| !file.as_os_str().is_empty()).into_iter().collect(),
            ..Config::default()
        }
    }

    fn error(&mut self, key: &Key, message: impl Into<String>, hint: &str) {
        self.errors.push(self.view.error(key, message).hint(hint));
    }

    fn token(&mut self, keys: &Keys) -> Secret {
        let has_file = !keys.token_file.as_os_str().is_empty();
        match (keys.token.is_empty(), has_file) {
            (false, false) => return keys.token.clone(),
            (false, true) => self.error(&Keys::token_file, "the token is set as well", "set only one of them"),
            (true, false) => self.error(
                &Keys::token,
                "environment variable \"DO_ACCESS_TOKEN\" is required",
                "set it, or token or token-file in the file of --cloud-config",
            ),
            (true, true) => match std::fs::read_to_string(&keys.token_file) {
                Ok(text) if !text.trim().is_empty() => return text.trim().into(),
                Ok(_) => self.error(&Keys::token_file, "the file is empty", "write the API token to it"),
                Err(error) => self.error(
                    &Keys::token_file,
                    format!("cannot read {}: {error}", keys.token_file.display()),
                    "check the path and its permissions",
                ),
            },
        }
        Secret::default()
    }

    fn url(&mut self, url: &str) -> String {
        let uri = url.parse::<http::Uri>().ok();
        let is_valid =
            uri.is_some_and(|uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some());
        if !is_valid {
            self.error(&Keys::url, format!("{url:?} is not an http:// or https:// URL"), "write https://HOST");
        }
        url.to_owned()
    }

    fn rate_limit(&mut self, text: &str) -> Option<f64> {
        let rate = text.parse::<f64>().ok().filter(|rate| rate.is_finite() && *rate > 0.0);
        if !text.is_empty() && rate.is_none() {
            let message = format!(
                "failed to parse value from environment variable DO_API_RATE_LIMIT_QPS: {text:?} is not a number above 0"
            );
            self.error(&Keys::rate_limit, message, "write the calls per second, such as 2.5");
        }
        rate
    }

    // upstream: an unknown type is ignored without a word.
    fn default_type(&mut self, text: &str) -> LoadBalancerType {
        LoadBalancerType::parse(text).unwrap_or_else(|| {
            let message = format!("{text:?} is not REGIONAL or REGIONAL_NETWORK; REGIONAL_NETWORK is used");
            self.warnings.push(self.view.error(&Keys::default_type, message));
            LoadBalancerType::RegionalNetwork
        })
    }

    fn firewall(&mut self, keys: &Keys) -> Option<ManagedFirewall> {
        let missing = |variable| format!("environment variable {variable:?} is required when managing firewalls");
        match (keys.firewall_name.as_str(), keys.firewall_tags.as_str()) {
            ("", "") => None,
            ("", _) => {
                self.error(&Keys::firewall_name, missing("PUBLIC_ACCESS_FIREWALL_NAME"), "set both or none");
                None
            }
            (_, "") => {
                self.error(&Keys::firewall_tags, missing("PUBLIC_ACCESS_FIREWALL_TAGS"), "set both or none");
                None
            }
            (name, tags) => {
                Some(ManagedFirewall { name: name.to_owned(), tags: tags.split(',').map(str::to_owned).collect() })
            }
        }
    }

    fn metrics_address(&mut self, address: &str) -> String {
        let is_valid = address.rsplit_once(':').is_some_and(|(host, port)| {
            port.parse::<u16>().is_ok() && (!host.contains(':') || (host.starts_with('[') && host.ends_with(']')))
        });
        if !address.is_empty() && !is_valid {
            let message = format!(
                "environment variable \"METRICS_ADDR\" requires host and port in the format <host>:<port> when exposing metrics: {address:?}"
            );
            self.error(&Keys::metrics_address, message, "write HOST:PORT, such as 127.0.0.1:9091");
        }
        address.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use bowline_cloud::BuildInputs;
    use bowline_config::{ConfigFile, Environment};

    use super::*;

    fn read(variables: &[(&str, &str)], file: &str) -> Result<Config, String> {
        let environment = Environment::from_iter(variables.iter().copied());
        let inputs = BuildInputs { environment, ..BuildInputs::default() };
        let (file, cluster) = (ConfigFile::from_text("do.yaml", file), "kubernetes".into());
        let file = Some(&file).filter(|_| !file.text().is_empty());
        Config::read(&inputs.context(file, &cluster)).map_err(|errors| errors.to_string())
    }

    #[test]
    fn variables_have_precedence_over_the_file() {
        let config =
            read(&[("DO_ACCESS_TOKEN", "a"), ("REGION", "fra1")], "region: nyc1\ncluster-id: c1\ntoken: b\n").unwrap();
        assert_eq!((config.region.as_str(), config.token.reveal()), ("fra1", "a"));
        assert_eq!(config.cluster_tag().as_deref(), Some("k8s:c1"));
        assert_eq!((config.url.as_str(), config.default_type), (PUBLIC_API, LoadBalancerType::RegionalNetwork));
    }

    #[test]
    fn values_are_not_trimmed_and_firewall_tags_are_split_at_commas() {
        let variables =
            [("DO_ACCESS_TOKEN", "a"), ("PUBLIC_ACCESS_FIREWALL_NAME", "fw"), ("PUBLIC_ACCESS_FIREWALL_TAGS", "a, b")];
        let firewall = read(&variables, "").unwrap().firewall.unwrap();
        assert_eq!((firewall.name.as_str(), firewall.tags), ("fw", vec!["a".to_owned(), " b".to_owned()]));
    }

    #[test]
    fn every_error_names_the_variable_as_upstream_does() {
        let token = ("DO_ACCESS_TOKEN", "a");
        let cases: &[(&[(&str, &str)], &str)] = &[
            (&[], "environment variable \"DO_ACCESS_TOKEN\" is required"),
            (&[token, ("DO_OVERRIDE_URL", "::")], "is not an http:// or https:// URL"),
            (
                &[token, ("DO_API_RATE_LIMIT_QPS", "x")],
                "failed to parse value from environment variable DO_API_RATE_LIMIT_QPS",
            ),
            (&[token, ("DO_API_RATE_LIMIT_QPS", "0")], "is not a number above 0"),
            (
                &[token, ("PUBLIC_ACCESS_FIREWALL_NAME", "f")],
                "environment variable \"PUBLIC_ACCESS_FIREWALL_TAGS\" is required when managing firewalls",
            ),
            (
                &[token, ("PUBLIC_ACCESS_FIREWALL_TAGS", "f")],
                "environment variable \"PUBLIC_ACCESS_FIREWALL_NAME\" is required when managing firewalls",
            ),
            (&[token, ("METRICS_ADDR", "9091")], "environment variable \"METRICS_ADDR\" requires host and port"),
        ];
        for (variables, expected) in cases {
            let error = read(variables, "").unwrap_err();
            assert!(error.contains(expected), "{variables:?}: {error}");
        }
    }

    #[test]
    fn an_unknown_default_type_is_ignored_with_a_warning() {
        let config = read(&[("DO_ACCESS_TOKEN", "a"), ("DEFAULT_LB_TYPE", "regional")], "").unwrap();
        assert_eq!((config.default_type, config.warnings.len()), (LoadBalancerType::RegionalNetwork, 1));
        let config = read(&[("DO_ACCESS_TOKEN", "a"), ("DEFAULT_LB_TYPE", "REGIONAL")], "").unwrap();
        assert_eq!((config.default_type, config.warnings.len()), (LoadBalancerType::Regional, 0));
    }

    #[test]
    fn the_token_can_be_in_a_file() {
        let file = std::env::temp_dir().join(format!("bowline-do-token-{}", std::process::id()));
        std::fs::write(&file, "secret\n").unwrap();
        let config = read(&[], &format!("token-file: {}\n", file.display())).unwrap();
        assert_eq!((config.token.reveal(), config.files.as_slice()), ("secret", std::slice::from_ref(&file)));
        let error = read(&[("DO_ACCESS_TOKEN", "a")], &format!("token-file: {}\n", file.display())).unwrap_err();
        std::fs::remove_file(&file).unwrap();
        assert!(error.contains("the token is set as well"), "{error}");
        assert!(read(&[], &format!("token-file: {}\n", file.display())).unwrap_err().contains("cannot read"));
    }

    #[test]
    fn the_template_is_valid() {
        let config = read(&[], &template()).unwrap();
        assert_eq!((config.token.reveal(), config.warnings.len()), ("change-me", 0));
    }
}
