//! Contents of the manifests, derived from the flags of the command and of the manager.

use std::any::TypeId;
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use bowline_cloud::{ConfigLocation, EnvironmentVariable, Registry};
use bowline_config::{ConfigError, ConfigErrors, ConfigFile};
use bowline_controllers::manager::ManagerOptions;
use bowline_settings::Settings;
use bowline_settings::argv::Argv;
use bowline_settings::effective::EffectiveFlags;
use bowline_settings::providers::{self, ProviderSpec};
use bowline_settings::{argv, reach};
use clap::{CommandFactory as _, Parser as _};

use super::environment;
use crate::cli::{self, Cli, Command, ManifestsArgs, WorkloadKind};
use crate::invocation::Manager;
use crate::permissions::{BuildInputs, SYSTEM};

/// Location of files without a conventional one: the Secret of the installation.
const DEFAULT_LOCATION: ConfigLocation = ConfigLocation { secret: "bowline", folder: "/etc/bowline", file: "" };

/// Contents of the manifests.
#[derive(Debug)]
pub(super) struct Installation {
    pub(super) namespace: String,
    pub(super) image: String,
    /// Image pull Secrets, in the same namespace.
    pub(super) pull_secrets: Vec<String>,
    pub(super) workload: Workload,
    /// Key and value of the node selector label.
    pub(super) node_selector: (String, String),
    /// Address of the API server, if not its Service.
    pub(super) api_server: Option<(String, u16)>,
    /// Annotations of the service account.
    pub(super) account_annotations: Vec<(String, String)>,
    /// Flags of the manager.
    pub(super) flags: Vec<String>,
    /// Secrets mounted by the Pods: provider configuration, and files that flags name.
    pub(super) secrets: Vec<Secret>,
    /// Environment variables of the providers.
    pub(super) environment: Vec<EnvironmentVariable>,
    /// HTTPS endpoint; `None` if it is disabled.
    pub(super) serving: Option<Serving>,
    pub(super) manager: ManagerOptions,
    pub(super) build_inputs: BuildInputs,
    /// Warnings for the user.
    pub(super) warnings: Vec<String>,
}

/// A Secret and its mount path.
#[derive(Debug)]
pub(super) struct Secret {
    pub(super) name: &'static str,
    pub(super) folder: &'static str,
    /// Names and contents of the files; empty if the user creates the Secret.
    pub(super) files: Vec<(String, String)>,
}

/// Workload kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Workload {
    DaemonSet,
    Deployment { replicas: u16 },
}

/// HTTPS endpoint of the manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Serving {
    pub(super) port: u16,
    /// Listen address, unless it is unspecified.
    pub(super) address: Option<IpAddr>,
}

impl Installation {
    /// Derives the contents, or returns all errors.
    pub(super) fn new(args: &ManifestsArgs, registry: &Registry) -> Result<Installation, ConfigErrors> {
        let Argv { arguments, mut errors, .. } = arguments(args, registry);
        let Manager { args: manager_args, mut warnings, .. } =
            Manager::read("bowline".to_owned(), arguments.clone(), registry)
                .map_err(|error| ConfigError::new(error.to_string()))?;
        let mut settings = Settings::resolve(&manager_args, &mut errors);
        let read = |wanted: &ProviderSpec| read(wanted, registry);
        let (reach, surroundings) = (&settings.reach, settings.reach.build_inputs(&prometheus::Registry::new()));
        let providers =
            providers::build_from(&reach.providers, read, &reach.cluster, &surroundings, registry, &mut errors);
        let network = &manager_args.controllers.network;
        reach::check(&providers, &settings.reach, &settings.manager, network, &mut errors);
        reach::narrow(&mut settings.manager, &providers);
        let mut files = files(&settings.reach.providers, registry, &mut errors);
        files.extend(named_files(&manager_args.effective, &mut errors));
        check_combination(args, &manager_args.effective, &settings, &files, &mut errors);
        if !errors.is_empty() {
            return Err(errors);
        }
        warnings.extend(settings.warnings.iter().cloned());
        warnings.extend(own_warnings(args, &settings));
        warnings.extend(files.iter().filter_map(|file| file.missing(&args.namespace)));
        let environment = environment::of_providers(&settings.reach.providers, registry);
        warnings.extend(environment::warnings(&environment, &args.namespace));
        Ok(Installation {
            namespace: args.namespace.clone(),
            image: args.image.clone(),
            pull_secrets: args.image_pull_secret.clone(),
            workload: Workload::of(args),
            node_selector: args.node_selector.clone(),
            api_server: args.api_server.clone(),
            account_annotations: args.service_account_annotation.clone(),
            flags: flags(&arguments, &files),
            secrets: secrets(files),
            environment,
            serving: serving(&settings),
            build_inputs: BuildInputs::of(&settings, &providers),
            manager: settings.manager,
            warnings,
        })
    }
}

