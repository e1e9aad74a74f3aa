//! Interprets the command line: runs the manager or one of the commands.
//!
//! ```text
//!  argv ──► kind ──┬─ bowline COMMAND …                              ──► clap ──► Command
//!                   ├─ bowline plan|explain|orphans|check --FLAGS     ──► tidy ──► --config ──► clap ──► Command
//!                   ├─ bowline admission-server --FLAGS               ──► tidy ──► clap ──► Command
//!                   ├─ …/cloud-controller-manager-admission-server    ──► the same
//!                   ├─ bowline --FLAGS                                ──┐
//!                   ├─ …/cloud-controller-manager --FLAGS             ──┼─► tidy ──► --config ──► clap ──► Manager
//!                   └─ bowline /bin/…-cloud-controller-manager --FLAGS ─┘
//! ```
//!
//! The last form occurs with manifests whose `args` start with the program, because their original image has no entry point.

mod order;

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;

use bowline_cloud::{Factory, Registry};
use bowline_config::ConfigError;
use bowline_settings::argv::{self, Argv};
use bowline_settings::cli::ManagerArgs;
use bowline_settings::configuration;
use bowline_settings::effective::EffectiveFlags;
use bowline_settings::flags::go_bool;
use bowline_settings::providers::flags;
use clap::FromArgMatches as _;
use clap::error::ErrorKind;

use crate::cli::{self, WITH_MANAGER_FLAGS};
use crate::{Task, exit_code, output};

/// Program name of the Go managers, often with the name of the cloud as prefix.
const MANAGER: &str = "cloud-controller-manager";

/// Groups of flags that are accepted and have no effect.
const WITHOUT_EFFECT: [&str; 4] = ["IdleArgs", "FormerArgs", "KlogArgs", "CloudSpecificArgs"];

/// Command that serves admission webhooks. Program names of the Go managers' admission servers end with it.
const ADMISSION_SERVER: &str = "admission-server";

/// Environment variable of every Pod, by which a client finds the API server.
const IN_POD: &str = "KUBERNETES_SERVICE_HOST";

/// Parsed command line.
pub enum Invocation {
    /// Run the manager.
    Manager(Box<Manager>),
    /// Run a command.
    Command(Task),
}

/// Command line of the manager.
pub struct Manager {
    /// Program name.
    pub name: String,
    /// Its flags.
    pub args: ManagerArgs,
    /// Warnings, such as flags without effect.
    pub warnings: Vec<String>,
}

impl Invocation {
    /// Parses the command line, or exits with an error message, the help or the version.
    pub fn read(arguments: Vec<OsString>, registry: &Registry) -> Invocation {
        let arguments = admission_server_arguments(&arguments).unwrap_or(arguments);
        let arguments = if is_go_manager(&arguments) { arguments } else { in_order(arguments, registry) };
        let manager = match manager_invocation(&arguments) {
            // upstream: without flags the manager reports what is missing.
            None if arguments.len() < 2 && std::env::var_os(IN_POD).is_some() => Some(("bowline".to_owned(), 0)),
            None if arguments.len() < 2 => overview(registry),
            manager => manager,
        };
        match manager {
            Some((name, skip)) => {
                let manager = Manager::read(name, arguments.into_iter().skip(skip).collect(), registry);
                Invocation::Manager(Box::new(manager.unwrap_or_else(|error| exit(&error, 1))))
            }
            None => command(arguments, registry).unwrap_or_else(|error| exit(&error, exit_code::BAD_INPUT.into())),
        }
    }
}

/// Prints what the program is and what to try, and exits: successfully if a person can read it, otherwise as for any invalid command
/// line.
fn overview(registry: &Registry) -> ! {
    if io::stdout().is_terminal() {
        let printed = output::print(format_args!("{}", cli::overview(registry)));
        std::process::exit(i32::from(printed.is_err()))
    }
    let _ = io::stderr().write_all(cli::usage(registry).as_bytes());
    std::process::exit(exit_code::BAD_INPUT.into())
}

/// Moves flags behind the command, and rewrites `bowline help COMMAND` to `bowline COMMAND --help`.
fn in_order(mut arguments: Vec<OsString>, registry: &Registry) -> Vec<OsString> {
    if arguments.get(1).is_some_and(|word| word == "help") {
        arguments.remove(1);
        if !arguments.iter().any(|word| word == "--help-all") {
            arguments.push("--help".into());
        }
    }
    order::reorder(arguments, &cli::definition(registry))
}

/// Prints clap's help or error, or the version, and exits.
fn exit(error: &clap::Error, code: i32) -> ! {
    let printed = match error.kind() {
        // Without the name of the command.
        ErrorKind::DisplayVersion => writeln!(io::stdout(), "{}", version()),
        _ => error.print(),
    };
    let printed = printed.and_then(|()| io::stdout().flush());
    // Failing to print the requested help is an error.
    std::process::exit(if error.use_stderr() { code } else { i32::from(printed.is_err()) })
}

