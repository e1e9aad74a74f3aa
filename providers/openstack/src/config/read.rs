//! Reads `cloud.conf` into a [`Config`], and reports all errors at once.

use bowline_cloud::BuildContext;
use bowline_config::table::{Key, Keys as _, Section, Settings, View};
use bowline_config::{ConfigError, ConfigErrors, ConfigFile, Environment};
use ipnet::IpNet;

use super::clouds_yaml::{Entry, Search};
use super::declaration::{self as declared, GlobalKeys as K, Metadata, NetworkingKeys, Route, Variables, table};
use super::fields::Fields;
use super::{BARBICAN, Config, Global, LoadBalancer, Networking, credential, tls};

impl Config {
    /// Reads the file, the files that it refers to, and the environment. Makes no call.
    pub fn read(context: &BuildContext<'_>) -> Result<Config, ConfigErrors> {
        let Some(file) = context.config else {
            let error = ConfigError::flag("cloud-config", "OpenStack needs a configuration file");
            return Err(error.hint("set --cloud-config to the path of a cloud.conf").into());
        };
        let (settings, errors) = table().check(Some(file), context.environment)?;
        let mut reader = Reader { settings: &settings, errors, warnings: settings.warnings().to_vec() };
        let config = reader.config();
        let Reader { mut errors, warnings, .. } = reader;
        if errors.is_empty() {
            return Ok(Config { warnings, ..config });
        }
        // A missing key is often a misspelled one.
        let misspelt = settings.warnings().iter().filter(|warning| warning.hint.is_some());
        misspelt.for_each(|warning| errors.push(warning.clone()));
        Err(errors)
    }
}

impl Config {
    /// Adds file and line to errors about keys of `[Global]` that are detected later, when they are used.
    pub(crate) fn locate(file: Option<&ConfigFile>, errors: ConfigErrors) -> ConfigErrors {
        let Some(settings) = table().read(file, &Environment::default()).ok() else { return errors };
        let view = settings.view(declared::GLOBAL);
        let mut located = ConfigErrors::new();
        for error in errors.iter() {
            let name = error.field.as_deref().and_then(|field| field.strip_prefix("[Global] "));
            let key = K::keys().into_iter().find(|key| Some(key.name) == name && view.has(key));
            let location = key.map(|key| view.error(&key, error.message.clone()));
            located.push(match (location, &error.hint) {
                (None, _) => error.clone(),
                (Some(location), None) => location,
                (Some(location), Some(hint)) => location.hint(hint),
            });
        }
        located
    }
}

/// Known values of `lb-provider`; other values are used with a warning.
const PROVIDERS: [&str; 5] = ["amphora", "octavia", "ovn", "f5", "amphorav2"];
const STORES: [&str; 2] = [BARBICAN, "external"];
const SOURCES: [&str; 2] = ["configDrive", "metadataService"];
const INTERFACES: [&str; 3] = ["public", "internal", "admin"];

struct Reader<'a> {
    settings: &'a Settings,
    errors: ConfigErrors,
    warnings: Vec<ConfigError>,
}

