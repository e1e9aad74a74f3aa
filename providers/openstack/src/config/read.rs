//! From `cloud.conf` to [`Config`]: all that is wrong is told at once.

use bowline_cloud::BuildContext;
use bowline_config::table::{Key, Keys as _, Section, Settings, View};
use bowline_config::{ConfigError, ConfigErrors, ConfigFile, Environment};
use ipnet::IpNet;

use super::clouds_yaml::{Entry, Search};
use super::declaration::{self as declared, GlobalKeys as K, Metadata, NetworkingKeys, Route, Variables, table};
use super::fields::Fields;
use super::{BARBICAN, Config, Global, LoadBalancer, Networking, credential, tls};

impl Config {
    /// Reads the file, what it names, and the environment. No call is made.
    pub fn read(context: &BuildContext<'_>) -> Result<Config, ConfigErrors> {
        let Some(file) = context.config else {
            let problem = ConfigError::flag("cloud-config", "OpenStack needs a configuration, and none is given");
            return Err(problem.hint("name a cloud.conf with --cloud-config").into());
        };
        let (settings, errors) = table().check(Some(file), context.environment)?;
        let mut reader = Reader { settings: &settings, errors, warnings: settings.warnings().to_vec() };
        let config = reader.config();
        let Reader { mut errors, warnings, .. } = reader;
        if errors.is_empty() {
            return Ok(Config { warnings, ..config });
        }
        // A key that is missing is often one that is there and misspelt.
        let misspelt = settings.warnings().iter().filter(|warning| warning.hint.is_some());
        misspelt.for_each(|warning| errors.push(warning.clone()));
        Err(errors)
    }
}

impl Config {
    /// Problems with keys of `[Global]` that show only when they are used, at the lines where the keys stand.
    pub(crate) fn locate(file: Option<&ConfigFile>, errors: ConfigErrors) -> ConfigErrors {
        let Some(settings) = table().read(file, &Environment::default()).ok() else { return errors };
        let view = settings.view(declared::GLOBAL);
        let mut located = ConfigErrors::new();
        for problem in errors.iter() {
            let name = problem.field.as_deref().and_then(|field| field.strip_prefix("[Global] "));
            let key = K::keys().into_iter().find(|key| Some(key.name) == name && view.has(key));
            let place = key.map(|key| view.problem(&key, problem.message.clone()));
            located.push(match (place, &problem.hint) {
                (None, _) => problem.clone(),
                (Some(place), None) => place,
                (Some(place), Some(hint)) => place.hint(hint),
            });
        }
        located
    }
}

