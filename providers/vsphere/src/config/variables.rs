//! vCenters that environment variables define.
//!
//! ```text
//!  VSPHERE_VCENTER_ID=NAME      adds the vCenter NAME, or replaces it
//!  VCENTER_ID_USERNAME, …       its settings
//!  VSPHERE_USER, …              their defaults, before those of the file
//! ```

use std::fmt::Display;
use std::str::FromStr;

use bowline_config::{ConfigError, Environment, Secret};

use super::format::{host, items};
use super::keys::{Connection, Variables};
use super::read::Reader;
use super::vcenters::{Inherited, ca_files};
use super::{CredentialSource, VcenterConfig};

/// Prefix of the variables that define a vCenter.
const DEFINES: &str = "VSPHERE_VCENTER_";

/// Variables of one vCenter.
struct Own<'a> {
    environment: &'a Environment,
    id: &'a str,
}

impl<'a> Own<'a> {
    fn name(&self, setting: &str) -> String {
        format!("VCENTER_{}_{setting}", self.id)
    }

    fn get(&self, setting: &str) -> Option<&'a str> {
        self.environment.get(&self.name(setting))
    }

    fn error(&self, setting: &str, message: impl Into<String>) -> ConfigError {
        ConfigError::new(message).field(self.name(setting))
    }
}

