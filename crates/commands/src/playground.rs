//! `bowline playground`: a small cluster and a small cloud in this process, and a tour of what the controllers do there.
//!
//! It shows the first two steps, before and after, by itself, because what is there before is gone in a moment. The
//! rest is for the person at the terminal, or with `--script` for nobody.

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

/// Ending of the file beside the kubeconfig that holds the token of the cloud's owner.
const TOKEN: &str = "cloud-token";

/// Before and after.
const SHOWN_STEPS: usize = 2;

pub(crate) async fn run(args: PlaygroundArgs) -> anyhow::Result<()> {
    kubeconfig::check(&args.kubeconfig)?;
    // Before the line that says that it is ready: who reads it may send a signal at once.
    let shutdown = Shutdown::on_signals().context("cannot listen for signals")?;
    let mut playground = Playground::start(PlaygroundOptions::from(&args)).await.map_err(explain)?;
    let outcome = visit(&mut playground, &args, &shutdown).await;
    playground.shutdown().await;
    outcome
}

async fn visit(playground: &mut Playground, args: &PlaygroundArgs, shutdown: &Shutdown) -> anyhow::Result<()> {
    let server = &playground.server;
    kubeconfig::write(&args.kubeconfig, &server.kubeconfig())?;
    let path = args.kubeconfig.with_extension(TOKEN);
    let _token = TokenFile::write(path.clone(), playground.owner_token())?;
    say(format_args!("API server ready at {} (kubeconfig {})\n", server.url(), args.kubeconfig.display()));
    let tour = playground.tour(&path);
    match args.script {
        true => {
            let toured = shutdown.or(tour.run(usize::MAX, playground, say)).await;
            toured.context("told to stop before the tour was over")??;
            print(format_args!("\nAll {} steps came out as they should.\n", tour.steps().len()))?;
        }
        false => {
            // Being told to stop is how this one ends well.
            shutdown.or(guide(playground, &tour, &args.kubeconfig)).await.unwrap_or(Ok(()))?;
        }
    }
    Ok(())
}

/// Shows what is shown, prints the rest, and stays.
async fn guide(playground: &mut Playground, tour: &Tour, kubeconfig: &Path) -> anyhow::Result<()> {
    tour.run(SHOWN_STEPS, playground, say).await?;
    say(format_args!("{}", invitation(tour, kubeconfig)));
    Err(playground.failure().await.into())
}

/// Commands to paste into another terminal in the same folder.
fn invitation(tour: &Tour, kubeconfig: &Path) -> String {
    let look = tour.steps().get(SHOWN_STEPS - 1).map(|step| &step.commands[..]).unwrap_or_default();
    let look: String = look.iter().map(|command| format!("  {command}\n")).collect();
    format!(
        "
Now look for yourself, in another terminal, in this folder:

  export KUBECONFIG={}
{look}{}
Kubelets and scheduler are simulated, and containers do not run: nodes answer for them. The API, the controllers, the
balancers and their traffic are real.
Nothing is kept: Ctrl-C stops it, and the next start is new.
",
        kubeconfig.display(),
        tour.invitation(SHOWN_STEPS + 1),
    )
}

/// Options that the server refuses came from our flags.
fn explain(error: PlaygroundError) -> anyhow::Error {
    match error {
        PlaygroundError::Server(StartError::Options(what)) => BadInput(what).into(),
        PlaygroundError::PodNetwork(_) => BadInput(error.to_string()).into(),
        other => other.into(),
    }
}
