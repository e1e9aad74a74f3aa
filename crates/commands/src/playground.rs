//! `bowline playground`: runs a small cluster and a local cloud in this process, with a guided tour.
//!
//! The first two steps, before and after the controllers start, always run automatically, because the initial state lasts only a
//! moment. The other steps are printed with commands for the user, or run automatically with `--script`.

use std::path::Path;

use anyhow::Context as _;
use bowline_apiserver::StartError;
use bowline_playground::{Playground, PlaygroundError, PlaygroundOptions, Tour};
use bowline_runtime::Shutdown;
use bowline_settings::BadInput;

use crate::cli::PlaygroundArgs;
use crate::kubeconfig;
use crate::output::{print, say};
use crate::owner_token::TokenFile;

/// Extension of the file next to the kubeconfig with the token of the cloud's owner.
const TOKEN_EXTENSION: &str = "cloud-token";

/// Number of steps that always run automatically: before and after the controllers start.
const AUTOMATIC_STEPS: usize = 2;

pub(crate) async fn run(args: PlaygroundArgs) -> anyhow::Result<()> {
    kubeconfig::check(&args.kubeconfig)?;
    // Before the ready line is printed: a reader of that line may send a signal at once.
    let shutdown = Shutdown::on_signals().context("cannot listen for signals")?;
    let mut playground = Playground::start(PlaygroundOptions::from(&args)).await.map_err(to_error)?;
    let outcome = tour_playground(&mut playground, &args, &shutdown).await;
    playground.shutdown().await;
    outcome
}

async fn tour_playground(
    playground: &mut Playground,
    args: &PlaygroundArgs,
    shutdown: &Shutdown,
) -> anyhow::Result<()> {
    let server = &playground.server;
    kubeconfig::write(&args.kubeconfig, &server.kubeconfig())?;
    let path = args.kubeconfig.with_extension(TOKEN_EXTENSION);
    let _token = TokenFile::write(path.clone(), playground.owner_token())?;
    say(format_args!("API server ready at {} (kubeconfig {})\n", server.url(), args.kubeconfig.display()));
    let tour = playground.tour(&path);
    match args.script {
        true => {
            let finished = shutdown.or(tour.run(usize::MAX, playground, say)).await;
            finished.context("stopped before the end of the tour")??;
            print(format_args!("\nAll {} steps passed.\n", tour.steps().len()))?;
        }
        false => {
            // Stopped by a signal: the regular end.
            shutdown.or(run_guided(playground, &tour, &args.kubeconfig)).await.unwrap_or(Ok(()))?;
        }
    }
    Ok(())
}

/// Runs the first steps, prints the others, and waits until the playground ends.
async fn run_guided(playground: &mut Playground, tour: &Tour, kubeconfig: &Path) -> anyhow::Result<()> {
    tour.run(AUTOMATIC_STEPS, playground, say).await?;
    say(format_args!("{}", instructions(tour, kubeconfig)));
    Err(playground.failure().await.into())
}

/// Returns the commands to paste into another terminal in the same directory.
fn instructions(tour: &Tour, kubeconfig: &Path) -> String {
    let commands = tour.steps().get(AUTOMATIC_STEPS - 1).map(|step| &step.commands[..]).unwrap_or_default();
    let commands: String = commands.iter().map(|command| format!("  {command}\n")).collect();
    format!(
        "
Continue in another terminal, in the same directory:

  export KUBECONFIG={}
{commands}{}
The API, the controllers, the load balancers and their traffic are real. The kubelets and the scheduler are simulated; no
containers run, the Nodes answer for them.
Press Ctrl-C to stop. No state is kept.
",
        kubeconfig.display(),
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
