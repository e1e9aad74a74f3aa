//! `bowline orphans`: lists or deletes cloud resources with this cluster's mark whose Service does not exist, and routes whose Node
//! does not exist. Also lists what background loops would remove.
//!
//! ```text
//!  clouds: list load balancers ──► cluster: list Services ──► load balancers without a Service are orphans
//!                                                                            │ --delete, confirmed
//!                          for each: is the owner still absent? ──► observe ──► plan ──► apply ◄─┘
//! ```
//!
//! The clouds are listed first: a Service is older than its load balancer, so the later list of Services contains the owner of
//! every listed load balancer, if the owner exists. If either list fails, nothing counts as an orphan.

mod delete;
mod loops;
mod owners;
mod print;
mod routes;

use std::collections::HashSet;
use std::io::{BufRead as _, IsTerminal as _};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use bowline_cloud::{Cloud, Clouds, Error, Registry};
use bowline_config::{ConfigError, ConfigErrors};
use bowline_controllers::manager::ManagerOptions;
use bowline_core::{ClusterName, DesiredLoadBalancer, LoadBalancerKey, Plan};
use bowline_kube::Cluster;
use bowline_settings::BadInput;
use bowline_settings::Settings;
use bowline_settings::cli::NetworkArgs;
use bowline_settings::reach::{self, Reached};
use ipnet::IpNet;

use crate::cli::{OrphansArgs, Output};
use crate::output::{self, say};
use crate::plan::plain;
use crate::progress;
use loops::Leftovers;
use owners::Owners;
use routes::{OrphanedRoute, OrphanedRoutes};

/// A load balancer without a Service, or its remaining resources.
struct Orphan {
    cloud: Cloud,
    key: LoadBalancerKey,
    /// Steps that delete it: one for each of its resources.
    plan: Result<Plan, Error>,
    outcome: Outcome,
}

/// Outcome for an orphan.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    /// Listed only, without `--delete`.
    Listed,
    Deleted,
    /// Its owner exists.
    Owned,
    /// The brake forbids its deletion.
    HeldBack(String),
    Failed(String),
}

/// All orphans of a cluster.
struct Orphans {
    cluster: ClusterName,
    orphans: Vec<Orphan>,
    /// `None` if no cloud supports routes.
    routes: Option<OrphanedRoutes>,
    /// `None` if no cloud has background loops.
    leftovers: Option<Leftovers>,
    /// Clouds whose load balancers could not be listed.
    failed: Vec<(Arc<str>, Error)>,
}

/// Lists orphans, and deletes them with `--delete`.
pub(crate) async fn run(args: &OrphansArgs, registry: &Arc<Registry>) -> anyhow::Result<ExitCode> {
    let mut errors = ConfigErrors::new();
    let Settings { reach, manager: mut options, .. } = Settings::resolve(&args.manager, &mut errors);
    if args.delete && reach.layers.dry_run {
        errors.push(ConfigError::flag("delete", "a dry run deletes nothing").hint("remove --dry-run or --delete"));
    }
    let (cluster_cidrs, max_share) = route_flags(&args.manager.controllers.network);
    let metrics = prometheus::Registry::new();
    let reached = Reached::new(&reach, registry, &metrics, errors, |_, _| ());
    let Reached { providers, client, .. } = progress::during("connecting to the API server", reached).await?;
    reach::narrow(&mut options, &providers);
    let clouds = Clouds::with_layers(providers, &reach.layers, &prometheus::Registry::new());
    let secrets = bowline_controllers::secrets::read(&clouds, &client);
    progress::during("reading the Secrets of the clouds", secrets).await;
    progress::start(&clouds).await;
    let cluster = Cluster::new(client);
    let found = async {
        let routes = routes::find(&clouds, &cluster, &reach.cluster, &cluster_cidrs, max_share).await?;
        find(&clouds, &cluster, &reach.cluster, &options, routes).await
    };
    let outcome = match found.await {
        Ok(found) => list_and_delete(args, found, &cluster).await,
        Err(error) => Err(error),
    };
    progress::close(&clouds).await;
    outcome
}

