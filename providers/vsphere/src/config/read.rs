//! Reads the file and the environment, and reports all errors at once.

use std::path::Path;

use bowline_cloud::{BuildContext, SecretRef};
use bowline_config::table::{Format, Key, Keys, Section, Settings, View};
use bowline_config::{ConfigError, ConfigErrors, ConfigFile, Environment};
use ipnet::IpNet;

use super::format::{detect, items};
use super::keys::{Labels, Nodes, Part, Switches, Variables, table};
use super::{AddressRule, AddressRules, Config, ZoneCategories};

/// Directory with credentials that is used if it exists.
const DEFAULT_DIRECTORY: &str = "/etc/cloud/secrets";

/// Reader of one configuration, with all errors and warnings so far.
pub(super) struct Reader<'a> {
    pub(super) format: Format,
    pub(super) settings: &'a Settings,
    pub(super) environment: &'a Environment,
    pub(super) default_directory: &'a Path,
    pub(super) errors: ConfigErrors,
    pub(super) warnings: Vec<ConfigError>,
}

impl Config {
    /// Reads the file and the environment, and reports all errors at once. Makes no call.
    pub fn read(context: &BuildContext<'_>) -> Result<Config, ConfigErrors> {
        let Some(file) = context.config.filter(|file| !file.text().trim().is_empty()) else {
            let error = ConfigError::flag("cloud-config", "no vSphere cloud provider config file given");
            return Err(error.hint("name a YAML file with the vCenters, which is not empty").into());
        };
        read(file, context.environment, Path::new(DEFAULT_DIRECTORY))
    }
}

/// Reads a configuration.
pub(super) fn read(
    file: &ConfigFile,
    environment: &Environment,
    default_directory: &Path,
) -> Result<Config, ConfigErrors> {
    let format = detect(file.text());
    let (settings, errors) = table(format).check(Some(file), environment)?;
    let (of_features, errors) = split(format, &errors);
    let mut warnings = settings.warnings().to_vec();
    warnings.extend(deprecated(format, file));
    let mut reader = Reader { format, settings: &settings, environment, default_directory, errors, warnings };
    let config = reader.config(of_features);
    let Reader { errors, warnings, .. } = reader;
    if errors.is_empty() { Ok(Config { warnings, ..config }) } else { Err(errors) }
}

// upstream: the same text.
fn deprecated(format: Format, file: &ConfigFile) -> Option<ConfigError> {
    let message =
        "CPI INI-based cloud-config is deprecated and will be removed in 2.0. Please use YAML based cloud-config.";
    (format == Format::Gcfg).then(|| ConfigError::file(file.path(), None, message))
}

/// Splits errors of the sections of NSX and of agents, which only switch its features off, from all others.
fn split(format: Format, errors: &ConfigErrors) -> (Vec<ConfigError>, ConfigErrors) {
    let (mut of_features, mut others) = (Vec::new(), ConfigErrors::new());
    for error in errors.iter().cloned() {
        match error.field.as_deref().is_some_and(|field| is_of_feature(format, field)) {
            true => of_features.push(error),
            false => others.push(error),
        }
    }
    (of_features, others)
}

fn is_of_feature(format: Format, field: &str) -> bool {
    let parts = [Part::Nsx, Part::LoadBalancer, Part::Class, Part::Agent, Part::Route];
    field.starts_with("NSXT_") || parts.iter().any(|part| part.has(format, field))
}

impl<'a> Reader<'a> {
    fn config(&mut self, of_features: Vec<ConfigError>) -> Config {
        let (vcenters, secrets_directory) = self.vcenters();
        let features = self.features(of_features);
        Config {
            vcenters,
            secrets_directory,
            zone_categories: self.zone_categories(),
            addresses: self.addresses(),
            skip_node_deletion: self.environment.is_set(Switches::skip_node_deletion.name),
            nsx: features.nsx,
            load_balancers: features.load_balancers,
            agent: features.agent,
            agent_routes: features.agent_routes,
            router_path: features.router_path,
            switched_off: features.errors,
            warnings: Vec::new(),
        }
    }

    pub(super) fn view(&self, part: Part) -> View<'a> {
        self.settings.view(part.name(self.format))
    }

    /// Reads the fields of a section.
    pub(super) fn section<K: Keys>(&self, part: Part) -> K {
        self.settings.section(part.name(self.format))
    }

    pub(super) fn variables(&self) -> Variables {
        self.settings.section(Section::ENVIRONMENT)
    }

    pub(super) fn error(&mut self, error: ConfigError, hint: &str) {
        self.errors.push(error.hint(hint));
    }

    pub(super) fn warn(&mut self, warning: ConfigError, hint: &str) {
        self.warnings.push(warning.hint(hint));
    }

    /// Returns a Secret, if name and namespace are set.
    // upstream: one without the other counts as none.
    pub(super) fn secret(
        &mut self,
        [(name_key, name), (namespace_key, namespace)]: [(Key, &str); 2],
        at: impl Fn(&Key, String) -> ConfigError,
    ) -> Option<SecretRef> {
        let (set, missing) = match (name.is_empty(), namespace.is_empty()) {
            (true, true) => return None,
            (false, true) => (name_key, namespace_key),
            (true, false) => (namespace_key, name_key),
            (false, false) => {
                let secret = SecretRef::parse(&format!("{namespace}/{name}"));
                if secret.is_none() {
                    let error = at(&name_key, format!("\"{namespace}/{name}\" is not the name of a Secret"));
                    self.error(error, "write lower-case letters, digits, - and .");
                }
                return secret;
            }
        };
        let missing = missing.name_in(self.format);
        self.warn(at(&set, format!("ignored without {missing}")), "set both or none");
        None
    }

    // ---- labels, nodes

    fn zone_categories(&mut self) -> Option<ZoneCategories> {
        let Labels { zone, region } = self.section(Part::Labels);
        let (set, missing) = match (zone.is_empty(), region.is_empty()) {
            (true, true) => return None,
            (false, false) => return Some(ZoneCategories { zone, region }),
            (false, true) => (Labels::zone, "region"),
            (true, false) => (Labels::region, "zone"),
        };
        let warning =
            self.view(Part::Labels).error(&set, format!("ignored without {missing}; Nodes get no zone labels"));
        self.warn(warning, &format!("set {missing} as well"));
        None
    }

    fn addresses(&mut self) -> AddressRules {
        let nodes: Nodes = self.section(Part::Nodes);
        let internal = AddressRule {
            subnets: self.subnets(&Nodes::internal_subnets, &nodes.internal_subnets),
            excluded: self.subnets(&Nodes::excluded_internal_subnets, &nodes.excluded_internal_subnets),
            network: nodes.internal_network,
        };
        let external = AddressRule {
            subnets: self.subnets(&Nodes::external_subnets, &nodes.external_subnets),
            excluded: self.subnets(&Nodes::excluded_external_subnets, &nodes.excluded_external_subnets),
            network: nodes.external_network,
        };
        AddressRules { internal, external }
    }

    // upstream: parsed for each Node, and without trimming.
    fn subnets(&mut self, key: &Key, text: &str) -> Vec<IpNet> {
        let view = self.view(Part::Nodes);
        let mut subnets = Vec::new();
        for item in items(text) {
            match item.parse::<IpNet>() {
                Ok(subnet) => subnets.push(subnet.trunc()),
                Err(_) => {
                    let error = view.error(key, format!("invalid CIDR address: {item}"));
                    self.error(error, "write CIDRs such as 10.0.0.0/8, separated by commas");
                }
            }
        }
        subnets
    }
}