impl Installation {
    /// Derives the contents with default flags for a provider.
    pub(super) fn of_provider(name: &str, registry: &Registry) -> Result<Installation, ConfigErrors> {
        let cli = Cli::try_parse_from(["bowline", "manifests", "--cloud-provider", name]);
        match cli.map(|cli| cli.command) {
            Ok(Some(Command::Manifests(args))) => Installation::new(&args, registry),
            _ => Err(ConfigError::flag("cloud-provider", format!("{name:?} is not a valid name")).into()),
        }
    }
}

impl Workload {
    fn of(args: &ManifestsArgs) -> Workload {
        match args.kind {
            WorkloadKind::DaemonSet => Workload::DaemonSet,
            WorkloadKind::Deployment => Workload::Deployment { replicas: args.replicas },
        }
    }
}

/// Command line of the manager with the local paths of files.
fn arguments(args: &ManifestsArgs, registry: &Registry) -> Argv {
    let providers = args.cloud_provider.iter().map(|name| format!("--cloud-provider={name}"));
    let configs = args.cloud_config.iter().map(|file| format!("--cloud-config={file}"));
    let program = std::iter::once("bowline".to_owned());
    let all = program.chain(providers).chain(configs).chain(args.flags.iter().cloned());
    let mut argv = argv::normalize(all.map(OsString::from).collect(), &mut cli::definition(registry));
    // Routes need a cluster CIDR; without one they are disabled.
    if !["cluster-cidr", "configure-cloud-routes", "config"].iter().any(|flag| argv.has(flag)) {
        argv.add_default("configure-cloud-routes=false");
    }
    environment::add_default_flags(&mut argv, registry);
    argv
}

/// Flags of the manager in the container.
fn flags(arguments: &[OsString], files: &[File]) -> Vec<String> {
    let moved = |flag: &str| files.iter().any(|file| flag.strip_prefix("--").is_some_and(|flag| file.is_of(flag)));
    let flags = arguments.iter().skip(1).map(|flag| flag.to_string_lossy().into_owned());
    let (mut flags, rest): (Vec<_>, Vec<_>) =
        flags.filter(|flag| !moved(flag)).partition(|flag| flag.starts_with("--cloud-provider="));
    flags.extend(files.iter().map(|file| file.flag(files)));
    flags.extend(rest);
    flags
}

/// A local file that is mounted into the container.
struct File {
    /// Name of its flag, without dashes.
    flag: String,
    /// Provider, if it is a provider's configuration.
    provider: Option<String>,
    location: ConfigLocation,
    name: String,
    /// Content; `None` if the Secret exists in the cluster already.
    text: Option<String>,
}

impl File {
    /// Whether the file replaces this flag, given as `name=value`.
    fn is_of(&self, flag: &str) -> bool {
        flag.strip_prefix(&self.flag).is_some_and(|rest| rest.starts_with('='))
    }

    /// Returns its flag in the container.
    fn flag(&self, all: &[File]) -> String {
        let is_only_one = all.iter().filter(|file| file.flag == self.flag).count() == 1;
        match self.provider.as_ref().filter(|_| !is_only_one) {
            None => format!("--{}={}", self.flag, self.path()),
            Some(provider) => format!("--{}={provider}={}", self.flag, self.path()),
        }
    }

    /// Returns its path in the container.
    fn path(&self) -> String {
        format!("{}/{}", self.location.folder, self.name)
    }

    /// Returns the warning about a file that is not printed.
    fn missing(&self, namespace: &str) -> Option<String> {
        let (secret, name) = (self.location.secret, &self.name);
        self.text.is_none().then(|| {
            format!(
                "the Secret {secret} in {namespace} must contain {name}; it is not printed, so that an existing one is not \
                 overwritten; create it with kubectl -n {namespace} create secret generic {secret} --from-file={name}, or \
                 set --cloud-config"
            )
        })
    }
}

