//! What is installed: worked out from the flags of the command and those of the manager.

use std::ffi::OsString;
use std::net::IpAddr;

use bowline_cloud::Registry;
use bowline_config::{ConfigFile, Problem, Problems};
use bowline_controllers::manager::ManagerOptions;
use clap::Parser as _;

use crate::cli::{Cli, Command, ManifestsArgs, WorkloadKind};
use crate::invocation::Manager;
use crate::providers::{self, Wanted};
use crate::rights::Surroundings;
use crate::settings::Settings;
use crate::{argv, reach};

/// Where the provider's files are in the container.
const FILES: &str = "/etc/bowline";

/// All that the manifests say.
#[derive(Debug)]
pub(super) struct Installation {
    pub(super) namespace: String,
    pub(super) image: String,
    pub(super) workload: Workload,
    /// The label, and its value, of the nodes that the pods run on.
    pub(super) node_selector: (String, String),
    /// Where the pods reach the API server, if not at its Service.
    pub(super) api_server: Option<(String, u16)>,
    /// The manager's flags.
    pub(super) flags: Vec<String>,
    /// The providers' configuration: names and texts.
    pub(super) files: Vec<(String, String)>,
    /// Where the manager answers; `None` if it does not.
    pub(super) serving: Option<Serving>,
    pub(super) manager: ManagerOptions,
    pub(super) surroundings: Surroundings,
    /// What a person should know.
    pub(super) remarks: Vec<String>,
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
    pub(super) fn new(args: &ManifestsArgs, registry: &Registry) -> Result<Installation, Problems> {
        let argv::Argv { arguments, problems: unknown, .. } = argv::tidy(arguments(args), &mut crate::cli());
        let Manager { args: args_of_manager, mut remarks, mut problems, .. } =
            Manager::read("bowline".to_owned(), arguments.clone()).map_err(|error| Problem::new(error.to_string()))?;
        problems.extend(unknown);
        let settings = Settings::resolve(&args_of_manager, &mut problems);
        let read = |wanted: &Wanted| read(wanted, registry);
        let providers =
            providers::build_from(&settings.reach.providers, read, &settings.reach.cluster, registry, &mut problems);
        let network = &args_of_manager.controllers.network;
        reach::check(&providers, &settings.reach, &settings.manager, network, &mut problems);
        let files = files(&settings.reach.providers, registry, &mut problems);
        if !problems.is_empty() {
            return Err(problems);
        }
        remarks.extend(settings.remarks.iter().cloned());
        Ok(Installation {
            namespace: args.namespace.clone(),
            image: args.image.clone(),
            workload: Workload::of(args),
            node_selector: args.node_selector.clone(),
            api_server: args.api_server.clone(),
            flags: flags(&arguments, &files),
            files: files.into_iter().map(|file| (file.name, file.text)).collect(),
            serving: serving(&settings),
            surroundings: surroundings(&settings),
            manager: settings.manager,
            remarks,
        })
    }
}

impl Installation {
    /// With nothing said but the provider.
    pub(super) fn of_provider(name: &str, registry: &Registry) -> Result<Installation, Problems> {
        let cli = Cli::try_parse_from(["bowline", "manifests", "--cloud-provider", name]);
        match cli.map(|cli| cli.command) {
            Ok(Some(Command::Manifests(args))) => Installation::new(&args, registry),
            _ => Err(Problem::flag("cloud-provider", format!("{name:?} is no name")).into()),
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
fn arguments(args: &ManifestsArgs) -> Vec<OsString> {
    let providers = args.cloud_provider.iter().map(|name| format!("--cloud-provider={name}"));
    let configs = args.cloud_config.iter().map(|file| format!("--cloud-config={file}"));
    let names =
        |flag: &str| args.flags.iter().any(|given| given.trim_start_matches('-').replace('_', "-").starts_with(flag));
    // Routes need to know where pods live; who does not say wants none.
    let is_silent = !names("cluster-cidr") && !names("configure-cloud-routes");
    let no_routes = is_silent.then(|| "--configure-cloud-routes=false".to_owned());
    let program = std::iter::once("bowline".to_owned());
    let all = program.chain(providers).chain(configs).chain(no_routes).chain(args.flags.iter().cloned());
    all.map(OsString::from).collect()
}

/// The manager's flags, as they are in the container.
fn flags(arguments: &[OsString], files: &[File]) -> Vec<String> {
    let flags = arguments.iter().skip(1).map(|flag| flag.to_string_lossy().into_owned());
    let (mut flags, rest): (Vec<_>, Vec<_>) = flags
        .filter(|flag| !flag.starts_with("--cloud-config="))
        .partition(|flag| flag.starts_with("--cloud-provider="));
    flags.extend(files.iter().map(|file| match files {
        [_] => format!("--cloud-config={FILES}/{}", file.name),
        _ => format!("--cloud-config={}={FILES}/{}", file.provider, file.name),
    }));
    flags.extend(rest);
    flags
}

/// A provider's configuration.
struct File {
    provider: String,
    name: String,
    text: String,
}

fn files(wanted: &[Wanted], registry: &Registry, problems: &mut Problems) -> Vec<File> {
    let mut files: Vec<File> = Vec::new();
    for wanted in wanted {
        let earlier = files.iter().filter(|file| file.provider == wanted.name).count();
        let name = match earlier {
            0 => format!("{}.yaml", wanted.name),
            _ => format!("{}-{}.yaml", wanted.name, earlier + 1),
        };
        match read(wanted, registry) {
            Ok(Some(config)) => {
                files.push(File { provider: wanted.name.clone(), name, text: config.text().to_owned() });
            }
            Ok(None) => {}
            // Told already, when the provider was made.
            Err(problem) if problems.is_empty() => problems.push(problem),
            Err(_) => {}
        }
    }
    files
}

/// The file that was given, or else the template of the provider, if it has one.
fn read(wanted: &Wanted, registry: &Registry) -> Result<Option<ConfigFile>, Problem> {
    if let Some(path) = &wanted.config {
        return ConfigFile::read(path).map(Some);
    }
    let template = registry.get(&wanted.name).map(|factory| factory.template).filter(|text| !text.is_empty());
    Ok(template.map(|text| ConfigFile::from_text(format!("template of {}", wanted.name), text)))
}

fn serving(settings: &Settings) -> Option<Serving> {
    let https = settings.serving.https.as_ref()?;
    let address = Some(https.bind_address).filter(|address| !address.is_unspecified());
    Some(Serving { port: https.port, address })
}

fn surroundings(settings: &Settings) -> Surroundings {
    let election = settings.election.as_ref();
    let second = election.and_then(|election| Some(election.second_lease(election.migration.as_ref()?)));
    Surroundings {
        leases: election.map(|election| election.lease.clone()).into_iter().chain(second).collect(),
        serving: settings.serving.https.is_some(),
        own_accounts: settings.own_credentials,
    }
}
