//! `bowline orphans`: what carries this cluster's mark in a cloud and whose Service is gone, balancers or parts of them, and
//! routes whose Node is gone.
//!
//! ```text
//!  clouds: whose balancers are there? ──► cluster: which of those Services live? ──► the others are orphans
//!                                                                                   │ --delete, and a yes
//!                                   for each: is the owner still absent? ──► observe ──► plan ──► apply ◄─┘
//! ```
//!
//! The clouds are asked first: a Service is older than its balancer, so each balancer that was listed has its Service in
//! the list that follows, if it lives. If either list fails, nothing is an orphan.

mod print;
mod remove;
mod routes;

use std::collections::{BTreeSet, HashSet};
use std::io::{BufRead as _, IsTerminal as _};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use bowline_cloud::{Cloud, Clouds, Error, Registry};
use bowline_config::{ConfigError, ConfigErrors};
use bowline_core::service::ServiceType;
use bowline_core::{ClusterName, DesiredLoadBalancer, LoadBalancerKey, Plan, Service};
use bowline_kube::Cluster;
use bowline_settings::BadInput;
use bowline_settings::Settings;
use bowline_settings::cli::NetworkArgs;
use bowline_settings::reach::Reached;
use ipnet::IpNet;

use crate::cli::{OrphansArgs, Output};
use crate::output::{self, say};
use crate::plan::plain;
use routes::{LostRoute, Routes};

/// A balancer without a Service, or what is left of one.
struct Orphan {
    cloud: Cloud,
    key: LoadBalancerKey,
    /// What has to be done to be rid of it, which is what it consists of.
    plan: Result<Plan, Error>,
    outcome: Outcome,
}

/// What became of an orphan.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    /// Nobody asked for anything.
    Listed,
    Deleted,
    /// It has an owner after all.
    Owned,
    /// There is doubt whether it is one.
    HeldBack(String),
    Failed(String),
}

/// What was found.
struct Findings {
    cluster: ClusterName,
    orphans: Vec<Orphan>,
    /// `None` if no cloud has any.
    routes: Option<Routes>,
    /// The clouds that did not say which balancers they have.
    silent: Vec<(Arc<str>, Error)>,
}

