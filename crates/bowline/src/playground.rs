//! `bowline playground`: the API server with everything on, and what to try on it. The controllers and a local cloud
//! join it here as they come to exist.

use std::path::Path;

use bowline_apiserver::Options;

use crate::cli::PlaygroundArgs;
use crate::serve::{self, Running};

pub(crate) async fn run(args: PlaygroundArgs) -> anyhow::Result<()> {
    let running = Running::start(Options::from(&args), &args.kubeconfig).await?;
    serve::say(format_args!("{}", invitation(&args.kubeconfig)));
    running.until_stopped().await
}

/// Commands to paste into another terminal in the same folder.
fn invitation(kubeconfig: &Path) -> String {
    format!(
        "
Try, in another terminal:

  export KUBECONFIG={}
  kubectl apply -f examples/node.yaml -f examples/service.yaml
  kubectl get nodes,services -o wide
  kubectl describe service web
  kubectl label node worker-1 topology.kubernetes.io/zone=harbour
  kubectl get nodes --watch

Nothing is kept: Ctrl-C stops it, and the next start is empty again.
",
        kubeconfig.display()
    )
}