/// Reads the files that flags, or the document of `--config`, name.
fn named_files(flags: &EffectiveFlags, errors: &mut ConfigErrors) -> Vec<File> {
    let named = paths(flags).filter(|(flag, _)| is_file(flag));
    // Files that the settings read as well have already been reported.
    let is_first = errors.is_empty();
    let mut files = Vec::new();
    for (flag, path) in named {
        let name = flag.get_long().unwrap_or_default();
        match ConfigFile::read(Path::new(&path)) {
            Ok(file) => {
                let (flag, text) = (name.to_owned(), file.text().to_owned());
                files.push(File {
                    name: flag.clone(),
                    flag,
                    provider: None,
                    location: DEFAULT_LOCATION,
                    text: Some(text),
                });
            }
            Err(error) if is_first => errors.push(error.hint(format!("--{name}: {LOCAL_FILE}"))),
            Err(_) => {}
        }
    }
    files
}

const LOCAL_FILE: &str = "the command reads the local file and puts it into the Secret; for a file on the nodes, add the flag and \
                          its volume to the printed manifests";

/// Returns the flags with a path, and the path.
fn paths(flags: &EffectiveFlags) -> impl Iterator<Item = (clap::Arg, String)> {
    let named = |flag: &clap::Arg| {
        let given = flags.get(flag.get_long()?)?.values.last()?;
        let is_path = flag.get_value_parser().type_id() == TypeId::of::<PathBuf>();
        (is_path && !given.is_empty()).then(|| given.clone())
    };
    let all: Vec<_> = Cli::command().get_arguments().cloned().collect();
    all.into_iter().filter_map(move |flag| named(&flag).map(|path| (flag, path))).collect::<Vec<_>>().into_iter()
}

/// Whether the flag names a file that can be in the Secret.
fn is_file(flag: &clap::Arg) -> bool {
    flag.get_value_names().is_some_and(|names| names.iter().any(|name| name == "FILE")) && !is_kubeconfig(flag)
}

fn is_kubeconfig(flag: &clap::Arg) -> bool {
    flag.get_long().is_some_and(|name| name.ends_with("kubeconfig"))
}

/// Checks the flags in combination.
fn check_combination(
    args: &ManifestsArgs,
    flags: &EffectiveFlags,
    settings: &Settings,
    files: &[File],
    errors: &mut ConfigErrors,
) {
    for (flag, path) in paths(flags).filter(|(flag, _)| !is_file(flag)) {
        let name = flag.get_long().unwrap_or_default();
        let (message, hint) = match is_kubeconfig(&flag) {
            true => ("the Pods use their service account, which the roles are bound to", IN_CLUSTER),
            false => ("is a directory, and the container's root file system is read-only", NO_DIRECTORY),
        };
        errors.push(ConfigError::flag(name, format!("{path:?}: {message}")).hint(hint));
    }
    for flag in ["tls-sni-cert-key", "webhook-tls-sni-cert-key"] {
        if flags.get(flag).is_some_and(|flag| flag.is_given && !flag.values.is_empty()) {
            errors.push(ConfigError::flag(flag, "its files are not put into the Secret").hint(NO_DIRECTORY));
        }
    }
    if settings.reach.client.master.is_some() {
        errors.push(ConfigError::flag("master", "the Pods would have no credentials").hint(IN_CLUSTER));
    }
    check_size(files, errors);
    if runs_without_election(settings) && matches!(Workload::of(args), Workload::Deployment { replicas: 2.. }) {
        let hint = "enable leader election, or use --replicas 1";
        errors.push(ConfigError::flag("leader-elect", "all Pods would run at the same time").hint(hint));
    }
}

/// Whether every Pod acts without a lease. A dry run needs no lease, and several may run at the same time.
fn runs_without_election(settings: &Settings) -> bool {
    settings.election.is_none() && !settings.manager.dry_run
}

const IN_CLUSTER: &str = "remove it; use --api-server for the address of the API server";
const NO_DIRECTORY: &str = "set one certificate and its key with the flags ending in -cert-file and -private-key-file, or add the flag \
                            and its volume to the printed manifests";

/// Maximum size of a Secret.
// upstream: MaxSecretSize.
const MAX_SECRET_SIZE: usize = 1024 * 1024;

fn check_size(files: &[File], errors: &mut ConfigErrors) {
    if files.iter().filter_map(|file| file.text.as_ref()).map(String::len).sum::<usize>() > MAX_SECRET_SIZE {
        errors.push(ConfigError::new("the files of all flags exceed the maximum size of a Secret, 1 MiB"));
    }
}