/// Lists them, and removes them with `--delete`.
pub(crate) async fn run(args: &OrphansArgs, registry: &Arc<Registry>) -> anyhow::Result<ExitCode> {
    let mut errors = ConfigErrors::new();
    let Settings { reach, .. } = Settings::resolve(&args.manager, &mut errors);
    if args.delete && reach.layers.dry_run {
        errors.push(ConfigError::flag("delete", "a dry run deletes nothing").hint("leave out --dry-run or --delete"));
    }
    let (ranges, max_share) = route_flags(&args.manager.controllers.network);
    let Reached { providers, client, .. } =
        Reached::new(&reach, registry, &prometheus::Registry::new(), errors, |_, _| ()).await?;
    let clouds = Clouds::around(providers, &reach.layers, &prometheus::Registry::new());
    bowline_controllers::secrets::read(&clouds, &client).await;
    clouds.start().await;
    let cluster = Cluster::new(client);
    let mut findings = find(&clouds, &cluster, &reach.cluster, &ranges, max_share).await?;
    let is_text = args.output.output == Output::Text;
    if is_text {
        output::print(format_args!("{}", plain(&print::list(&findings))))?;
    }
    if args.delete && !findings.is_empty() && is_agreed(&findings, args.yes)? {
        let tell = |line: String| {
            if is_text {
                say(format_args!("{}\n", plain(&line)))
            }
        };
        findings.remove_all(&cluster, tell).await;
    }
    if !is_text {
        output::print(format_args!("{:#}\n", print::json(&findings)))?;
    }
    Ok(if findings.is_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The pod ranges, and the share of routes that may go. What is wrong with these flags is in the settings' problems already, whether
/// or not the route controller runs.
fn route_flags(args: &NetworkArgs) -> (Vec<IpNet>, f64) {
    let mut known = ConfigErrors::new();
    let ranges = bowline_settings::pod_ranges(args.cluster_cidr.as_deref().unwrap_or_default(), &mut known).read;
    (ranges, bowline_settings::taken(&args.route.route_deletion_max_share, &mut known).unwrap_or_default())
}

/// Asks, unless the answer was given with the command.
fn is_agreed(findings: &Findings, yes: bool) -> anyhow::Result<bool> {
    let is_harmless = findings.orphans.is_empty() && findings.routes_to_go() == 0;
    if yes || is_harmless {
        return Ok(true);
    }
    let input = std::io::stdin();
    if !input.is_terminal() {
        let why =
            "--delete asks before it deletes, and standard input is no terminal; say --yes to delete without asking";
        return Err(BadInput(why.to_owned()).into());
    }
    // On standard error, so that standard output stays readable by scripts.
    let question = print::question(&findings.cluster, findings.services(), findings.routes_to_go());
    let _ = std::io::Write::write_all(&mut std::io::stderr(), question.as_bytes());
    let mut answer = String::new();
    input.lock().read_line(&mut answer).context("cannot read the answer")?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes" | "Yes"))
}

// ---- finding

async fn find(
    clouds: &Clouds,
    cluster: &Cluster,
    name: &ClusterName,
    ranges: &[IpNet],
    max_share: f64,
) -> anyhow::Result<Findings> {
    let routes = routes::find(clouds, cluster, name, ranges, max_share).await?;
    let (mut marked, mut silent) = (Vec::new(), Vec::new());
    for cloud in clouds.iter().filter(|cloud| cloud.has_load_balancers()) {
        match cloud.layers().list_load_balancers(name).await {
            Ok(keys) => marked.extend(keys.into_iter().map(|key| (cloud.clone(), key))),
            Err(error) => silent.push((cloud.name().clone(), error)),
        }
    }
    let services = cluster.list_services().await.context("cannot list Services, so nothing is taken for an orphan")?;
    let owners = Owners::of(&services);
    marked.retain(|(_, key)| key.cluster == *name && !owners.have(key));
    let mut orphans = Vec::new();
    for (cloud, key) in marked {
        orphans.extend(Orphan::observed(cloud, key).await);
    }
    Ok(Findings { cluster: name.clone(), orphans, routes, silent })
}

/// The Services that have, or may have, a balancer: by UID, and by name for clouds whose marks tell no UID.
struct Owners<'a> {
    uids: BTreeSet<&'a str>,
    names: BTreeSet<(&'a str, &'a str)>,
}

impl<'a> Owners<'a> {
    fn of(services: &'a [Arc<Service>]) -> Owners<'a> {
        let owners = || services.iter().filter(|service| is_owner(service));
        Owners {
            uids: owners().map(|service| service.uid.as_str()).collect(),
            names: owners().map(|service| (service.namespace.as_str(), service.name.as_str())).collect(),
        }
    }

    /// As [`LoadBalancerKey::belongs_to`] has it, for one of them.
    fn have(&self, key: &LoadBalancerKey) -> bool {
        let is_named = || self.names.contains(&(key.namespace.as_str(), key.service.as_str()));
        if key.uid.is_empty() { is_named() } else { self.uids.contains(key.uid.as_str()) }
    }
}

/// Whatever its class: one that is nobody's today may be somebody's after the next change of a flag.
fn is_owner(service: &Service) -> bool {
    service.kind == ServiceType::LoadBalancer || service.has_finalizer()
}

impl Orphan {
    /// `None` if nothing is left of it.
    async fn observed(cloud: Cloud, key: LoadBalancerKey) -> Option<Orphan> {
        let plan = plan(&cloud, &key).await.transpose()?;
        Some(Orphan { cloud, key, plan, outcome: Outcome::Listed })
    }
}

/// How to be rid of all that the cloud has for this key; `None` if that is nothing.
async fn plan(cloud: &Cloud, key: &LoadBalancerKey) -> Result<Option<Plan>, Error> {
    let desired =
        DesiredLoadBalancer { key: key.clone(), annotations: Arc::default(), settings: Arc::default(), spec: None };
    match cloud.layers().observe_load_balancer(&desired).await? {
        Some(state) => cloud.layers().plan_load_balancer(&desired, Some(&state)).map(Some),
        None => Ok(None),
    }
}

impl Findings {
    /// The routes without a Node.
    fn lost_routes(&self) -> &[LostRoute] {
        self.routes.as_ref().map(|routes| routes.lost.as_slice()).unwrap_or_default()
    }

    /// The clouds that did not say what they have, each with its reason.
    fn silent(&self) -> impl Iterator<Item = &(Arc<str>, Error)> {
        self.silent.iter().chain(self.routes.iter().flat_map(|routes| &routes.silent))
    }

    fn is_empty(&self) -> bool {
        self.orphans.is_empty() && self.lost_routes().is_empty()
    }

    /// How many routes there is no doubt about.
    fn routes_to_go(&self) -> usize {
        self.lost_routes().iter().filter(|lost| lost.doubt.is_none()).count()
    }

    /// Of how many Services something is left; of one it may be in several clouds.
    fn services(&self) -> usize {
        self.orphans.iter().map(|orphan| &orphan.key).collect::<HashSet<_>>().len()
    }

    /// Removes all of them, and tells what became of each.
    async fn remove_all(&mut self, cluster: &Cluster, tell: impl Fn(String)) {
        for orphan in &mut self.orphans {
            orphan.outcome = remove::remove(orphan, cluster).await;
            tell(print::outcome(orphan));
        }
        for lost in self.routes.iter_mut().flat_map(|routes| &mut routes.lost) {
            lost.outcome = routes::remove(lost, cluster, &self.cluster).await;
            tell(print::route_outcome(lost));
        }
    }

    fn is_failed(&self) -> bool {
        let is_failed = |orphan: &Orphan| matches!(orphan.outcome, Outcome::Failed(_)) || orphan.is_unclear();
        let is_lost = |lost: &LostRoute| matches!(lost.outcome, Outcome::Failed(_) | Outcome::HeldBack(_));
        self.silent().next().is_some() || self.orphans.iter().any(is_failed) || self.lost_routes().iter().any(is_lost)
    }
}

impl Orphan {
    /// Nobody could say what it consists of, and nobody has removed it since.
    fn is_unclear(&self) -> bool {
        self.plan.is_err() && self.outcome == Outcome::Listed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_core::testing::service;

    #[test]
    fn a_mark_without_uid_belongs_to_the_service_of_its_name_and_one_with_uid_to_no_other() {
        let web = Service { uid: "u1".to_owned(), ..service("default/web") };
        let plain = Service { uid: "u2".to_owned(), kind: ServiceType::ClusterIP, ..service("default/plain") };
        let services = [Arc::new(web), Arc::new(plain)];
        let owners = Owners::of(&services);
        let is_owned = |name: &str, uid: &str| {
            let (cluster, namespace) = ("kubernetes".into(), "default".to_owned());
            owners.have(&LoadBalancerKey { cluster, namespace, service: name.to_owned(), uid: uid.to_owned() })
        };
        assert!(is_owned("web", "u1") && is_owned("web", ""));
        assert!(!is_owned("web", "u0"), "an earlier Service of the name");
        assert!(!is_owned("gone", "") && !is_owned("plain", ""), "no Service that has, or may have, a balancer");
    }
}
