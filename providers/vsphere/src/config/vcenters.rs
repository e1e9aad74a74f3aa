//! Entries of vCenters, with the settings that they inherit.

use std::num::NonZeroU64;
use std::path::PathBuf;

use bowline_cloud::SecretRef;
use bowline_config::table::{Format, Keys as _, View};
use bowline_config::{ConfigError, Secret};
use bowline_core::IpFamily;

use super::format::{fingerprint, host, items};
use super::keys::{Connection, Global, Part, Switches, Variables};
use super::read::Reader;
use super::{CredentialSource, VcenterConfig};

/// Settings that the entries inherit.
pub(super) struct Inherited {
    /// Connection of `global`.
    pub(super) base: VcenterConfig,
    /// Source of the credentials of entries without a Secret of their own.
    pub(super) source: CredentialSource,
    /// Entries need no user and password of their own.
    pub(super) has_source: bool,
}

/// Credentials that all entries share.
struct Shared {
    source: CredentialSource,
    /// Secret of `global`.
    secret: Option<SecretRef>,
    directory: Option<PathBuf>,
    has_source: bool,
}

/// Error of an entry without server.
const NO_SERVER: &str = "vsphere.conf does not have the VirtualCenter IP address specified";

impl Reader<'_> {
    /// Returns all vCenters, sorted by name, and the directory with credentials.
    pub(super) fn vcenters(&mut self) -> (Vec<VcenterConfig>, Option<PathBuf>) {
        let global: Global = self.section(Part::Global);
        let shared = self.shared(&global);
        let base = self.connection(&self.view(Part::Global), &global.connection, &defaults());
        let (user, password) = (global.connection.user.clone(), global.connection.password.clone());
        let base = VcenterConfig { user, password, ..base };
        let inherited = Inherited { base, source: shared.source.clone(), has_source: shared.has_source };

        let mut vcenters = self.entries(&inherited);
        vcenters.extend(self.implicit(&global, &inherited.base, &shared, &vcenters));
        let of_variables = self.of_variables(&inherited);
        vcenters.retain(|vcenter| !of_variables.iter().any(|other| other.name == vcenter.name));
        vcenters.extend(of_variables);
        vcenters.sort_by(|one, other| one.name.cmp(&other.name));
        self.check_any(&vcenters);
        self.check_servers(&vcenters);
        (vcenters, shared.directory)
    }

    /// Fails without any vCenter.
    fn check_any(&mut self, vcenters: &[VcenterConfig]) {
        let is_of_entry =
            |error: &ConfigError| error.field.as_deref().is_some_and(|field| Part::Vcenter.has(self.format, field));
        if vcenters.is_empty() && !self.errors.iter().any(is_of_entry) {
            let key = Connection::server;
            let (part, format) = (Part::Vcenter.name(self.format), self.format);
            let error = self.view(Part::Vcenter).error(&key, "No Virtual Center hosts defined");
            let hint = match format {
                Format::Gcfg => format!("add a section [{part} \"ADDRESS\"]"),
                _ => format!("add {part}.NAME with a server"),
            };
            self.errors.push(ConfigError { field: Some(part.to_owned()), ..error }.hint(hint));
        }
    }

    /// Warns about vCenters that are used twice.
    fn check_servers(&mut self, vcenters: &[VcenterConfig]) {
        for (index, vcenter) in vcenters.iter().enumerate() {
            let is_same = |other: &&VcenterConfig| (&other.server, other.port) == (&vcenter.server, vcenter.port);
            if let Some(other) = vcenters.iter().take(index).find(is_same) {
                let message = format!("the vCenters {:?} and {:?} have the same server", other.name, vcenter.name);
                let warning = ConfigError::new(message);
                self.warn(warning, "remove one of them, unless they see different virtual machines");
            }
        }
    }

    // ---- credentials that all entries share

    fn shared(&mut self, global: &Global) -> Shared {
        let Variables { secret_name, secret_namespace, secrets_directory, .. } = self.variables();
        let or_file = |variable: String, file: &str| if variable.is_empty() { file.to_owned() } else { variable };
        let of_file = &global.connection;
        let name = or_file(secret_name, &of_file.secret_name);
        let namespace = or_file(secret_namespace, &of_file.secret_namespace);
        let configured = or_file(secrets_directory, &global.secrets_directory);
        let keys = [(Connection::secret_name, &*name), (Connection::secret_namespace, &*namespace)];
        let view = self.view(Part::Global);
        let secret = self.secret(keys, |key, message| view.error(key, message));
        // upstream: only the file is validated, before the environment is read.
        let has_source = has_source(&of_file.secret_name, &of_file.secret_namespace, &global.secrets_directory)
            || has_source(&name, &namespace, &configured);
        let directory = self.directory(&configured, secret.is_some());
        let source = match (&directory, &secret) {
            (Some(_), _) => CredentialSource::Directory,
            (None, Some(secret)) => CredentialSource::Secret(secret.clone()),
            (None, None) => CredentialSource::Config,
        };
        Shared { source, secret, directory, has_source }
    }

    /// Returns the directory with credentials. A configured one that does not exist yields to a Secret.
    fn directory(&mut self, configured: &str, has_secret: bool) -> Option<PathBuf> {
        if configured.is_empty() {
            return self.default_directory.is_dir().then(|| self.default_directory.to_owned());
        }
        let exists = std::path::Path::new(configured).is_dir();
        let view = self.view(Part::Global);
        match (exists, has_secret) {
            (true, true) => {
                let warning = view.error(&Connection::secret_name, format!("ignored, because {configured} exists"));
                self.warn(warning, "keep either the Secret or the directory");
            }
            (true, false) => {}
            (false, _) => {
                let warning = view.error(&Global::secrets_directory, "the directory does not exist");
                self.warn(warning, "check the path, and the volume mount of the pod");
            }
        }
        (exists || !has_secret).then(|| configured.into())
    }

    // ---- entries

    fn entries(&mut self, inherited: &Inherited) -> Vec<VcenterConfig> {
        let nameless = self.view(Part::Vcenter);
        if Connection::keys().iter().any(|key| nameless.has(key)) {
            let error = nameless.error(&Connection::server, NO_SERVER);
            self.error(error, "name the entry");
        }
        let views = self.settings.views(Part::Vcenter.name(self.format));
        views.into_iter().map(|(name, view)| self.entry(name, &view, inherited)).collect()
    }

    fn entry(&mut self, name: &str, view: &View<'_>, inherited: &Inherited) -> VcenterConfig {
        let keys = Connection::read(view);
        let base = &inherited.base;
        if base.insecure && view.has(&Connection::insecure) && !keys.insecure {
            let warning = view.error(&Connection::insecure, "has no effect, because it is set globally");
            self.warn(warning, "remove it from the global section");
        }
        let names =
            [(Connection::secret_name, &*keys.secret_name), (Connection::secret_namespace, &*keys.secret_namespace)];
        let own = self.secret(names, |key, message| view.error(key, message));
        let login = match own.is_some() || inherited.has_source {
            true => (keys.user.clone(), keys.password.clone()),
            false => self.login(view, &keys, base),
        };
        let entry = VcenterConfig {
            name: name.to_owned(),
            server: self.server(name, view, &keys.server),
            user: login.0,
            password: login.1,
            source: own.map_or(inherited.source.clone(), CredentialSource::Secret),
            ..self.connection(view, &keys, base)
        };
        let place = if view.has(&Connection::ip_families) { *view } else { self.view(Part::Global) };
        self.check_families(&entry, |message| place.error(&Connection::ip_families, message));
        entry
    }

    /// Returns user and password of an entry without another source of credentials.
    fn login(&mut self, view: &View<'_>, keys: &Connection, base: &VcenterConfig) -> (String, Secret) {
        let user = if keys.user.is_empty() { &base.user } else { &keys.user };
        let password = if keys.password.is_empty() { &base.password } else { &keys.password };
        self.check_login(view, user, password);
        (user.clone(), password.clone())
    }

    /// Returns the vCenter of `global.server`, unless there is an entry of this name.
    fn implicit(
        &mut self,
        global: &Global,
        base: &VcenterConfig,
        shared: &Shared,
        entries: &[VcenterConfig],
    ) -> Option<VcenterConfig> {
        let (view, server) = (self.view(Part::Global), &global.connection.server);
        if server.is_empty() {
            return None;
        }
        let part = Part::Vcenter.name(self.format);
        self.warn(view.error(&Connection::server, "deprecated"), &format!("move it to an entry of {part}"));
        if entries.iter().any(|entry| entry.name == *server) {
            return None;
        }
        if !shared.has_source {
            self.check_login(&view, &base.user, &base.password);
        }
        let source = shared.secret.clone().map_or(shared.source.clone(), CredentialSource::Secret);
        let entry =
            VcenterConfig { name: server.clone(), server: self.server("", &view, server), source, ..base.clone() };
        self.check_families(&entry, |message| view.error(&Connection::ip_families, message));
        Some(entry)
    }

    fn check_login(&mut self, view: &View<'_>, user: &str, password: &Secret) {
        let [name, namespace, directory] =
            [Connection::secret_name, Connection::secret_namespace, Global::secrets_directory]
                .map(|key| key.name_in(self.format));
        let hint = format!("set user and password, or {name} with {namespace}, or {directory}, but not both of these");
        for (key, is_missing, message) in [
            (Connection::user, user.is_empty(), "Username is missing"),
            (Connection::password, password.is_empty(), "Password is missing"),
        ] {
            if is_missing {
                self.error(view.error(&key, message), &hint);
            }
        }
    }

    /// Returns the server without brackets.
    fn server(&mut self, name: &str, view: &View<'_>, written: &str) -> String {
        // upstream: in INI, the name is the address by default.
        let server = if written.is_empty() && self.format == Format::Gcfg { name } else { written };
        if server.is_empty() {
            self.error(view.error(&Connection::server, NO_SERVER), "set server to a host name or an IP address");
        } else if host(server).is_none() {
            let error = view.error(&Connection::server, format!("{server:?} is not a host name or an IP address"));
            self.error(error, "remove scheme and path, and set port");
        }
        host(server).unwrap_or(server).to_owned()
    }

    /// Returns the settings of a connection that may be inherited.
    fn connection(&mut self, view: &View<'_>, keys: &Connection, base: &VcenterConfig) -> VcenterConfig {
        let datacenters = self.list(&keys.datacenters);
        let round_trips = keys.round_trips.map(|count| u32::try_from(count.get()).unwrap_or(u32::MAX));
        VcenterConfig {
            port: self.port(view, keys.port).unwrap_or(base.port),
            insecure: keys.insecure || base.insecure,
            ca_files: if keys.ca_file.is_empty() { base.ca_files.clone() } else { ca_files(&keys.ca_file) },
            thumbprint: self
                .thumbprint(&keys.thumbprint, |message| view.error(&Connection::thumbprint, message))
                .unwrap_or_else(|| base.thumbprint.clone()),
            datacenters: if datacenters.is_empty() { base.datacenters.clone() } else { datacenters },
            round_trips: round_trips.unwrap_or(base.round_trips),
            ip_families: self
                .families(&self.list(&keys.ip_families), |message| view.error(&Connection::ip_families, message))
                .unwrap_or_else(|| base.ip_families.clone()),
            ..VcenterConfig::default()
        }
    }

    /// Returns the items of a list, which is one text in INI.
    // upstream: in INI, the last text of several counts.
    fn list(&self, written: &[String]) -> Vec<String> {
        let skipped = if self.format == Format::Gcfg { written.len().saturating_sub(1) } else { 0 };
        written.iter().skip(skipped).flat_map(|text| items(text)).map(str::to_owned).collect()
    }

    fn port(&mut self, view: &View<'_>, port: Option<NonZeroU64>) -> Option<u16> {
        let valid = u16::try_from(port?.get()).ok();
        if valid.is_none() {
            self.error(view.error(&Connection::port, "is not a port"), "write a number up to 65535");
        }
        valid
    }

    /// Returns the fingerprint in upper case; `None` for an empty or an invalid one, which matches no certificate.
    pub(super) fn thumbprint(&mut self, text: &str, at: impl Fn(&'static str) -> ConfigError) -> Option<String> {
        let valid = fingerprint(text);
        if valid.is_none() && !text.is_empty() {
            let hint = "write 20 or 32 hexadecimal pairs separated by ':'";
            self.warn(at("ignored, because it is neither a SHA-1 nor a SHA-256 fingerprint"), hint);
        }
        valid
    }

    /// Returns the IP families in their order, each once; `None` if there are none.
    // upstream: in YAML, not checked at start, and in both formats compared without trimming.
    pub(super) fn families(
        &mut self,
        written: &[String],
        at: impl Fn(&'static str) -> ConfigError,
    ) -> Option<Vec<IpFamily>> {
        let mut families = Vec::new();
        for text in written {
            let family = match text.to_ascii_lowercase().as_str() {
                "ipv4" => IpFamily::IPv4,
                "ipv6" => IpFamily::IPv6,
                _ => {
                    self.error(at("Invalid IP Family type"), "write ipv4 or ipv6");
                    continue;
                }
            };
            if !families.contains(&family) {
                families.push(family);
            }
        }
        (!families.is_empty()).then_some(families)
    }

    /// Fails if a vCenter has several IP families and they are not enabled.
    pub(super) fn check_families(&mut self, vcenter: &VcenterConfig, at: impl Fn(String) -> ConfigError) {
        let switch = Switches::dual_stack.name;
        if vcenter.ip_families.len() > 1 && !self.environment.is_set(switch) {
            // upstream: the same text, with its misspelling.
            let name = &vcenter.name;
            let text =
                format!("mulitple IP families specified for virtual center {name:?} but {switch} env var is not set");
            self.error(at(text), &format!("set {switch}=true, or keep one family"));
        }
    }
}

/// Settings of a connection that has none.
fn defaults() -> VcenterConfig {
    VcenterConfig { port: 443, round_trips: 3, ip_families: vec![IpFamily::IPv4], ..VcenterConfig::default() }
}

/// Returns the files of a list that is separated by colons.
pub(super) fn ca_files(text: &str) -> Vec<PathBuf> {
    text.split(':').filter(|path| !path.is_empty()).map(PathBuf::from).collect()
}

/// Returns whether the global section has either a Secret or a directory.
// upstream: with both of them, as with none, each vCenter needs a user and a password.
fn has_source(name: &str, namespace: &str, directory: &str) -> bool {
    let has_secret = !name.is_empty() && !namespace.is_empty();
    let has_directory = !directory.is_empty();
    has_secret && !has_directory || has_directory && name.is_empty() && namespace.is_empty()
}