/// What is known to be an answer of `lb-provider`; others are used as they are.
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
            // upstream: none at all would be no limit, and is taken for the default.
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
        // What a file that cannot be read would have filled is not missing.
        let is_whole = !use_clouds || !clouds.files.is_empty();
        let place = Place { view, own: fields.clone(), clouds: &clouds, is_whole };
        clouds.fill(&mut fields);
        let tls = tls::read(&fields, clouds.verify);
        let files = clouds.files.iter().cloned().chain(tls.files()).collect();
        for error in tls.check() {
            self.errors.push(place.problem(tls::key(error.setting), error.message).hint(error.hint));
        }
        let mut global = Global {
            auth_url: self.auth_url(&place, &fields),
            region: fields.text(K::region),
            interface: self.interface(&place, &fields),
            tls,
            ..Global::default()
        };
        match credential::decide(&fields) {
            Ok((credential, scope)) => (global.credential, global.scope) = (credential, scope),
            Err(_) if !place.is_whole => {}
            Err(mistakes) => mistakes.into_iter().for_each(|mistake| {
                self.errors.push(place.problem(mistake.key, mistake.message).hint(mistake.hint));
            }),
        }
        self.idle(&place, &fields);
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
            let message = format!("there is no file {}, so {} is used", named.display(), used.display());
            self.warn(view.problem(&K::clouds_file, message));
        }
        entry
    }

    fn auth_url(&mut self, place: &Place<'_>, fields: &Fields) -> String {
        let hint = "write the URL of Keystone, such as https://keystone.example.com:5000/v3";
        match fields.get(K::auth_url) {
            None if !place.is_whole => {}
            None => self.errors.push(place.problem(K::auth_url, "is missing").hint(hint)),
            Some(url) if !is_url(url) => self.errors.push(place.problem(K::auth_url, "is no URL").hint(hint)),
            // It would be told with every error of Keystone, and sent to nobody.
            Some(url) if has_user(url) => {
                let problem = place.problem(K::auth_url, "has a user or a password in it, which is sent to nobody");
                self.errors.push(problem.hint("write them as username and password, and the URL without them"));
            }
            // The paths of calls are appended to it, and would end up in the query.
            Some(url) if url.contains(['?', '#']) => {
                let problem = place.problem(K::auth_url, "has a query or a fragment, which Keystone has no use for");
                self.errors.push(problem.hint("write the URL without what begins with ? or #"));
            }
            Some(_) => {}
        }
        fields.text(K::auth_url)
    }

    fn interface(&mut self, place: &Place<'_>, fields: &Fields) -> String {
        let written = fields.get(K::os_endpoint_type).unwrap_or_default().trim();
        // The older spelling of clouds.yaml, which other programs write there.
        let from_clouds = written.strip_suffix("URL").filter(|_| !place.own.has_any(&[K::os_endpoint_type]));
        let interface = Some(from_clouds.unwrap_or(written)).filter(|text| !text.is_empty()).unwrap_or("public");
        if !INTERFACES.contains(&interface) {
            let problem = place.problem(K::os_endpoint_type, format!("{interface:?} is no kind of endpoint"));
            self.errors.push(problem.hint("write public, internal or admin"));
        }
        interface.to_owned()
    }

    /// What is set and has no effect, or not the one that was meant.
    fn idle(&mut self, place: &Place<'_>, fields: &Fields) {
        for (key, reason) in credential::idle(fields) {
            self.warn(place.problem(key, reason));
        }
        if fields.get(K::tls_insecure).is_some_and(|text| !matches!(text, "true" | "false")) {
            let warning = place.problem(K::tls_insecure, "certificates are checked, because this is not exactly true");
            self.warn(warning.hint("write true or false"));
        }
        for (one, other) in [(K::cert_file, K::key_file), (K::key_file, K::cert_file)] {
            if fields.has_any(&[one]) && !fields.has_any(&[other]) {
                self.warn(place.problem(one, format!("is not used without {}", other.name)));
            }
        }
    }

    // ---- [LoadBalancer]

    fn load_balancer(&mut self) -> LoadBalancer {
        let view = self.settings.view(declared::LOAD_BALANCER);
        let read: LoadBalancer = self.settings.section(declared::LOAD_BALANCER);
        let version = &read.lb_version;
        if !matches!(version.as_str(), "" | "v2") {
            let problem = view.problem(&LoadBalancer::lb_version, format!("{version:?} is not there any more"));
            let problem = problem.hint("leave it out, or write v2");
            // upstream: not checked where there are no load balancers.
            if read.enabled { self.errors.push(problem) } else { self.warn(problem) }
        }
        let provider = (LoadBalancer::provider, &read.provider, &PROVIDERS[..]);
        for (key, value, known) in [provider, (LoadBalancer::container_store, &read.container_store, &STORES[..])] {
            if !known.contains(&value.as_str()) {
                let warning = view.problem(&key, format!("{value:?} is not known here, and used as it is"));
                self.warn(warning.hint(format!("known are {}", known.join(", "))));
            }
        }
        read
    }

    // ---- the others

    fn networking(&mut self) -> Networking {
        let view = self.settings.view(declared::NETWORKING);
        let NetworkingKeys { ipv6_disabled, public_networks, internal_networks, address_sort_order: order } =
            self.settings.section(declared::NETWORKING);
        let mut sort_order = Vec::new();
        for item in order.split([',', ' ', '\t', '\n', '\r']).filter(|item| !item.is_empty()) {
            match item.parse::<IpNet>() {
                Ok(range) => sort_order.push(range.trunc()),
                Err(_) => {
                    let warning = view.problem(
                        &NetworkingKeys::address_sort_order,
                        format!("{item:?} is no range, so it is left out"),
                    );
                    self.warn(warning.hint("write a range such as 10.0.0.0/8"));
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
            self.errors.push(view.problem(&Metadata::search_order, "has more than two elements").hint(hint));
        }
        if let Some(wrong) = elements.iter().find(|element| !SOURCES.contains(element)) {
            self.errors.push(view.problem(&Metadata::search_order, format!("{wrong:?} cannot be asked")).hint(hint));
        }
    }
}

/// Where the texts of `[Global]` come from, for messages.
struct Place<'a> {
    view: View<'a>,
    /// What `[Global]` itself says.
    own: Fields,
    clouds: &'a Entry,
    /// Nothing is missing because a file cannot be read.
    is_whole: bool,
}

impl Place<'_> {
    /// At the key in `[Global]`, or at that of clouds.yaml if it filled it.
    fn problem(&self, key: Key, message: impl Into<String>) -> ConfigError {
        let message = message.into();
        let of_clouds = self.clouds.problem(key, &message).filter(|_| !self.own.has_any(&[key]));
        of_clouds.unwrap_or_else(|| self.view.problem(&key, message))
    }
}

fn is_url(text: &str) -> bool {
    let uri = text.parse::<http::Uri>().ok();
    uri.is_some_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty())
    })
}

/// Whether there is something before the host.
fn has_user(url: &str) -> bool {
    let uri = url.parse::<http::Uri>().ok();
    uri.as_ref().and_then(http::Uri::authority).is_some_and(|authority| authority.as_str().contains('@'))
}