impl Reader<'_> {
    fn config(&mut self) -> Config {
        let (global, files) = self.global();
        let variables: Variables = self.settings.section(Section::ENVIRONMENT);
        let Metadata { search_order, request_timeout } = self.settings.section(declared::METADATA);
        self.search_order(&search_order);
        let Route { router_id } = self.settings.section(declared::ROUTE);
        let classes = self.settings.named(declared::CLASS).into_iter();
        let default = Config::default();
        Config {
            global,
            load_balancer: self.load_balancer(),
            classes: classes.map(|(name, class)| (name.to_owned(), class)).collect(),
            networking: self.networking(),
            router_id: Some(router_id).filter(|id| !id.is_empty()),
            // upstream: zero would mean no timeout, and is replaced by the default.
            request_timeout: if request_timeout.is_zero() { default.request_timeout } else { request_timeout },
            regional: variables.regional == "true",
            wait_active_steps: variables.wait_active_steps.parse().unwrap_or(default.wait_active_steps),
            files,
            warnings: Vec::new(),
        }
    }

    fn warn(&mut self, warning: ConfigError) {
        self.warnings.push(warning);
    }

    // ---- [Global]

    fn global(&mut self) -> (Global, Vec<std::path::PathBuf>) {
        let view = self.settings.view(declared::GLOBAL);
        let mut fields = Fields::of(&view);
        let use_clouds = view.get::<bool>(&K::use_clouds);
        let clouds = if use_clouds { self.clouds(&view, &fields) } else { Entry::default() };
        // Keys that an unreadable file would have filled are not missing.
        let is_complete = !use_clouds || !clouds.files.is_empty();
        let location = Location { view, own: fields.clone(), clouds: &clouds, is_complete };
        clouds.fill(&mut fields);
        let tls = tls::read(&fields, clouds.verify);
        let files = clouds.files.iter().cloned().chain(tls.files()).collect();
        for error in tls.check() {
            self.errors.push(location.error(tls::key(error.setting), error.message).hint(error.hint));
        }
        let mut global = Global {
            auth_url: self.auth_url(&location, &fields),
            region: fields.text(K::region),
            interface: self.interface(&location, &fields),
            tls,
            ..Global::default()
        };
        match credential::decide(&fields) {
            Ok((credential, scope)) => (global.credential, global.scope) = (credential, scope),
            Err(_) if !location.is_complete => {}
            Err(credential_errors) => credential_errors.into_iter().for_each(|error| {
                self.errors.push(location.error(error.key, error.message).hint(error.hint));
            }),
        }
        self.unused(&location, &fields);
        (global, files)
    }

    fn clouds(&mut self, view: &View<'_>, fields: &Fields) -> Entry {
        let search = Search::new(fields, self.settings.section(Section::ENVIRONMENT));
        let entry = search.read().unwrap_or_else(|errors| {
            self.errors.extend(errors);
            Entry::default()
        });
        if let Some((named, used)) = search.file.as_ref().zip(entry.files.first()).filter(|(named, used)| named != used)
        {
            let message = format!("file {} does not exist, {} is used instead", named.display(), used.display());
            self.warn(view.error(&K::clouds_file, message));
        }
        entry
    }

    fn auth_url(&mut self, location: &Location<'_>, fields: &Fields) -> String {
        let hint = "write the URL of Keystone, such as https://keystone.example.com:5000/v3";
        match fields.get(K::auth_url) {
            None if !location.is_complete => {}
            None => self.errors.push(location.error(K::auth_url, "is missing").hint(hint)),
            Some(url) if !is_url(url) => self.errors.push(location.error(K::auth_url, "is not a URL").hint(hint)),
            // It would be part of every Keystone error, and is never sent.
            Some(url) if has_user(url) => {
                let error = location.error(K::auth_url, "contains a user or a password, which is not sent");
                self.errors.push(error.hint("set username and password, and remove them from the URL"));
            }
            // Paths are appended to it, and would end up in the query.
            Some(url) if url.contains(['?', '#']) => {
                let error = location.error(K::auth_url, "has a query or a fragment, which Keystone does not support");
                self.errors.push(error.hint("remove everything from ? or # on"));
            }
            Some(_) => {}
        }
        fields.text(K::auth_url)
    }

    fn interface(&mut self, location: &Location<'_>, fields: &Fields) -> String {
        let written = fields.get(K::os_endpoint_type).unwrap_or_default().trim();
        // Legacy form in clouds.yaml, which other programs write.
        let from_clouds = written.strip_suffix("URL").filter(|_| !location.own.has_any(&[K::os_endpoint_type]));
        let interface = Some(from_clouds.unwrap_or(written)).filter(|text| !text.is_empty()).unwrap_or("public");
        if !INTERFACES.contains(&interface) {
            let error = location.error(K::os_endpoint_type, format!("{interface:?} is not an endpoint interface"));
            self.errors.push(error.hint("write public, internal or admin"));
        }
        interface.to_owned()
    }

    /// Warns about keys without effect, or with an unexpected one.
    fn unused(&mut self, location: &Location<'_>, fields: &Fields) {
        for (key, reason) in credential::unused(fields) {
            self.warn(location.error(key, reason));
        }
        if fields.get(K::tls_insecure).is_some_and(|text| !matches!(text, "true" | "false")) {
            let warning =
                location.error(K::tls_insecure, "certificates are verified, because this is not exactly true");
            self.warn(warning.hint("write true or false"));
        }
        for (one, other) in [(K::cert_file, K::key_file), (K::key_file, K::cert_file)] {
            if fields.has_any(&[one]) && !fields.has_any(&[other]) {
                self.warn(location.error(one, format!("is not used without {}", other.name)));
            }
        }
    }

    // ---- [LoadBalancer]

    fn load_balancer(&mut self) -> LoadBalancer {
        let view = self.settings.view(declared::LOAD_BALANCER);
        let read: LoadBalancer = self.settings.section(declared::LOAD_BALANCER);
        let version = &read.lb_version;
        if !matches!(version.as_str(), "" | "v2") {
            let error = view.error(&LoadBalancer::lb_version, format!("{version:?} is not supported any more"));
            let error = error.hint("remove it, or write v2");
            // upstream: not checked if load balancers are disabled.
            if read.enabled { self.errors.push(error) } else { self.warn(error) }
        }
        let provider = (LoadBalancer::provider, &read.provider, &PROVIDERS[..]);
        for (key, value, known) in [provider, (LoadBalancer::container_store, &read.container_store, &STORES[..])] {
            if !known.contains(&value.as_str()) {
                let warning = view.error(&key, format!("{value:?} is unknown, and used as it is"));
                self.warn(warning.hint(format!("known values are {}", known.join(", "))));
            }
        }
        read
    }

    // ---- other sections

    fn networking(&mut self) -> Networking {
        let view = self.settings.view(declared::NETWORKING);
        let NetworkingKeys { ipv6_disabled, public_networks, internal_networks, address_sort_order: order } =
            self.settings.section(declared::NETWORKING);
        let mut sort_order = Vec::new();
        for item in order.split([',', ' ', '\t', '\n', '\r']).filter(|item| !item.is_empty()) {
            match item.parse::<IpNet>() {
                Ok(range) => sort_order.push(range.trunc()),
                Err(_) => {
                    let warning = view
                        .error(&NetworkingKeys::address_sort_order, format!("{item:?} is not a CIDR, and is ignored"));
                    self.warn(warning.hint("write a CIDR such as 10.0.0.0/8"));
                }
            }
        }
        Networking { ipv6_disabled, public_networks, internal_networks, sort_order }
    }

    fn search_order(&mut self, order: &str) {
        if order.is_empty() {
            return;
        }
        let view = self.settings.view(declared::METADATA);
        let elements: Vec<_> = order.split(',').map(str::trim).collect();
        let hint = "write configDrive, metadataService, or both with a comma between";
        if elements.len() > 2 {
            self.errors.push(view.error(&Metadata::search_order, "has more than two elements").hint(hint));
        }
        if let Some(wrong) = elements.iter().find(|element| !SOURCES.contains(element)) {
            self.errors
                .push(view.error(&Metadata::search_order, format!("{wrong:?} is not a metadata source")).hint(hint));
        }
    }
}

/// Locations of the texts of `[Global]`, for messages.
struct Location<'a> {
    view: View<'a>,
    /// Texts of `[Global]` itself.
    own: Fields,
    clouds: &'a Entry,
    /// All files could be read.
    is_complete: bool,
}

impl Location<'_> {
    /// Returns an error at the key of `[Global]`, or at the key of clouds.yaml that filled it.
    fn error(&self, key: Key, message: impl Into<String>) -> ConfigError {
        let message = message.into();
        let of_clouds = self.clouds.error(key, &message).filter(|_| !self.own.has_any(&[key]));
        of_clouds.unwrap_or_else(|| self.view.error(&key, message))
    }
}

fn is_url(text: &str) -> bool {
    let uri = text.parse::<http::Uri>().ok();
    uri.is_some_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty())
    })
}

/// Returns whether there is a user before the host.
fn has_user(url: &str) -> bool {
    let uri = url.parse::<http::Uri>().ok();
    uri.as_ref().and_then(http::Uri::authority).is_some_and(|authority| authority.as_str().contains('@'))
}
