//! `bowline manifests`: what a cluster needs to run the manager.
//!
//! ```text
//!  flags of the manager ──► settings, providers (checked as at its start) ──► Installation
//!                                      │                                           │
//!  rights, declared beside the code ───┴──► roles                     templates with holes ──► YAML
//!                                                                          └─ Helm's expressions ──► chart
//! ```

mod chart;
mod fill;
mod installation;
mod objects;

use bowline_cloud::Registry;
use bowline_settings::BadInput;

use crate::cli::ManifestsArgs;
use crate::output;
use installation::Installation;

/// Prints them.
pub(crate) fn run(args: &ManifestsArgs, registry: &Registry) -> anyhow::Result<()> {
    let installation = Installation::new(args, registry).map_err(BadInput::from)?;
    installation.remarks.iter().for_each(|remark| tracing::warn!("{remark}"));
    output::print(format_args!("{}", text(&installation)))
}

/// The whole stream of documents.
fn text(installation: &Installation) -> String {
    objects::all(installation).join("---\n")
}

/// Files of the repository that are made from here, by their paths in it: the manifests of each provider as a base for
/// kustomize, and a chart for Helm.
pub(crate) fn generated(registry: &Registry) -> Vec<(String, String)> {
    let mut files = Vec::new();
    for factory in registry.iter() {
        // What is wrong here would be wrong for whoever asks for the provider with no other flag; a test looks.
        let Ok(installation) = Installation::of_provider(factory.name, registry) else { continue };
        let folder = format!("deploy/kubernetes/{}", factory.name);
        files.push((format!("{folder}/bowline.yaml"), format!("{GENERATED}{}", text(&installation))));
        files.push((format!("{folder}/kustomization.yaml"), format!("{GENERATED}{KUSTOMIZATION}")));
        // What is not in a Secret of its own is there to start from.
        let template = factory.place.map(|place| (format!("{folder}/{}", place.file), (factory.template)()));
        files.extend(template);
    }
    files.extend(chart::files(registry).into_iter().map(|(path, text)| (format!("deploy/chart/bowline/{path}"), text)));
    files
}

const GENERATED: &str = "# Made by `cargo xtask generate`; change crates/commands/src/manifests instead.\n";

const KUSTOMIZATION: &str = "\
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
  - bowline.yaml
";
