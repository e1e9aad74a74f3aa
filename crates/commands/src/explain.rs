//! `bowline explain`: explains the state of one Node or Service and its next steps. It changes nothing.
//!
//! ```text
//!  node/NAME ─────────┐
//!  service/NS/NAME ───┴─► the same reads as plan ──► explanation, last Events ──► text or JSON ──► exit code
//!                              └─ no such object: the nearest names
//! ```

mod print;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use bowline_cloud::Registry;
use bowline_controllers::forecast::{Explanation, Forecast, explain_node, explain_service};
use bowline_core::{Node, Service, nearest};
use bowline_kube::SeenEvent;
use bowline_settings::BadInput;

use crate::cli::{ExplainArgs, Output};
use crate::plan::{self, ObservedCluster, plain};
use crate::{output, progress};

/// Maximum number of names that an error suggests.
const SUGGESTIONS: usize = 3;

/// Object to explain.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Target {
    Node(String),
    Service { namespace: String, name: String },
}

/// Contents of the output.
struct Report {
    explanation: Explanation,
    /// The last Events, or why they cannot be read.
    events: Result<Vec<SeenEvent>, String>,
}

/// Explains the object.
pub(crate) async fn run(args: &ExplainArgs, registry: &Arc<Registry>) -> anyhow::Result<ExitCode> {
    let report = report(args, registry).await?;
    let now = jiff::Timestamp::now();
    match args.output.output {
        Output::Text => output::print(format_args!("{}", plain(&print::text(&report, now)))),
        Output::Json => output::print(format_args!("{:#}\n", print::json(&report))),
    }?;
    let forecast = Forecast { items: vec![report.explanation.item] };
    Ok(plan::to_exit_code(forecast.summary()))
}

async fn report(args: &ExplainArgs, registry: &Arc<Registry>) -> anyhow::Result<Report> {
    let target: Target = args.object.parse().map_err(BadInput)?;
    let observed = ObservedCluster::read(&args.manager, registry).await?;
    let report = progress::during(format!("explaining {}", args.object), explain(&target, &observed)).await;
    progress::close(&observed.clouds).await;
    report
}

async fn explain(target: &Target, observed: &ObservedCluster) -> anyhow::Result<Report> {
    let ObservedCluster { snapshot, clouds, options, now, .. } = observed;
    let explanation = match target {
        Target::Node(name) => {
            let node = find_node(&snapshot.nodes, name)?;
            explain_node(node, snapshot, clouds, options, *now).await
        }
        Target::Service { namespace, name } => {
            let services = match options.service {
                Some(_) => snapshot.services.clone(),
                None => observed.cluster.list_services().await.context("cannot list Services")?,
            };
            let service = find_service(&services, namespace, name)?;
            explain_service(service, snapshot, clouds, options, *now).await?
        }
    };
    let object = &explanation.item.object;
    let events = observed.cluster.events(object.kind, object.namespace.as_deref(), &object.name).await;
    Ok(Report { events: events.map_err(|error| error.to_string()), explanation })
}

impl std::str::FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        let parts: Vec<&str> = text.split('/').collect();
        match parts.as_slice() {
            ["node" | "nodes" | "no", name] if !name.is_empty() => Ok(Target::Node((*name).to_owned())),
            ["service" | "services" | "svc", namespace, name] if !namespace.is_empty() && !name.is_empty() => {
                Ok(Target::Service { namespace: (*namespace).to_owned(), name: (*name).to_owned() })
            }
            _ => Err(format!("{text:?} is not an object; expected node/NAME or service/NAMESPACE/NAME")),
        }
    }
}

fn find_node<'a>(nodes: &'a [Arc<Node>], name: &str) -> anyhow::Result<&'a Node> {
    let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
    let found = nodes.iter().find(|node| node.name.as_str() == name);
    found.map(|node| &**node).ok_or_else(|| anyhow!("Node {name} not found{}", suggestion(name, names)))
}

fn find_service<'a>(services: &'a [Arc<Service>], namespace: &str, name: &str) -> anyhow::Result<&'a Service> {
    let found = services.iter().find(|service| service.namespace == namespace && service.name == name);
    found.map(|service| &**service).ok_or_else(|| {
        let key = |service: &Arc<Service>| format!("{}/{}", service.namespace, service.name);
        let (same_name, others): (Vec<_>, Vec<_>) = services.iter().partition(|service| service.name == name);
        // The namespace may be wrong.
        let (same_name, others): (Vec<_>, Vec<_>) =
            (same_name.into_iter().map(key).collect(), others.into_iter().map(key).collect());
        let wanted = format!("{namespace}/{name}");
        let hint = match same_name.is_empty() {
            true => suggestion(&wanted, others.iter().map(String::as_str).collect()),
            false => format!("; found {}", same_name.join(", ")),
        };
        anyhow!("Service {wanted} not found{hint}")
    })
}

/// Suggests the nearest names, if any is similar.
fn suggestion(name: &str, mut known: Vec<&str>) -> String {
    let mut near = Vec::new();
    while let Some(next) = nearest(name, known.iter().copied()).filter(|_| near.len() < SUGGESTIONS) {
        near.push(next.to_owned());
        known.retain(|known| *known != next);
    }
    if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(" or ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_core::testing::service;

    #[test]
    fn an_object_is_given_by_kind_and_name() {
        assert_eq!("node/a.b".parse(), Ok(Target::Node("a.b".to_owned())));
        let web = Target::Service { namespace: "default".to_owned(), name: "web".to_owned() };
        assert_eq!("svc/default/web".parse(), Ok(web));
        for wrong in ["", "web", "node/", "node/a/b", "service/web", "service//web", "pod/default/web"] {
            let error = wrong.parse::<Target>().unwrap_err();
            assert!(error.contains("node/NAME or service/NAMESPACE/NAME"), "{wrong}: {error}");
        }
    }

    #[test]
    fn the_error_for_an_unknown_object_suggests_the_nearest_names() {
        let services = ["default/web-1", "default/web-2", "prod/api"].map(|key| Arc::new(service(key)));
        let error = |namespace, name| find_service(&services, namespace, name).unwrap_err().to_string();
        let near = error("default", "web-3");
        assert!(near.contains("default/web-1") && near.contains(" or ") && near.contains("default/web-2"), "{near}");
        assert_eq!(error("default", "api"), "Service default/api not found; found prod/api");
        assert_eq!(error("default", "postgres"), "Service default/postgres not found");
        assert!(find_service(&services, "prod", "api").is_ok());
        assert_eq!(find_node(&[], "n").unwrap_err().to_string(), "Node n not found");
    }
}