impl Reader<'_> {
    /// Returns the vCenters that variables define, each name once.
    pub(super) fn of_variables(&mut self, inherited: &Inherited) -> Vec<VcenterConfig> {
        let environment = self.environment;
        let base = self.defaults_of_variables(&inherited.base);
        // upstream: the variable of the port defines a vCenter that is called like the port.
        let defined = environment.with_prefix(DEFINES).filter(|(id, _)| !id.is_empty() && *id != "PORT");
        let mut vcenters: Vec<VcenterConfig> = Vec::new();
        for (id, name) in defined {
            let vcenter = self.of_variable(&Own { environment, id }, name, &base, inherited);
            vcenters.retain(|known| known.name != vcenter.name);
            vcenters.push(vcenter);
        }
        vcenters
    }

    /// Returns the defaults: the connection of the file, with the variables that replace it.
    fn defaults_of_variables(&mut self, file: &VcenterConfig) -> VcenterConfig {
        let variables = self.variables();
        if !variables.vcenter.is_empty() {
            let warning = ConfigError::new("ignored").field(Variables::vcenter.name);
            self.warn(warning, "set server in an entry of the file, or VSPHERE_VCENTER_ID");
        }
        let or_file = |text: String, file: &String| if text.is_empty() { file.clone() } else { text };
        let datacenters: Vec<_> = items(&variables.datacenters).map(str::to_owned).collect();
        let named = |name: &'static str| move |message: &'static str| ConfigError::new(message).field(name);
        VcenterConfig {
            user: or_file(variables.user, &file.user),
            password: if variables.password.is_empty() { file.password.clone() } else { variables.password },
            port: self.parsed(Variables::port.name, &variables.port).unwrap_or(file.port),
            datacenters: if datacenters.is_empty() { file.datacenters.clone() } else { datacenters },
            round_trips: self.parsed(Variables::round_trips.name, &variables.round_trips).unwrap_or(file.round_trips),
            insecure: self.switch(Variables::insecure.name, &variables.insecure).unwrap_or(file.insecure),
            ca_files: if variables.ca_file.is_empty() { file.ca_files.clone() } else { ca_files(&variables.ca_file) },
            thumbprint: self
                .thumbprint(&variables.thumbprint, named(Variables::thumbprint.name))
                .unwrap_or_else(|| file.thumbprint.clone()),
            ..file.clone()
        }
    }

    fn of_variable(&mut self, own: &Own<'_>, name: &str, base: &VcenterConfig, inherited: &Inherited) -> VcenterConfig {
        let text = |setting: &str| own.get(setting).unwrap_or_default();
        let families: Vec<_> = items(text("IP_FAMILY")).map(str::to_owned).collect();
        let datacenters: Vec<_> = items(text("DATACENTERS")).map(str::to_owned).collect();
        let round_trips = self.parsed(&own.name("ROUNDTRIP"), text("ROUNDTRIP")).filter(|count| *count > 0);
        let vcenter = VcenterConfig {
            name: name.to_owned(),
            server: self.server_of_variable(own, name),
            port: self.parsed(&own.name("PORT"), text("PORT")).unwrap_or(base.port),
            insecure: self.switch(&own.name("INSECURE"), text("INSECURE")).unwrap_or(base.insecure),
            ca_files: own.get("CAFILE").map_or_else(|| base.ca_files.clone(), ca_files),
            thumbprint: self
                .thumbprint(text("THUMBPRINT"), |message| own.error("THUMBPRINT", message))
                .unwrap_or_else(|| base.thumbprint.clone()),
            datacenters: if datacenters.is_empty() { base.datacenters.clone() } else { datacenters },
            round_trips: round_trips.unwrap_or(base.round_trips),
            ip_families: self
                .families(&families, |message| own.error("IP_FAMILY", message))
                .unwrap_or_else(|| base.ip_families.clone()),
            user: own.get("USERNAME").unwrap_or(&base.user).to_owned(),
            password: own.get("PASSWORD").map_or_else(|| base.password.clone(), Secret::from),
            source: self.source_of_variable(own, inherited),
        };
        self.check_families(&vcenter, |message| own.error("IP_FAMILY", message));
        self.check_login_of_variable(own, &vcenter, inherited.has_source);
        vcenter
    }

    fn server_of_variable(&mut self, own: &Own<'_>, name: &str) -> String {
        let server = own.get("SERVER").unwrap_or(name);
        if host(server).is_none() {
            let error = own.error("SERVER", format!("{server:?} is not a host name or an IP address"));
            self.error(error, "remove scheme and path, and set the port in its own variable");
        }
        host(server).unwrap_or(server).to_owned()
    }

    fn source_of_variable(&mut self, own: &Own<'_>, inherited: &Inherited) -> CredentialSource {
        let text = |setting: &str| own.get(setting).unwrap_or_default();
        let names =
            [(Connection::secret_name, text("SECRET_NAME")), (Connection::secret_namespace, text("SECRET_NAMESPACE"))];
        let at = |key: &bowline_config::table::Key, message: String| {
            let setting = if key.name == Connection::secret_name.name { "SECRET_NAME" } else { "SECRET_NAMESPACE" };
            own.error(setting, message)
        };
        self.secret(names, at).map_or(inherited.source.clone(), CredentialSource::Secret)
    }

    fn check_login_of_variable(&mut self, own: &Own<'_>, vcenter: &VcenterConfig, has_source: bool) {
        if has_source || vcenter.source != CredentialSource::Config {
            return;
        }
        let hint = "set it, or the variables of a Secret";
        if vcenter.user.is_empty() {
            self.error(own.error("USERNAME", "Username is missing"), hint);
        }
        if vcenter.password.is_empty() {
            self.error(own.error("PASSWORD", "Password is missing"), hint);
        }
    }

    /// Parses a number; an invalid one is ignored with a warning.
    fn parsed<T: FromStr<Err: Display>>(&mut self, name: &str, text: &str) -> Option<T> {
        let parsed = text.trim().parse().map_err(|error: T::Err| error.to_string());
        self.or_ignore(name, text, parsed)
    }

    /// Parses a switch; an invalid one is ignored with a warning.
    fn switch(&mut self, name: &str, text: &str) -> Option<bool> {
        let parsed = match text.trim().to_ascii_lowercase().as_str() {
            "1" | "t" | "true" => Ok(true),
            "0" | "f" | "false" => Ok(false),
            _ => Err("is neither true nor false".to_owned()),
        };
        self.or_ignore(name, text, parsed)
    }

    // upstream: the same text.
    fn or_ignore<T>(&mut self, name: &str, text: &str, parsed: Result<T, String>) -> Option<T> {
        match parsed {
            _ if text.is_empty() => None,
            Ok(value) => Some(value),
            Err(reason) => {
                let warning =
                    ConfigError::new(format!("Failed to parse {name}: {text:?} {reason}; ignored")).field(name);
                self.warn(warning, "correct or remove it");
                None
            }
        }
    }
}