async fn list_and_delete(args: &OrphansArgs, mut found: Orphans, cluster: &Cluster) -> anyhow::Result<ExitCode> {
    let is_text = args.output.output == Output::Text;
    if is_text {
        output::print(format_args!("{}", plain(&print::list(&found))))?;
    }
    if args.delete && !found.is_empty() && is_confirmed(&found, args.yes)? {
        let report = |line: String| {
            if is_text {
                say(format_args!("{}\n", plain(&line)))
            }
        };
        found.delete_all(cluster, report).await;
    }
    if !is_text {
        output::print(format_args!("{:#}\n", print::json(&found)))?;
    }
    Ok(if found.is_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Cluster CIDRs and maximum share of deleted routes. Errors in these flags are already in those of the settings, whether or not
/// the route controller is enabled.
fn route_flags(args: &NetworkArgs) -> (Vec<IpNet>, f64) {
    let mut ignored = ConfigErrors::new();
    let cluster_cidrs =
        bowline_settings::parse_cluster_cidr(args.cluster_cidr.as_deref().unwrap_or_default(), &mut ignored).cidrs;
    (cluster_cidrs, bowline_settings::valid(&args.route.route_deletion_max_share, &mut ignored).unwrap_or_default())
}

/// Asks for confirmation, unless `--yes` is given.
fn is_confirmed(found: &Orphans, yes: bool) -> anyhow::Result<bool> {
    let is_noop = found.orphans.is_empty() && found.deletable_routes() == 0;
    if yes || is_noop {
        return Ok(true);
    }
    let input = std::io::stdin();
    if !input.is_terminal() {
        let why = "--delete asks for confirmation, and standard input is not a terminal; use --yes to delete without confirmation";
        return Err(BadInput(why.to_owned()).into());
    }
    // On standard error, so that scripts can parse standard output.
    let question = print::question(&found.cluster, found.services(), found.deletable_routes());
    let _ = std::io::Write::write_all(&mut std::io::stderr(), question.as_bytes());
    let mut answer = String::new();
    input.lock().read_line(&mut answer).context("cannot read the answer")?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes" | "Yes"))
}

// ---- search

async fn find(
    clouds: &Clouds,
    cluster: &Cluster,
    name: &ClusterName,
    options: &ManagerOptions,
    routes: Option<OrphanedRoutes>,
) -> anyhow::Result<Orphans> {
    let (mut marked, mut failed) = (Vec::new(), Vec::new());
    for cloud in clouds.iter().filter(|cloud| cloud.has_load_balancers()) {
        let listed = cloud.layers().list_load_balancers(name);
        match progress::in_cloud(cloud.name(), "listing load balancers", listed).await {
            Ok(keys) => marked.push((cloud.clone(), keys)),
            Err(error) => failed.push((cloud.name().clone(), error)),
        }
    }
    let services = progress::during("listing Services", cluster.list_services()).await;
    let services = services.context("cannot list Services, so no orphans can be determined")?;
    let mut orphans = Vec::new();
    for (cloud, keys) in marked {
        let owners = Owners::of(&cloud, name, &services);
        for key in keys.into_iter().filter(|key| key.cluster == *name && !owners.contain(key)) {
            let what = format!("reading the load balancer of {}", print::owner(&key));
            let observed = Orphan::observed(cloud.clone(), key);
            orphans.extend(progress::in_cloud(cloud.name(), what, observed).await);
        }
    }
    let leftovers = loops::find(clouds, cluster, options, &services);
    let leftovers = progress::during("planning background loops", leftovers).await?;
    Ok(Orphans { cluster: name.clone(), orphans, routes, leftovers, failed })
}

impl Orphan {
    /// Reads the remaining resources; `None` if there are none.
    async fn observed(cloud: Cloud, key: LoadBalancerKey) -> Option<Orphan> {
        let plan = plan(&cloud, &key).await.transpose()?;
        Some(Orphan { cloud, key, plan, outcome: Outcome::Listed })
    }
}

/// Plans the deletion of all resources with this key; `None` if there are none.
async fn plan(cloud: &Cloud, key: &LoadBalancerKey) -> Result<Option<Plan>, Error> {
    let desired =
        DesiredLoadBalancer { key: key.clone(), annotations: Arc::default(), settings: Arc::default(), spec: None };
    match cloud.layers().observe_load_balancer(&desired).await? {
        Some(state) => cloud.layers().plan_load_balancer(&desired, Some(&state)).map(Some),
        None => Ok(None),
    }
}

impl Orphans {
    /// Routes without a Node.
    fn orphaned_routes(&self) -> &[OrphanedRoute] {
        self.routes.as_ref().map(|routes| routes.orphans.as_slice()).unwrap_or_default()
    }

    /// Clouds whose resources could not be listed, with the error.
    fn failed(&self) -> impl Iterator<Item = &(Arc<str>, Error)> {
        let routes = self.routes.iter().flat_map(|routes| &routes.failed);
        self.failed.iter().chain(routes).chain(self.leftovers.iter().flat_map(|leftovers| &leftovers.failed))
    }

    fn is_empty(&self) -> bool {
        self.orphans.is_empty() && self.orphaned_routes().is_empty()
    }

    /// Number of routes that the brake does not hold back.
    fn deletable_routes(&self) -> usize {
        self.orphaned_routes().iter().filter(|orphan| orphan.hold.is_none()).count()
    }

    /// Number of Services with remaining resources; one Service may have resources in several clouds.
    fn services(&self) -> usize {
        self.orphans.iter().map(|orphan| &orphan.key).collect::<HashSet<_>>().len()
    }

    /// Deletes all orphans and reports each outcome.
    async fn delete_all(&mut self, cluster: &Cluster, report: impl Fn(String)) {
        for orphan in &mut self.orphans {
            let what = format!("deleting {}", print::title(orphan));
            orphan.outcome = progress::during(what, delete::delete(orphan, cluster)).await;
            report(print::outcome(orphan));
        }
        for orphan in self.routes.iter_mut().flat_map(|routes| &mut routes.orphans) {
            let what = format!("deleting {}", print::route_title(orphan));
            orphan.outcome = progress::during(what, routes::delete(orphan, cluster, &self.cluster)).await;
            report(print::route_outcome(orphan));
        }
    }

    fn is_failed(&self) -> bool {
        let is_failed = |orphan: &Orphan| matches!(orphan.outcome, Outcome::Failed(_)) || orphan.is_unreadable();
        let is_kept = |orphan: &OrphanedRoute| matches!(orphan.outcome, Outcome::Failed(_) | Outcome::HeldBack(_));
        self.failed().next().is_some()
            || self.orphans.iter().any(is_failed)
            || self.orphaned_routes().iter().any(is_kept)
    }
}

impl Orphan {
    /// Whether its resources could not be read, and it was not deleted.
    fn is_unreadable(&self) -> bool {
        self.plan.is_err() && self.outcome == Outcome::Listed
    }
}
