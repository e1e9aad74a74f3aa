//! What is installed: worked out from the flags of the command and those of the manager.

use std::any::TypeId;
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use bowline_cloud::{ConfigLocation, Registry};
use bowline_config::{ConfigError, ConfigErrors, ConfigFile};
use bowline_controllers::manager::ManagerOptions;
use bowline_settings::Settings;
use bowline_settings::argv::Argv;
use bowline_settings::effective::EffectiveFlags;
use bowline_settings::providers::{self, Wanted};
use bowline_settings::{argv, reach};
use clap::{CommandFactory as _, Parser as _};

use crate::cli::{Cli, Command, ManifestsArgs, WorkloadKind};
use crate::invocation::Manager;
use crate::permissions::{SYSTEM, Surroundings};

/// Where files are that have no place of their own: in the Secret of the installation.
const OWN: ConfigLocation = ConfigLocation { secret: "bowline", folder: "/etc/bowline", file: "" };

/// All that the manifests say.
#[derive(Debug)]
pub(super) struct Installation {
    pub(super) namespace: String,
    pub(super) image: String,
    /// The Secrets, in the same namespace, that say how to get it.
    pub(super) pull_secrets: Vec<String>,
    pub(super) workload: Workload,
    /// The label, and its value, of the nodes that the pods run on.
    pub(super) node_selector: (String, String),
    /// Where the pods reach the API server, if not at its Service.
    pub(super) api_server: Option<(String, u16)>,
    /// The manager's flags.
    pub(super) flags: Vec<String>,
    /// What the pods find in Secrets: the providers' configuration, and what the flags name.
    pub(super) secrets: Vec<Secret>,
    /// Where the manager answers; `None` if it does not.
    pub(super) serving: Option<Serving>,
    pub(super) manager: ManagerOptions,
    pub(super) surroundings: Surroundings,
    /// What a person should know.
    pub(super) remarks: Vec<String>,
}

/// A Secret, and where the pods have it.
#[derive(Debug)]
pub(super) struct Secret {
    pub(super) name: &'static str,
    pub(super) folder: &'static str,
    /// Names and texts; none if somebody else makes the Secret.
    pub(super) files: Vec<(String, String)>,
}

/// What runs the pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Workload {
    DaemonSet,
    Deployment { replicas: u16 },
}

/// Where the manager answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Serving {
    pub(super) port: u16,
    /// The one address it listens at, if it is one.
    pub(super) address: Option<IpAddr>,
}

impl Installation {
    /// Works it out, or says all that is wrong.
    pub(super) fn new(args: &ManifestsArgs, registry: &Registry) -> Result<Installation, ConfigErrors> {
        let Argv { arguments, mut errors, .. } = arguments(args);
        let Manager { args: args_of_manager, mut remarks, .. } =
            Manager::read("bowline".to_owned(), arguments.clone(), registry)
                .map_err(|error| ConfigError::new(error.to_string()))?;
        let mut settings = Settings::resolve(&args_of_manager, &mut errors);
        let read = |wanted: &Wanted| read(wanted, registry);
        let (reach, surroundings) = (&settings.reach, settings.reach.surroundings(&prometheus::Registry::new()));
        let providers =
            providers::build_from(&reach.providers, read, &reach.cluster, &surroundings, registry, &mut errors);
        let network = &args_of_manager.controllers.network;
        reach::check(&providers, &settings.reach, &settings.manager, network, &mut errors);
        reach::narrow(&mut settings.manager, &providers);
        let mut files = files(&settings.reach.providers, registry, &mut errors);
        files.extend(named_files(&args_of_manager.effective, &mut errors));
        check_whole(args, &args_of_manager.effective, &settings, &files, &mut errors);
        if !errors.is_empty() {
            return Err(errors);
        }
        remarks.extend(settings.remarks.iter().cloned());
        remarks.extend(own_remarks(args, &settings));
        remarks.extend(files.iter().filter_map(|file| file.missing(&args.namespace)));
        Ok(Installation {
            namespace: args.namespace.clone(),
            image: args.image.clone(),
            pull_secrets: args.image_pull_secret.clone(),
            workload: Workload::of(args),
            node_selector: args.node_selector.clone(),
            api_server: args.api_server.clone(),
            flags: flags(&arguments, &files),
            secrets: secrets(files),
            serving: serving(&settings),
            surroundings: Surroundings::of(&settings, &providers),
            manager: settings.manager,
            remarks,
        })
    }
}

