//! What the program was told to do: to be the manager, or one of the commands.
//!
//! ```text
//!  argv ──► whose? ─┬─ bowline COMMAND …                              ──► clap ──► Command
//!                   ├─ bowline plan|explain|orphans|check --FLAGS     ──► tidy ──► --config ──► clap ──► Command
//!                   ├─ bowline --FLAGS                                ──┐
//!                   ├─ …/cloud-controller-manager --FLAGS             ──┼─► tidy ──► --config ──► clap ──► Manager
//!                   └─ bowline /bin/…-cloud-controller-manager --FLAGS ─┘
//! ```
//!
//! The last is what comes of a manifest whose `args` begin with the program, because the image it was written for has no
//! entry point.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::path::Path;

use bowline_cloud::Registry;
use bowline_config::ConfigError;
use bowline_settings::argv::{self, Argv};
use bowline_settings::cli::ManagerArgs;
use bowline_settings::configuration;
use bowline_settings::effective::EffectiveFlags;
use bowline_settings::flags::go_bool;
use clap::FromArgMatches as _;

use crate::Task;
use crate::cli::{self};
use crate::output;

/// The name of the Go managers, alone or behind that of their cloud.
const MANAGER: &str = "cloud-controller-manager";

/// The groups of flags that are taken and have no effect.
const WITHOUT_EFFECT: [&str; 4] = ["IdleArgs", "FormerArgs", "KlogArgs", "CloudSpecificArgs"];

/// The commands that take all flags of the manager, in all spellings that it takes.
const WITH_MANAGER_FLAGS: [&str; 4] = ["plan", "explain", "orphans", "check"];

/// The commands whose exit code 2 is a result, so that wrong flags end them with 1.
const WITH_RESULTS: [&str; 3] = ["plan", "explain", "check"];

/// What to do.
pub enum Invocation {
    /// Run the manager.
    Manager(Box<Manager>),
    /// Run a command.
    Command(Task),
}

/// To be the manager.
pub struct Manager {
    /// As what the program was called.
    pub name: String,
    /// Its flags.
    pub args: ManagerArgs,
    /// What was right and has no effect.
    pub remarks: Vec<String>,
}

impl Invocation {
    /// Reads the command line, or ends the program with a message, the help or the version.
    pub fn read(arguments: Vec<OsString>, registry: &Registry) -> Invocation {
        match managed(&arguments) {
            Some((name, skip)) => {
                let manager = Manager::read(name, arguments.into_iter().skip(skip).collect(), registry);
                Invocation::Manager(Box::new(manager.unwrap_or_else(|error| exit(&error, 1))))
            }
            None => {
                let name = arguments.get(1).and_then(|name| name.to_str()).unwrap_or_default();
                let finds = WITH_RESULTS.contains(&name);
                command(arguments, registry).unwrap_or_else(|error| exit(&error, if finds { 1 } else { 2 }))
            }
        }
    }
}

/// Ends the program with what clap has to say: the help, or what is wrong.
fn exit(error: &clap::Error, code: i32) -> ! {
    let printed = error.print().and_then(|()| io::stdout().flush());
    // Help that was asked for and cannot be written is a failure.
    std::process::exit(if error.use_stderr() { code } else { i32::from(printed.is_err()) })
}

fn command(arguments: Vec<OsString>, registry: &Registry) -> Result<Invocation, clap::Error> {
    let mut definition = cli::definition(registry);
    let argv = tidied(arguments, &mut definition, registry);
    let matches = definition.try_get_matches_from_mut(argv.arguments)?;
    let mut cli = cli::Cli::from_arg_matches(&matches)?;
    if let Some(args) = cli.command.as_mut().and_then(cli::Command::manager_args) {
        (args.errors, args.election.migration) = (argv.errors, argv.migration);
    }
    let missing = || definition.error(clap::error::ErrorKind::MissingSubcommand, "a command is missing");
    cli.command.map(|command| Invocation::Command(Task(command))).ok_or_else(missing)
}

/// The command line of a command that takes the manager's flags, tidied as the manager's own is; any other as it is.
fn tidied(arguments: Vec<OsString>, definition: &mut clap::Command, registry: &Registry) -> Argv {
    definition.build();
    let name = arguments.get(1).and_then(|name| name.to_str()).filter(|name| WITH_MANAGER_FLAGS.contains(name));
    let Some(command) = name.and_then(|name| definition.find_subcommand_mut(name)) else {
        return Argv { arguments, ..Argv::default() };
    };
    // What was pasted may begin with the program.
    let manager = arguments.get(2).and_then(manager_name);
    let flags = arguments.iter().skip(if manager.is_some() { 3 } else { 2 });
    let mut argv = argv::tidy(arguments.iter().skip(1).take(1).chain(flags).cloned().collect(), command);
    configuration::prepend(&mut argv);
    name_cloud(&manager.unwrap_or_default(), &mut argv, registry);
    argv.arguments.insert(0, "bowline".into());
    argv
}

