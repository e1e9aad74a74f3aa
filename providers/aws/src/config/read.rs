//! Reads the file and the environment, and reports all errors at once.

use std::sync::OnceLock;

use bowline_cloud::BuildContext;
use bowline_config::table::{Settings, View};
use bowline_config::{ConfigError, ConfigErrors, Environment};
use bowline_core::IpFamily;
use regex::Regex;

use super::keys::{GLOBAL, Global, OVERRIDE, Override, Variables, table};
use super::{Config, ServiceOverride};

impl Config {
    /// Reads the file and the environment. Makes no call.
    pub fn read(context: &BuildContext<'_>) -> Result<Config, ConfigErrors> {
        let (settings, errors) = table().check(context.config, context.environment)?;
        let warnings = settings.warnings().to_vec();
        let mut reader = Reader { view: settings.view(GLOBAL), errors, warnings };
        let config = reader.config(&settings);
        let Reader { errors, warnings, .. } = reader;
        if errors.is_empty() { Ok(Config { warnings, ..config }) } else { Err(errors) }
    }
}

impl Default for Config {
    fn default() -> Config {
        let read = table().read(None, &Environment::default());
        let settings = read.unwrap_or_default();
        let mut reader = Reader { view: settings.view(GLOBAL), errors: ConfigErrors::new(), warnings: Vec::new() };
        reader.config(&settings)
    }
}

/// Returns the region of an availability zone; `None` if the name has another form.
pub(crate) fn region_of_zone(zone: &str) -> Option<&str> {
    static REGION: OnceLock<Option<Regex>> = OnceLock::new();
    // upstream: the same expression. It also finds the region of a local zone, such as us-west-2-lax-1a.
    let region = REGION.get_or_init(|| Regex::new(r"^([a-zA-Z]+-)+\d+").ok()).as_ref()?;
    region.find(zone).map(|found| found.as_str())
}

/// Returns the account of an ARN, or the reason why the text is none.
// upstream: the texts of the AWS SDK for Go.
pub(crate) fn account_of(arn: &str) -> Result<&str, &'static str> {
    if !arn.starts_with("arn:") {
        return Err("arn: invalid prefix");
    }
    let sections: Vec<_> = arn.splitn(6, ':').collect();
    match sections.as_slice() {
        [_, _, _, _, account, _] => Ok(account),
        _ => Err("arn: not enough sections"),
    }
}

struct Reader<'a> {
    view: View<'a>,
    errors: ConfigErrors,
    warnings: Vec<ConfigError>,
}