/// Returns warnings about valid flags with surprising effects.
fn own_warnings(args: &ManifestsArgs, settings: &Settings) -> Vec<String> {
    let mut warnings = Vec::new();
    if runs_without_election(settings) && args.kind == WorkloadKind::DaemonSet {
        warnings.push(
            "--leader-elect=false: only one node may match --node-selector, or several Pods run at the same time"
                .into(),
        );
    }
    let allows =
        |path: &str| settings.serving.authorization.always_allow_paths.iter().any(|given| is_within(path, given));
    if settings.serving.https.is_some() && !["/livez", "/readyz"].iter().all(|path| allows(path)) {
        let warning = "--authorization-always-allow-paths does not include /livez or /readyz: probes of the kubelet then succeed \
                       only while the API server is reachable and allows anonymous access to these paths";
        warnings.push(warning.to_owned());
    }
    let lease = settings.election.as_ref().map(|election| &election.lease.namespace);
    if let Some(namespace) = lease.filter(|name| ![SYSTEM, "default", &args.namespace].contains(&name.as_str())) {
        warnings.push(format!(
            "the namespace {namespace} of the Lease must exist, because the manifests contain a Role in it"
        ));
    }
    warnings
}

/// Whether a path matches; a trailing `*` matches any suffix.
fn is_within(path: &str, allowed: &str) -> bool {
    allowed.strip_suffix('*').map_or(path == allowed, |prefix| path.starts_with(prefix))
}

fn files(wanted: &[ProviderSpec], registry: &Registry, errors: &mut ConfigErrors) -> Vec<File> {
    let mut files: Vec<File> = Vec::new();
    for wanted in wanted {
        let earlier = files.iter().filter(|file| file.provider.as_ref() == Some(&wanted.name)).count();
        let factory = registry.get(&wanted.name);
        let conventional = factory.and_then(|factory| factory.config_location);
        let location = conventional.unwrap_or(DEFAULT_LOCATION);
        match read(wanted, registry) {
            Ok(_) if wanted.config.is_none() && environment::has_credentials(&wanted.name, registry) => {}
            Ok(Some(config)) => {
                // A template would overwrite an existing configuration in the cluster.
                let is_printed = conventional.is_none() || wanted.config.is_some();
                let text = is_printed.then(|| config.text().to_owned());
                let (flag, provider) = ("cloud-config".to_owned(), Some(wanted.name.clone()));
                let extension = factory.map_or("yaml", |factory| factory.config_extension);
                let name = file_name((&wanted.name, extension), &location, earlier);
                files.push(File { flag, provider, location, name, text });
            }
            Ok(None) => {}
            // Already reported when the provider was built.
            Err(error) if errors.is_empty() => errors.push(error),
            Err(_) => {}
        }
    }
    files
}

/// Returns a file name that is unique among the clouds of a provider.
fn file_name(default: (&str, &str), location: &ConfigLocation, earlier: usize) -> String {
    let (stem, extension) = location.file.rsplit_once('.').unwrap_or(default);
    match earlier {
        0 => format!("{stem}.{extension}"),
        _ => format!("{stem}-{}.{extension}", earlier + 1),
    }
}

/// Groups files by Secret.
fn secrets(files: Vec<File>) -> Vec<Secret> {
    let mut secrets: Vec<Secret> = Vec::new();
    for file in files {
        let ConfigLocation { secret: name, folder, .. } = file.location;
        let entry = file.text.map(|text| (file.name, text));
        match secrets.iter_mut().find(|secret| (secret.name, secret.folder) == (name, folder)) {
            Some(secret) => secret.files.extend(entry),
            None => secrets.push(Secret { name, folder, files: entry.into_iter().collect() }),
        }
    }
    secrets
}

/// Reads the configuration file, or returns the provider's template if no file is given.
fn read(wanted: &ProviderSpec, registry: &Registry) -> Result<Option<ConfigFile>, ConfigError> {
    if let Some(path) = &wanted.config {
        return ConfigFile::read(path).map(Some);
    }
    let template = registry.get(&wanted.name).map(|factory| (factory.template)()).filter(|text| !text.is_empty());
    Ok(template.map(|text| ConfigFile::from_text(format!("template of {}", wanted.name), text)))
}

fn serving(settings: &Settings) -> Option<Serving> {
    let https = settings.serving.https.as_ref()?;
    let address = Some(https.bind_address).filter(|address| !address.is_unspecified());
    Some(Serving { port: https.port, address })
}
