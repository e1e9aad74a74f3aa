//! `bowline playground`: runs a small cluster and a local cloud in this process, with a guided tour.
//!
//! ```text
//!  on a terminal            ──► guide: one step at a time, goes on with Enter
//!  --script, no terminal    ──► all steps, each performed at once; exit code 0 or 1
//!  --no-tour                ──► the first two steps, then the commands of the others, for another terminal
//!  example                  ──► the example manifests; nothing is started
//! ```

mod console;
mod example;
mod guide;
mod keys;
mod log;
mod narrated;
mod page;
mod screen;
mod setup;

use std::path::PathBuf;

use anyhow::Context as _;
use bowline_apiserver::StartError;
use bowline_playground::{Playground, PlaygroundError, PlaygroundOptions, Tour};
use bowline_runtime::Shutdown;
use bowline_settings::BadInput;
use bowline_telemetry::logging;

use crate::cli::{PlaygroundArgs, PlaygroundCommand};
use crate::kubeconfig;
use crate::output::{print, say};
use crate::owner_token::{TokenFile, default_path};
use crate::progress;
use crate::terminal::{Terminal, style};
use console::Console;
use guide::Guide;
use log::FoldedLog;
use narrated::Narrated;
use setup::Setup;

/// Extension of the file next to the kubeconfig with the token of the cloud's owner, where the default path cannot be used.
const TOKEN_EXTENSION: &str = "cloud-token";

/// Number of steps that always run automatically: before and after the controllers start.
const AUTOMATIC_STEPS: usize = 2;

/// How the tour runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// One step at a time.
    Guided,
    /// All steps at once.
    Script,
    /// The commands of the steps are printed.
    NoTour,
}

impl Mode {
    fn new(args: &PlaygroundArgs) -> Mode {
        match (args.script, args.no_tour) {
            (_, true) => Mode::NoTour,
            (false, false) if Terminal::is_interactive() => Mode::Guided,
            _ => Mode::Script,
        }
    }
}

pub(crate) async fn run(args: PlaygroundArgs) -> anyhow::Result<()> {
    if let Some(PlaygroundCommand::Example(args)) = &args.command {
        return example::run(args);
    }
    kubeconfig::check(&args.kubeconfig)?;
    let mode = Mode::new(&args);
    let log = start_log(&args, mode)?;
    // Before the ready line is printed: a reader of that line may send a signal at once.
    let shutdown = Shutdown::on_signals().context("cannot listen for signals")?;
    let starting = Playground::start(PlaygroundOptions::from(&args));
    let mut playground = progress::during("starting the API server and the cloud", starting).await.map_err(to_error)?;
    let outcome = tour_playground(&mut playground, &args, mode, log, &shutdown).await;
    playground.shutdown().await;
    if mode == Mode::Guided && outcome.is_ok() {
        say(format_args!("The playground has stopped. It leaves only the file {}.\n", args.kubeconfig.display()));
    }
    outcome
}

/// Starts the log: in memory for the guide, otherwise on standard error; in both cases also in a file, if one is named.
fn start_log(args: &PlaygroundArgs, mode: Mode) -> anyhow::Result<FoldedLog> {
    let file = args.log_file.as_deref();
    let log = FoldedLog::new(file).map_err(|error| {
        BadInput(format!("--log-file {}: {error}", file.unwrap_or(std::path::Path::new("")).display()))
    })?;
    let started = match mode == Mode::Guided || file.is_some() {
        true => {
            let log = log.clone();
            logging::start_to(move || log.clone())
        }
        false => logging::start_plain(progress::stderr),
    };
    started.map_err(|error| BadInput(error.to_string()))?;
    Ok(log)
}

async fn tour_playground(
    playground: &mut Playground,
    args: &PlaygroundArgs,
    mode: Mode,
    log: FoldedLog,
    shutdown: &Shutdown,
) -> anyhow::Result<()> {
    let server = &playground.server;
    kubeconfig::write(&args.kubeconfig, &server.kubeconfig())?;
    let (_token, path) = write_token(playground, args)?;
    let console = Console::start(playground, args)?;
    say(format_args!("API server ready at {} (kubeconfig {})\n", server.url(), args.kubeconfig.display()));
    if let Some(console) = &console {
        say(format_args!("Console ready at {}\n", console.url()));
    }
    let setup = Setup::new(&args.kubeconfig, playground.cloud_url(), path);
    let tour = playground.tour();
    match mode {
        Mode::Guided => {
            let mut guide = Guide::new(log, args.show_log).context("cannot set the modes of the terminal")?;
            let ended = shutdown.or(guide.run(&tour, &setup, playground)).await;
            guide.finish();
            // Stopped by a signal: the regular end.
            ended.unwrap_or(Ok(()))?;
        }
        Mode::Script => {
            let finished = shutdown.or(tour.run(usize::MAX, &mut Narrated::new(playground), say)).await;
            finished.context("stopped before the end of the tour")??;
            let hint =
                if args.script { "" } else { "To keep the cluster running without a terminal, use --no-tour.\n" };
            print(format_args!("\nAll {} steps passed.\n{hint}", tour.steps().len()))?;
        }
        Mode::NoTour => shutdown.or(run_without_tour(playground, &tour, &setup)).await.unwrap_or(Ok(()))?,
    }
    Ok(())
}

/// Writes the owner's token where `bowline cloud` finds it; if that is impossible, beside the kubeconfig, and returns that path.
fn write_token(playground: &Playground, args: &PlaygroundArgs) -> anyhow::Result<(TokenFile, Option<PathBuf>)> {
    let url = playground.cloud_url();
    let found = default_path(url.trim_start_matches("http://"));
    match TokenFile::write(found, playground.owner_token()) {
        Ok(file) => Ok((file, None)),
        Err(_) => {
            let beside = args.kubeconfig.with_extension(TOKEN_EXTENSION);
            Ok((TokenFile::write(beside.clone(), playground.owner_token())?, Some(beside)))
        }
    }
}

/// Runs the first steps, prints the others, and waits until the playground ends.
async fn run_without_tour(playground: &mut Playground, tour: &Tour, setup: &Setup) -> anyhow::Result<()> {
    tour.run(AUTOMATIC_STEPS, &mut Narrated::new(playground), say).await?;
    say(format_args!("{}", instructions(tour, setup)));
    Err(playground.failure().await.into())
}

/// Returns the commands to paste into another terminal.
fn instructions(tour: &Tour, setup: &Setup) -> String {
    let views = tour.steps().get(AUTOMATIC_STEPS - 1).map(|step| &step.views[..]).unwrap_or_default();
    let list = |commands: &[String]| commands.iter().map(|command| format!("  {command}\n")).collect::<String>();
    let hint = setup.hint().map(|hint| format!("\n{hint}\n")).unwrap_or_default();
    format!(
        "
Continue in another terminal:

{}{}{hint}{}
The API, the controllers, the load balancers and their traffic are real. The kubelets and the scheduler are simulated; no
containers run, the Nodes answer for them.
Press Ctrl-C to stop. No state is kept.
",
        list(&setup.commands()),
        list(views),
        tour.instructions(AUTOMATIC_STEPS + 1),
    )
}

/// Reports options that the API server rejects as invalid flags.
fn to_error(error: PlaygroundError) -> anyhow::Error {
    match error {
        PlaygroundError::Server(StartError::Options(what)) => BadInput(what).into(),
        PlaygroundError::PodNetwork(_) => BadInput(error.to_string()).into(),
        other => other.into(),
    }
}