impl Reader<'_> {
    fn config(&mut self, settings: &Settings) -> Config {
        let global: Global = settings.section(GLOBAL);
        let Variables { endpoints, credentials } = settings.section(bowline_config::table::Section::ENVIRONMENT);
        self.check_cluster(&global);
        self.check_role(&global.role_arn);
        Config {
            region: self.region(&global),
            node_ip_families: self.families(&global.node_ip_families),
            health_probe_port: self.port(global.health_probe_port),
            health_probe_path: global.health_probe_path,
            topology_types: self.topology_types(&global.topology_types),
            overrides: self.overrides(settings),
            vpc: global.vpc,
            subnet_id: global.subnet_id,
            route_table_id: global.route_table_id,
            role_arn: global.role_arn,
            source_arn: global.source_arn,
            cluster_tag: global.cluster_tag,
            cluster_id: global.cluster_id,
            disable_security_group_ingress: global.disable_security_group_ingress,
            elb_security_group: global.elb_security_group,
            health_probe_mode: global.health_probe_mode,
            nlb_security_group_mode: global.nlb_security_group_mode,
            endpoints,
            credentials,
            warnings: Vec::new(),
        }
    }

    fn region(&mut self, global: &Global) -> String {
        let (zone, region) = (global.zone.as_str(), global.region.as_str());
        if zone.is_empty() {
            return region.to_owned();
        }
        region_of_zone(zone).map(str::to_owned).unwrap_or_else(|| {
            let error = self.view.error(&Global::zone, format!("invalid AZ: {zone}"));
            self.errors.push(error.hint("write an availability zone such as eu-west-1a, or remove it and set Region"));
            String::new()
        })
    }

    fn check_cluster(&mut self, global: &Global) {
        let (tag, id) = (&global.cluster_tag, &global.cluster_id);
        if !tag.is_empty() && !id.is_empty() && tag != id {
            let error =
                self.view.error(&Global::cluster_tag, format!("clusterID tags did not match: {id:?} vs {tag:?}"));
            self.errors.push(error.hint("write the same ID in KubernetesClusterID, or remove one of them"));
        }
    }

    fn check_role(&mut self, arn: &str) {
        if let Some(reason) = account_of(arn).err().filter(|_| !arn.is_empty()) {
            let error = self.view.error(&Global::role_arn, format!("unable to create sts v2 client: {reason}"));
            self.errors.push(error.hint("write arn:aws:iam::ACCOUNT:role/NAME"));
        }
    }

    fn families(&mut self, written: &[String]) -> Vec<IpFamily> {
        let mut families = Vec::new();
        for text in written {
            match text.as_str() {
                "ipv4" => families.push(IpFamily::IPv4),
                "ipv6" => families.push(IpFamily::IPv6),
                other => {
                    let warning = self.view.error(&Global::node_ip_families, format!("{other:?} is ignored"));
                    self.warnings.push(warning.hint("write ipv4 or ipv6"));
                }
            }
        }
        // upstream: a Node would have no address if all values are unknown.
        if families.is_empty() { vec![IpFamily::IPv4] } else { families }
    }

    /// Returns the port; zero means the default, as in the Go manager.
    fn port(&mut self, written: i64) -> u16 {
        const DEFAULT: u16 = 10256;
        match u16::try_from(written) {
            Ok(0) => DEFAULT,
            Ok(port) => port,
            Err(_) => {
                let error = self.view.error(&Global::health_probe_port, format!("{written} is not a port"));
                self.errors.push(error.hint("write a number from 1 to 65535"));
                DEFAULT
            }
        }
    }

    /// Compiles the expression.
    // upstream: an invalid one is a panic.
    fn topology_types(&mut self, pattern: &str) -> Option<Regex> {
        if pattern.is_empty() {
            return None;
        }
        let compiled = Regex::new(pattern);
        compiled
            .map_err(|error| {
                // The expression is quoted in the last line of several.
                let message = error.to_string();
                let cause = message.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
                let error = self.view.error(&Global::topology_types, format!("is not a regular expression: {cause}"));
                self.errors.push(error.hint("remove it to use the default"));
            })
            .ok()
    }

    // ---- [ServiceOverride]

    fn overrides(&mut self, settings: &Settings) -> Vec<ServiceOverride> {
        let mut overrides: Vec<ServiceOverride> = Vec::new();
        for (name, view) in settings.views(OVERRIDE) {
            let written: Override = bowline_config::table::Keys::read(&view);
            let Some(found) = self.check_override(name, &view, &written) else { continue };
            if overrides.iter().any(|known| (&known.service, &known.region) == (&found.service, &found.region)) {
                let (service, region) = (&found.service, &found.region);
                let message = format!("duplicate entry found for service override [{name}] ({service} in {region})");
                self.override_error(&view, &Override::service, &message);
                continue;
            }
            overrides.push(found);
        }
        overrides
    }

    fn check_override(&mut self, name: &str, view: &View<'_>, written: &Override) -> Option<ServiceOverride> {
        let Override { service, region, url, signing_region, signing_name, .. } = written;
        let required = [
            (service, Override::service, "service name is missing [Service is \"\"]"),
            (region, Override::region, "service region is missing [Region is \"\"]"),
            (url, Override::url, "url is missing [URL is \"\"]"),
            (signing_region, Override::signing_region, "signingRegion is missing [SigningRegion is \"\"]"),
        ];
        // upstream: the first missing key of a section is reported.
        if let Some((_, key, text)) = required.into_iter().find(|(value, ..)| value.trim().is_empty()) {
            self.override_error(view, &key, &format!("{text} in override {name}"));
            return None;
        }
        if !is_url(url) {
            self.override_error(view, &Override::url, &format!("{url:?} is not an http:// or https:// URL"));
            return None;
        }
        Some(ServiceOverride {
            service: service.trim().to_owned(),
            region: region.trim().to_owned(),
            url: url.trim().to_owned(),
            signing_region: signing_region.trim().to_owned(),
            signing_name: signing_name.trim().to_owned(),
        })
    }

    fn override_error(&mut self, view: &View<'_>, key: &bowline_config::table::Key, message: &str) {
        let message = format!("unable to validate custom endpoint overrides: {message}");
        self.errors.push(view.error(key, message));
    }
}

/// Returns whether this is an absolute URL of HTTP or HTTPS.
pub(super) fn is_url(text: &str) -> bool {
    let uri = text.trim().parse::<http::Uri>().ok();
    uri.is_some_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty())
    })
}
