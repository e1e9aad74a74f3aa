//! From `cloud.conf` to [`Config`]: all that is wrong is told at once.

use bowline_cloud::BuildContext;
use bowline_config::gcfg::{Settings, View};
use bowline_config::{ConfigFile, Environment, Problem, Problems};
use ipnet::IpNet;

use super::clouds_yaml::{Entry, Search};
use super::declaration::SECTIONS;
use super::fields::Fields;
use super::{BARBICAN, Class, Config, FloatingSubnet, Global, LoadBalancer, MonitorTimes, Networking, credential, tls};

impl Config {
    /// Reads the file, what it names, and the environment. No call is made.
    pub fn read(context: &BuildContext<'_>) -> Result<Config, Problems> {
        let Some(file) = context.config else {
            let problem = Problem::flag("cloud-config", "OpenStack needs a configuration, and none is given");
            return Err(problem.hint("name a cloud.conf with --cloud-config").into());
        };
        let (settings, problems) = Settings::check(file, SECTIONS)?;
        let mut reader = Reader { settings: &settings, problems, warnings: settings.warnings().to_vec() };
        let config = reader.config(context.environment);
        let Reader { mut problems, warnings, .. } = reader;
        if problems.is_empty() {
            return Ok(Config { warnings, ..config });
        }
        // A key that is missing is often one that is there and misspelt.
        let misspelt = settings.warnings().iter().filter(|warning| warning.hint.is_some());
        misspelt.for_each(|warning| problems.push(warning.clone()));
        Err(problems)
    }
}