fn command(arguments: Vec<OsString>, registry: &Registry) -> Result<Invocation, clap::Error> {
    let mut definition = cli::definition(registry);
    let argv = normalized(arguments, &mut definition, registry);
    // Before clap: a command prints its version without the arguments that it requires.
    if let Ok(VersionRequest::Print(text)) = version_request(argv.values("version").last().map(version_value)) {
        print_version(&text);
    }
    let matches = definition.try_get_matches_from_mut(argv.arguments)?;
    let mut cli = cli::Cli::from_arg_matches(&matches)?;
    match &mut cli.command {
        Some(cli::Command::AdmissionServer(args)) => args.errors = argv.errors,
        Some(command) => {
            if let Some(args) = command.manager_args() {
                (args.errors, args.election.migration) = (argv.errors, argv.migration);
                args.effective = effective(&definition, &matches);
                args.provider_controllers = flags::controllers(registry);
            }
        }
        None => {}
    }
    let missing = || definition.error(ErrorKind::MissingSubcommand, "missing command");
    cli.command.map(|command| Invocation::Command(Task(command))).ok_or_else(missing)
}

/// Returns the effective flags of the command that the command line names.
fn effective(definition: &clap::Command, matches: &clap::ArgMatches) -> EffectiveFlags {
    let command = matches.subcommand().and_then(|(name, flags)| Some((definition.find_subcommand(name)?, flags)));
    command.map(|(command, flags)| EffectiveFlags::new(command, flags)).unwrap_or_default()
}

/// Normalizes the command line of a command with flags of the manager as the manager does; leaves any other command line unchanged.
fn normalized(arguments: Vec<OsString>, definition: &mut clap::Command, registry: &Registry) -> Argv {
    definition.build();
    let is_normalized = |name: &&str| WITH_MANAGER_FLAGS.contains(name) || *name == ADMISSION_SERVER;
    let name = arguments.get(1).and_then(|name| name.to_str()).filter(is_normalized);
    let Some(command) = name.and_then(|name| definition.find_subcommand_mut(name)) else {
        return Argv { arguments, ..Argv::default() };
    };
    // Arguments pasted from a manifest may start with the program.
    let manager = arguments.get(2).and_then(manager_name);
    let flags = arguments.iter().skip(if manager.is_some() { 3 } else { 2 });
    let mut argv = argv::normalize(arguments.iter().skip(1).take(1).chain(flags).cloned().collect(), command);
    configuration::prepend(&mut argv);
    default_cloud_provider(&manager.unwrap_or_default(), &mut argv, registry);
    argv.arguments.insert(0, "bowline".into());
    argv
}

/// Whether the program, or the first argument, has the name of a Go manager, which has no commands.
fn is_go_manager(arguments: &[OsString]) -> bool {
    arguments.iter().take(2).any(|argument| manager_name(argument).is_some())
}

/// Returns the program name if the command line runs the manager, and the number of arguments before that name.
fn manager_invocation(arguments: &[OsString]) -> Option<(String, usize)> {
    if let Some(name) = arguments.first().and_then(manager_name) {
        return Some((name, 0));
    }
    let first = arguments.get(1)?;
    match manager_name(first) {
        Some(name) => Some((name, 1)),
        None => first.to_str().is_some_and(|first| first.starts_with('-')).then(|| ("bowline".to_owned(), 0)),
    }
}

/// Rewrites the command line of a Go manager's admission server to that of the command, with the name of the manager as its first
/// argument.
fn admission_server_arguments(arguments: &[OsString]) -> Option<Vec<OsString>> {
    let manager = |argument: &OsString| {
        let manager = Path::new(argument).file_name()?.to_str()?.strip_suffix(ADMISSION_SERVER)?.strip_suffix('-')?;
        manager_name(&manager.into())
    };
    let (index, manager) = arguments.iter().take(2).enumerate().find_map(|(i, word)| Some((i, manager(word)?)))?;
    let command = ["bowline", ADMISSION_SERVER, &manager].map(OsString::from);
    Some(command.into_iter().chain(arguments.iter().skip(index + 1).cloned()).collect())
}

/// Returns the file name, if it is that of a Go manager.
fn manager_name(argument: &OsString) -> Option<String> {
    let name = Path::new(argument).file_name().and_then(OsStr::to_str)?;
    let is_manager = name == MANAGER || name.strip_suffix(MANAGER).is_some_and(|cloud| cloud.ends_with('-'));
    is_manager.then(|| name.to_owned())
}