impl Installation {
    /// With nothing said but the provider.
    pub(super) fn of_provider(name: &str, registry: &Registry) -> Result<Installation, ConfigErrors> {
        let cli = Cli::try_parse_from(["bowline", "manifests", "--cloud-provider", name]);
        match cli.map(|cli| cli.command) {
            Ok(Some(Command::Manifests(args))) => Installation::new(&args, registry),
            _ => Err(ConfigError::flag("cloud-provider", format!("{name:?} is no name")).into()),
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

/// The command line of the manager, as it would be on this machine.
fn arguments(args: &ManifestsArgs) -> Argv {
    let providers = args.cloud_provider.iter().map(|name| format!("--cloud-provider={name}"));
    let configs = args.cloud_config.iter().map(|file| format!("--cloud-config={file}"));
    let program = std::iter::once("bowline".to_owned());
    let all = program.chain(providers).chain(configs).chain(args.flags.iter().cloned());
    let mut argv = argv::tidy(all.map(OsString::from).collect(), &mut Cli::command());
    // Routes need to know where pods live; who does not say wants none.
    if !["cluster-cidr", "configure-cloud-routes", "config"].iter().any(|flag| argv.has(flag)) {
        argv.arguments.insert(1.min(argv.arguments.len()), "--configure-cloud-routes=false".into());
    }
    argv
}

/// The manager's flags, as they are in the container.
fn flags(arguments: &[OsString], files: &[File]) -> Vec<String> {
    let moved = |flag: &str| files.iter().any(|file| flag.strip_prefix("--").is_some_and(|flag| file.is_of(flag)));
    let flags = arguments.iter().skip(1).map(|flag| flag.to_string_lossy().into_owned());
    let (mut flags, rest): (Vec<_>, Vec<_>) =
        flags.filter(|flag| !moved(flag)).partition(|flag| flag.starts_with("--cloud-provider="));
    flags.extend(files.iter().map(|file| file.flag(files)));
    flags.extend(rest);
    flags
}

/// A file of this machine that is to be in the container.
struct File {
    /// Of the flag that names it, without dashes.
    flag: String,
    /// The provider whose configuration it is.
    provider: Option<String>,
    place: ConfigLocation,
    name: String,
    /// `None` if it is in the cluster already.
    text: Option<String>,
}

impl File {
    /// This flag, `name=value`, names the file here, or others in whose place it is.
    fn is_of(&self, flag: &str) -> bool {
        flag.strip_prefix(&self.flag).is_some_and(|rest| rest.starts_with('='))
    }

    /// The flag that names it there.
    fn flag(&self, all: &[File]) -> String {
        let is_only_one = all.iter().filter(|file| file.flag == self.flag).count() == 1;
        match self.provider.as_ref().filter(|_| !is_only_one) {
            None => format!("--{}={}", self.flag, self.path()),
            Some(provider) => format!("--{}={provider}={}", self.flag, self.path()),
        }
    }

    /// Where the container has it.
    fn path(&self) -> String {
        format!("{}/{}", self.place.folder, self.name)
    }

    /// What is to be done for a file that is not printed.
    fn missing(&self, namespace: &str) -> Option<String> {
        let (secret, name) = (self.place.secret, &self.name);
        self.text.is_none().then(|| {
            format!(
                "the Secret {secret} in {namespace} has to have {name}, which is not printed, so that one that is there \
                 stays as it is; make it with kubectl -n {namespace} create secret generic {secret} --from-file={name}, or \
                 give --cloud-config"
            )
        })
    }
}

/// The files that flags name, or the document of `--config` does in their place.
fn named_files(flags: &EffectiveFlags, errors: &mut ConfigErrors) -> Vec<File> {
    let named = paths(flags).filter(|(flag, _)| is_file(flag));
    // Those that are read for what they say are told already.
    let is_first = errors.is_empty();
    let mut files = Vec::new();
    for (flag, path) in named {
        let name = flag.get_long().unwrap_or_default();
        match ConfigFile::read(Path::new(&path)) {
            Ok(file) => {
                let (flag, text) = (name.to_owned(), file.text().to_owned());
                files.push(File { name: flag.clone(), flag, provider: None, place: OWN, text: Some(text) });
            }
            Err(problem) if is_first => errors.push(problem.hint(format!("--{name}: {READ_HERE}"))),
            Err(_) => {}
        }
    }
    files
}

const READ_HERE: &str = "the file is read on this machine, and goes into the Secret; for one that is on the nodes, add the \
                         flag and its volume to what is printed";

/// The flags that name files and folders, with what they name.
fn paths(flags: &EffectiveFlags) -> impl Iterator<Item = (clap::Arg, String)> {
    let named = |flag: &clap::Arg| {
        let given = flags.get(flag.get_long()?)?.values.last()?;
        let is_path = flag.get_value_parser().type_id() == TypeId::of::<PathBuf>();
        (is_path && !given.is_empty()).then(|| given.clone())
    };
    let all: Vec<_> = Cli::command().get_arguments().cloned().collect();
    all.into_iter().filter_map(move |flag| named(&flag).map(|path| (flag, path))).collect::<Vec<_>>().into_iter()
}

/// What the Secret can hold and the pods can use.
fn is_file(flag: &clap::Arg) -> bool {
    flag.get_value_names().is_some_and(|names| names.iter().any(|name| name == "FILE")) && !is_kubeconfig(flag)
}

fn is_kubeconfig(flag: &clap::Arg) -> bool {
    flag.get_long().is_some_and(|name| name.ends_with("kubeconfig"))
}

/// What can be said only of all of it.
fn check_whole(
    args: &ManifestsArgs,
    flags: &EffectiveFlags,
    settings: &Settings,
    files: &[File],
    errors: &mut ConfigErrors,
) {
    for (flag, path) in paths(flags).filter(|(flag, _)| !is_file(flag)) {
        let name = flag.get_long().unwrap_or_default();
        let (message, hint) = match is_kubeconfig(&flag) {
            true => ("the pods use their service account, which the roles are for", AS_A_POD),
            false => ("is a folder, and the root of the container cannot be written to", NO_FOLDER),
        };
        errors.push(ConfigError::flag(name, format!("{path:?}: {message}")).hint(hint));
    }
    for flag in ["tls-sni-cert-key", "webhook-tls-sni-cert-key"] {
        if flags.get(flag).is_some_and(|flag| flag.is_given && !flag.values.is_empty()) {
            errors.push(ConfigError::flag(flag, "its files are not put into the Secret").hint(NO_FOLDER));
        }
    }
    if settings.reach.client.master.is_some() {
        errors.push(ConfigError::flag("master", "the pods would have no credentials").hint(AS_A_POD));
    }
    check_size(files, errors);
    if works_unelected(settings) && matches!(Workload::of(args), Workload::Deployment { replicas: 2.. }) {
        let hint = "leave leader election on, or say --replicas 1";
        errors.push(ConfigError::flag("leader-elect", "all the pods would work at once").hint(hint));
    }
}

/// Whoever starts works. A dry run takes no lease, and does no harm beside others.
fn works_unelected(settings: &Settings) -> bool {
    settings.election.is_none() && !settings.manager.dry_run
}

const AS_A_POD: &str = "leave it out; --api-server says where the API server is";
const NO_FOLDER: &str = "name one certificate and its key with the flags that end with -cert-file and -private-key-file, or add \
                         the flag and its volume to what is printed";

/// What API servers take in one Secret.
// upstream: MaxSecretSize.
const LARGEST_SECRET: usize = 1024 * 1024;

fn check_size(files: &[File], errors: &mut ConfigErrors) {
    if files.iter().filter_map(|file| file.text.as_ref()).map(String::len).sum::<usize>() > LARGEST_SECRET {
        errors.push(ConfigError::new("the files of all flags are more than the 1 MiB that a Secret can hold"));
    }
}

/// What is right, and may surprise.
fn own_remarks(args: &ManifestsArgs, settings: &Settings) -> Vec<String> {
    let mut remarks = Vec::new();
    if works_unelected(settings) && args.kind == WorkloadKind::DaemonSet {
        remarks
            .push("--leader-elect=false: there must be one node for --node-selector, or several work at once".into());
    }
    let allows =
        |path: &str| settings.serving.authorization.always_allow_paths.iter().any(|given| is_within(path, given));
    if settings.serving.https.is_some() && !["/livez", "/readyz"].iter().all(|path| allows(path)) {
        let remark = "--authorization-always-allow-paths lacks /livez or /readyz: kubelets, which ask for them, are then \
                      answered only if the API server can be asked, and allows that to everybody";
        remarks.push(remark.to_owned());
    }
    let lease = settings.election.as_ref().map(|election| &election.lease.namespace);
    if let Some(namespace) = lease.filter(|name| ![SYSTEM, "default", &args.namespace].contains(&name.as_str())) {
        remarks.push(format!("the namespace {namespace} of the Lease has to be there, as a Role in it is printed"));
    }
    remarks
}

/// A path with * at its end is the beginning of others.
fn is_within(path: &str, allowed: &str) -> bool {
    allowed.strip_suffix('*').map_or(path == allowed, |beginning| path.starts_with(beginning))
}

fn files(wanted: &[Wanted], registry: &Registry, errors: &mut ConfigErrors) -> Vec<File> {
    let mut files: Vec<File> = Vec::new();
    for wanted in wanted {
        let earlier = files.iter().filter(|file| file.provider.as_ref() == Some(&wanted.name)).count();
        let conventional = registry.get(&wanted.name).and_then(|factory| factory.place);
        let place = conventional.unwrap_or(OWN);
        match read(wanted, registry) {
            Ok(Some(config)) => {
                // A template would take the place of what clusters may have there already.
                let is_printed = conventional.is_none() || wanted.config.is_some();
                let text = is_printed.then(|| config.text().to_owned());
                let (flag, provider) = ("cloud-config".to_owned(), Some(wanted.name.clone()));
                files.push(File { flag, provider, place, name: file_name(&wanted.name, &place, earlier), text });
            }
            Ok(None) => {}
            // Told already, when the provider was made.
            Err(problem) if errors.is_empty() => errors.push(problem),
            Err(_) => {}
        }
    }
    files
}

/// The second cloud of a kind has a second file.
fn file_name(provider: &str, place: &ConfigLocation, earlier: usize) -> String {
    let (stem, ending) = place.file.rsplit_once('.').unwrap_or((provider, "yaml"));
    match earlier {
        0 => format!("{stem}.{ending}"),
        _ => format!("{stem}-{}.{ending}", earlier + 1),
    }
}

/// The Secrets that these files are in.
fn secrets(files: Vec<File>) -> Vec<Secret> {
    let mut secrets: Vec<Secret> = Vec::new();
    for file in files {
        let ConfigLocation { secret: name, folder, .. } = file.place;
        let entry = file.text.map(|text| (file.name, text));
        match secrets.iter_mut().find(|secret| (secret.name, secret.folder) == (name, folder)) {
            Some(secret) => secret.files.extend(entry),
            None => secrets.push(Secret { name, folder, files: entry.into_iter().collect() }),
        }
    }
    secrets
}

/// The file that was given, or else the template of the provider, if it has one.
fn read(wanted: &Wanted, registry: &Registry) -> Result<Option<ConfigFile>, ConfigError> {
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