impl Config {
    /// Problems with keys of `[Global]` that show only when they are used, at the lines where the keys stand.
    pub(crate) fn locate(file: Option<&ConfigFile>, problems: Problems) -> Problems {
        let Some(settings) = file.and_then(|file| Settings::read(file, SECTIONS).ok()) else { return problems };
        let view = settings.section("Global");
        let mut located = Problems::new();
        for problem in problems.iter() {
            let key = problem.field.as_deref().and_then(|field| field.strip_prefix("[Global] "));
            let place = key.filter(|key| view.has(key)).map(|key| view.problem(key, problem.message.clone()));
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
    problems: Problems,
    warnings: Vec<Problem>,
}

impl Reader<'_> {
    fn config(&mut self, environment: &Environment) -> Config {
        let (global, files) = self.global(environment);
        let metadata = self.settings.section("Metadata");
        self.search_order(&metadata);
        let timeout = metadata.duration("request-timeout");
        let default = Config::default();
        Config {
            global,
            load_balancer: self.load_balancer(),
            classes: self
                .settings
                .named("LoadBalancerClass")
                .into_iter()
                .map(|(name, view)| (name.to_owned(), class(&view)))
                .collect(),
            networking: self.networking(),
            router_id: self.settings.section("Route").filled("router-id").map(str::to_owned),
            // upstream: none at all would be no limit, and is taken for the default.
            request_timeout: if timeout.is_zero() { default.request_timeout } else { timeout },
            regional: environment.get("OS_CCM_REGIONAL") == Some("true"),
            wait_active_steps: wait_active_steps(environment).unwrap_or(default.wait_active_steps),
            files,
            warnings: Vec::new(),
        }
    }

    fn warn(&mut self, warning: Problem) {
        self.warnings.push(warning);
    }

    // ---- [Global]

    fn global(&mut self, environment: &Environment) -> (Global, Vec<std::path::PathBuf>) {
        let view = self.settings.section("Global");
        let keys = SECTIONS.iter().filter(|section| section.name == "Global").flat_map(|section| section.keys);
        let mut fields = Fields::of(&view, keys.map(|key| key.name).filter(|key| view.has(key)));
        let clouds = if view.flag("use-clouds") { self.clouds(&view, &fields, environment) } else { Entry::default() };
        // What a file that cannot be read would have filled is not missing.
        let is_whole = !view.flag("use-clouds") || !clouds.files.is_empty();
        let place = Place { view, own: fields.clone(), clouds: &clouds, is_whole };
        clouds.fill(&mut fields);
        let tls = tls::read(&fields, clouds.verify);
        let files = clouds.files.iter().cloned().chain(tls::files(&tls)).collect();
        for (key, message, hint) in tls::mistakes(&tls) {
            self.problems.push(place.problem(key, message).hint(hint));
        }
        let mut global = Global {
            auth_url: self.auth_url(&place, &fields),
            region: fields.text("region"),
            interface: self.interface(&place, &fields),
            tls,
            ..Global::default()
        };
        match credential::decide(&fields) {
            Ok((credential, scope)) => (global.credential, global.scope) = (credential, scope),
            Err(_) if !place.is_whole => {}
            Err(mistakes) => mistakes.into_iter().for_each(|mistake| {
                self.problems.push(place.problem(mistake.key, mistake.message).hint(mistake.hint));
            }),
        }
        self.idle(&place, &fields);
        (global, files)
    }

    fn clouds(&mut self, view: &View<'_>, fields: &Fields, environment: &Environment) -> Entry {
        let search = Search::new(fields, environment);
        let entry = search.read().unwrap_or_else(|problems| {
            self.problems.extend(problems);
            Entry::default()
        });
        if let Some((named, used)) = search.file.as_ref().zip(entry.files.first()).filter(|(named, used)| named != used)
        {
            let message = format!("there is no file {}, so {} is used", named.display(), used.display());
            self.warn(view.problem("clouds-file", message));
        }
        entry
    }

    fn auth_url(&mut self, place: &Place<'_>, fields: &Fields) -> String {
        let hint = "write the URL of Keystone, such as https://keystone.example.com:5000/v3";
        match fields.get("auth-url") {
            None if !place.is_whole => {}
            None => self.problems.push(place.problem("auth-url", "is missing").hint(hint)),
            Some(url) if !is_url(url) => self.problems.push(place.problem("auth-url", "is no URL").hint(hint)),
            // It would be told with every error of Keystone, and sent to nobody.
            Some(url) if has_user(url) => {
                let problem = place.problem("auth-url", "has a user or a password in it, which is sent to nobody");
                self.problems.push(problem.hint("write them as username and password, and the URL without them"));
            }
            Some(_) => {}
        }
        fields.text("auth-url")
    }

    fn interface(&mut self, place: &Place<'_>, fields: &Fields) -> String {
        let written = fields.get("os-endpoint-type").unwrap_or_default().trim();
        // The older spelling of clouds.yaml, which other programs write there.
        let from_clouds = written.strip_suffix("URL").filter(|_| !place.own.has_any(&["os-endpoint-type"]));
        let interface = Some(from_clouds.unwrap_or(written)).filter(|text| !text.is_empty()).unwrap_or("public");
        if !INTERFACES.contains(&interface) {
            let problem = place.problem("os-endpoint-type", format!("{interface:?} is no kind of endpoint"));
            self.problems.push(problem.hint("write public, internal or admin"));
        }
        interface.to_owned()
    }

    /// What is set and has no effect, or not the one that was meant.
    fn idle(&mut self, place: &Place<'_>, fields: &Fields) {
        for (key, reason) in credential::idle(fields) {
            self.warn(place.problem(key, reason));
        }
        if fields.get("tls-insecure").is_some_and(|text| !matches!(text, "true" | "false")) {
            let warning = place.problem("tls-insecure", "certificates are checked, because this is not exactly true");
            self.warn(warning.hint("write true or false"));
        }
        for (one, other) in [("cert-file", "key-file"), ("key-file", "cert-file")] {
            if fields.has_any(&[one]) && !fields.has_any(&[other]) {
                self.warn(place.problem(one, format!("is not used without {other}")));
            }
        }
    }

    // ---- [LoadBalancer]

    fn load_balancer(&mut self) -> LoadBalancer {
        let view = self.settings.section("LoadBalancer");
        self.check_load_balancer(&view);
        let text = |key| view.text(key).to_owned();
        LoadBalancer {
            enabled: view.flag("enabled"),
            provider: text("lb-provider"),
            method: text("lb-method"),
            places: class(&view),
            create_monitor: view.flag("create-monitor"),
            monitor: monitor(&view),
            manage_security_groups: view.flag("manage-security-groups"),
            internal: view.flag("internal-lb"),
            node_selector: text("node-selector"),
            cascade_delete: view.flag("cascade-delete"),
            flavor_id: text("flavor-id"),
            availability_zone: text("availability-zone"),
            ingress_hostname: view.flag("enable-ingress-hostname"),
            ingress_hostname_suffix: text("ingress-hostname-suffix"),
            max_shared: view.integer("max-shared-lb"),
            tls_container_ref: text("default-tls-container-ref"),
            container_store: text("container-store"),
            serial: view.flag("provider-requires-serial-api-calls"),
        }
    }

    fn check_load_balancer(&mut self, view: &View<'_>) {
        let version = view.text("lb-version");
        if !matches!(version, "" | "v2") {
            let problem = view.problem("lb-version", format!("{version:?} is not there any more"));
            let problem = problem.hint("leave it out, or write v2");
            // upstream: nobody looks at it where there are no balancers.
            if view.flag("enabled") { self.problems.push(problem) } else { self.warn(problem) }
        }
        for (key, known) in [("lb-provider", &PROVIDERS[..]), ("container-store", &STORES[..])] {
            let value = view.text(key);
            if !known.contains(&value) {
                let warning = view.problem(key, format!("{value:?} is not known here, and used as it is"));
                self.warn(warning.hint(format!("known are {}", known.join(", "))));
            }
        }
    }

    // ---- the others

    fn networking(&mut self) -> Networking {
        let view = self.settings.section("Networking");
        let order = view.text("address-sort-order");
        let mut sort_order = Vec::new();
        for item in order.split([',', ' ', '\t', '\n', '\r']).filter(|item| !item.is_empty()) {
            match item.parse::<IpNet>() {
                Ok(range) => sort_order.push(range.trunc()),
                Err(_) => {
                    let warning =
                        view.problem("address-sort-order", format!("{item:?} is no range, so it is left out"));
                    self.warn(warning.hint("write a range such as 10.0.0.0/8"));
                }
            }
        }
        Networking {
            ipv6_disabled: view.flag("ipv6-support-disabled"),
            public_networks: view.list("public-network-name"),
            internal_networks: view.list("internal-network-name"),
            sort_order,
        }
    }

    fn search_order(&mut self, view: &View<'_>) {
        let Some(order) = view.filled("search-order") else { return };
        let elements: Vec<_> = order.split(',').map(str::trim).collect();
        let hint = "write configDrive, metadataService, or both with a comma between";
        if elements.len() > 2 {
            self.problems.push(view.problem("search-order", "has more than two elements").hint(hint));
        }
        if let Some(wrong) = elements.iter().find(|element| !SOURCES.contains(element)) {
            self.problems.push(view.problem("search-order", format!("{wrong:?} cannot be asked")).hint(hint));
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
    fn problem(&self, key: &str, message: impl Into<String>) -> Problem {
        if !self.own.has_any(&[key]) && self.clouds.has(key) {
            return self.clouds.problem(key, message);
        }
        self.view.problem(key, message)
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

/// Where balancers and floating IPs are.
fn class(view: &View<'_>) -> Class {
    let text = |key| view.text(key).to_owned();
    Class {
        floating_network_id: text("floating-network-id"),
        floating_subnet: FloatingSubnet {
            id: text("floating-subnet-id"),
            name: text("floating-subnet"),
            tags: text("floating-subnet-tags"),
        },
        network_id: text("network-id"),
        subnet_id: text("subnet-id"),
        member_subnet_id: text("member-subnet-id"),
    }
}

// upstream: Octavia takes whole seconds; the rest of one is cut off.
fn monitor(view: &View<'_>) -> MonitorTimes {
    let seconds = |key| i64::try_from(view.duration(key).as_secs()).unwrap_or(i64::MAX);
    let number = |key| i64::try_from(view.unsigned(key)).unwrap_or(i64::MAX);
    MonitorTimes {
        delay: seconds("monitor-delay"),
        timeout: seconds("monitor-timeout"),
        max_retries: number("monitor-max-retries"),
        max_retries_down: number("monitor-max-retries-down"),
    }
}

/// What is no number is ignored.
fn wait_active_steps(environment: &Environment) -> Option<u32> {
    environment.get("OCCM_WAIT_LB_ACTIVE_STEPS")?.parse::<i64>().ok().and_then(|steps| u32::try_from(steps).ok())
}