/// The name under which the program is the manager, and how many arguments come before the one that is its name.
fn managed(arguments: &[OsString]) -> Option<(String, usize)> {
    if let Some(name) = arguments.first().and_then(manager_name) {
        return Some((name, 0));
    }
    let first = arguments.get(1)?;
    match manager_name(first) {
        Some(name) => Some((name, 1)),
        None => first.to_str().is_some_and(|first| first.starts_with('-')).then(|| ("bowline".to_owned(), 0)),
    }
}

/// The file name of a path to a Go manager, or to this program under such a name.
fn manager_name(argument: &OsString) -> Option<String> {
    let name = Path::new(argument).file_name().and_then(OsStr::to_str)?;
    let is_manager = name == MANAGER || name.strip_suffix(MANAGER).is_some_and(|cloud| cloud.ends_with('-'));
    is_manager.then(|| name.to_owned())
}

impl Manager {
    /// Reads its flags, and those of `--config`. The first argument is the program's name.
    pub fn read(name: String, arguments: Vec<OsString>, registry: &Registry) -> Result<Manager, clap::Error> {
        let mut definition = definition(&name, registry);
        let mut argv = argv::tidy(arguments, &mut definition);
        configuration::prepend(&mut argv);
        name_cloud(&name, &mut argv, registry);
        let mut args = ManagerArgs::read(&mut definition, argv)?;
        let mut remarks = idle_remarks(&definition, &args.effective);
        match asked_version(args.generic.version.as_deref()) {
            Ok(Asked::Nothing) => {}
            Ok(Asked::Print(text)) => {
                let printed = output::print(format_args!("{text}\n"));
                std::process::exit(i32::from(printed.is_err()))
            }
            Ok(Asked::Remark(remark)) => remarks.push(remark),
            Err(problem) => args.errors.push(problem),
        }
        Ok(Manager { name, args, remarks })
    }
}

/// The flags of the manager; with those of `bowline`, its commands, too, for the help.
fn definition(name: &str, registry: &Registry) -> clap::Command {
    if name == "bowline" {
        // What was wrong is taken out already, so that nothing may be left.
        return cli::definition(registry).arg_required_else_help(false);
    }
    ManagerArgs::definition(name).after_help(cli::after_help(registry))
}

/// Whoever is called `NAME-cloud-controller-manager` serves that cloud, unless it is told otherwise.
fn name_cloud(name: &str, argv: &mut Argv, registry: &Registry) {
    let cloud = name.strip_suffix(MANAGER).and_then(|cloud| cloud.strip_suffix('-'));
    let Some(cloud) = cloud.filter(|cloud| registry.get(cloud).is_some()) else { return };
    if !argv.has("cloud-provider") {
        argv.arguments.insert(1.min(argv.arguments.len()), format!("--cloud-provider={cloud}").into());
    }
}

/// One remark for each flag that is given and has no effect, with the reason that its help gives.
fn idle_remarks(definition: &clap::Command, flags: &EffectiveFlags) -> Vec<String> {
    let groups = definition.get_groups().filter(|group| WITHOUT_EFFECT.contains(&group.get_id().as_str()));
    let ids: Vec<_> = groups.flat_map(|group| group.get_args()).collect();
    let idle = definition.get_arguments().filter(|flag| ids.contains(&flag.get_id()));
    let given = idle.filter_map(|flag| {
        let name = flag.get_long()?;
        let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
        flags.get(name)?.is_given.then(|| format!("--{name} has no effect: {}", help.trim_end_matches('.')))
    });
    given.collect()
}

/// What `--version` asks for.
enum Asked {
    Nothing,
    Print(String),
    Remark(String),
}

// upstream: true and false in all their spellings, raw, and a version that is reported from then on.
fn asked_version(value: Option<&str>) -> Result<Asked, ConfigError> {
    let version = env!("CARGO_PKG_VERSION");
    match value {
        None => Ok(Asked::Nothing),
        Some("raw") => {
            let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
            let build = if cfg!(debug_assertions) { "debug" } else { "release" };
            Ok(Asked::Print(format!("bowline{{version: {version:?}, build: {build:?}, platform: \"{os}/{arch}\"}}")))
        }
        Some(other) if other.starts_with('v') => {
            Ok(Asked::Remark(format!("--version={other} has no effect: this is bowline {version}, and it says so")))
        }
        Some(other) => match go_bool(other) {
            Ok(true) => Ok(Asked::Print(format!("bowline {version}"))),
            Ok(false) => Ok(Asked::Nothing),
            Err(_) => Err(ConfigError::flag("version", format!("{other:?} is not right"))
                .hint("write --version or --version=raw")),
        },
    }
}

#[cfg(test)]
mod tests;