impl Manager {
    /// Parses the flags, and those in the file of `--config`. The first argument is the program name.
    pub fn read(name: String, arguments: Vec<OsString>, registry: &Registry) -> Result<Manager, clap::Error> {
        let mut definition = definition(&name, &arguments, registry);
        let mut argv = argv::normalize(arguments, &mut definition);
        configuration::prepend(&mut argv);
        default_cloud_provider(&name, &mut argv, registry);
        default_flags(&name, &mut argv, registry);
        let mut args = ManagerArgs::read(&mut definition, argv)?;
        args.provider_controllers = flags::controllers(registry);
        let mut warnings = no_effect_warnings(&definition, &args.effective);
        match version_request(args.generic.version.as_deref()) {
            Ok(VersionRequest::Nothing) => {}
            Ok(VersionRequest::Print(text)) => print_version(&text),
            Ok(VersionRequest::Warn(warning)) => warnings.push(warning),
            Err(error) => args.errors.push(error),
        }
        Ok(Manager { name, args, warnings })
    }
}

/// Flags of the manager; under the name `bowline` with the commands, for the help.
fn definition(name: &str, arguments: &[OsString], registry: &Registry) -> clap::Command {
    if name == "bowline" {
        let is_summary = !arguments.iter().any(|argument| argument == "--help-all");
        return cli::with_groups(cli::definition(registry), is_summary);
    }
    let manager = ManagerArgs::definition(name).after_help(cli::after_help(registry));
    cli::complete_manager(flags::add_to(manager, registry))
}

/// Sets `--cloud-provider` to NAME if the program is called `NAME-cloud-controller-manager` and the flag is not given.
fn default_cloud_provider(name: &str, argv: &mut Argv, registry: &Registry) {
    if let Some(factory) = factory_of(name, registry) {
        argv.add_default(&format!("cloud-provider={}", factory.name));
    }
}

/// Sets the flags that the Go manager of this name sets by default, and that are not given.
fn default_flags(name: &str, argv: &mut Argv, registry: &Registry) {
    let flags = factory_of(name, registry).map(|factory| factory.default_flags);
    flags.iter().copied().flatten().for_each(|flag| argv.add_default(flag));
}

/// Returns the provider NAME of a program called `NAME-cloud-controller-manager`.
fn factory_of<'a>(name: &str, registry: &'a Registry) -> Option<&'a Factory> {
    registry.get(name.strip_suffix(MANAGER)?.strip_suffix('-')?)
}

/// Returns a warning for each given flag without effect, with the reason from its help.
fn no_effect_warnings(definition: &clap::Command, flags: &EffectiveFlags) -> Vec<String> {
    let groups = definition.get_groups().filter(|group| WITHOUT_EFFECT.contains(&group.get_id().as_str()));
    let ids: Vec<_> = groups.flat_map(|group| group.get_args()).collect();
    let without_effect = definition.get_arguments().filter(|flag| ids.contains(&flag.get_id()));
    let given = without_effect.filter_map(|flag| {
        let name = flag.get_long()?;
        flags.get(name)?.is_given.then(|| format!("--{name} has no effect: {}", cli::meaning(flag)))
    });
    given.collect()
}

/// Prints the version and exits.
fn print_version(text: &str) -> ! {
    let printed = output::print(format_args!("{text}\n"));
    std::process::exit(i32::from(printed.is_err()))
}

/// Name and version of the program.
fn version() -> String {
    format!("bowline {}", env!("CARGO_PKG_VERSION"))
}

/// Value of `--version`, which needs none.
fn version_value(given: &str) -> &str {
    if given.is_empty() { "true" } else { given }
}

/// Effect of `--version`.
enum VersionRequest {
    Nothing,
    Print(String),
    Warn(String),
}

// upstream: Go booleans, `raw`, and a version that the program then reports.
fn version_request(value: Option<&str>) -> Result<VersionRequest, ConfigError> {
    let version = env!("CARGO_PKG_VERSION");
    match value {
        None => Ok(VersionRequest::Nothing),
        Some("raw") => {
            let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
            let build = if cfg!(debug_assertions) { "debug" } else { "release" };
            Ok(VersionRequest::Print(format!(
                "bowline{{version: {version:?}, build: {build:?}, platform: \"{os}/{arch}\"}}"
            )))
        }
        Some(other) if other.starts_with('v') => Ok(VersionRequest::Warn(format!(
            "--version={other} has no effect: bowline reports its own version {version}"
        ))),
        Some(other) => {
            match go_bool(other) {
                Ok(true) => Ok(VersionRequest::Print(self::version())),
                Ok(false) => Ok(VersionRequest::Nothing),
                Err(_) => Err(ConfigError::flag("version", format!("invalid value {other:?}"))
                    .hint("use --version or --version=raw")),
            }
        }
    }
}

#[cfg(test)]
mod tests;
