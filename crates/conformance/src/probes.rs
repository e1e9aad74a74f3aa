//! Probes: one of each call that a manager makes, prepared so that it can be made in any state of the cloud.

use std::fmt::Debug;

use bowline_cloud::{CloudProvider, Error, ErrorKind, Result as Answer};
use bowline_core::{ClusterName, DesiredLoadBalancer, InstanceRef, LoadBalancerKey, Plan, Route, RouteSpec, Step};

use crate::context::{CaseContext, CaseResult, instance_ref};
use crate::load_balancer_fixture::{LoadBalancerFixture, without_spec};
use crate::route_fixture::RouteFixture;

/// Name of a kind of load balancer.
type Kind = &'static str;

/// A call with its arguments.
#[derive(Debug, Clone)]
pub(crate) enum Probe {
    Check,
    Find(InstanceRef),
    List,
    Observe(Kind, DesiredLoadBalancer),
    Keys(ClusterName),
    Apply(Kind, LoadBalancerKey, Step),
    Table(ClusterName),
    Create(ClusterName, RouteSpec),
    Delete(ClusterName, Route),
}

/// Result of a call, as text.
pub(crate) struct Probed {
    pub(crate) text: String,
    pub(crate) failed: bool,
}

impl Probe {
    /// All calls that the provider supports, prepared in a healthy cloud with a machine, a load balancer of each kind that is to be
    /// deleted, and a route.
    pub(crate) async fn all(context: &CaseContext) -> CaseResult<Vec<Probe>> {
        let (machine, capabilities) = (context.add("node-1").await, context.provider().capabilities());
        let mut probes = vec![Probe::Check];
        if let Some(instances) = &capabilities.instances {
            probes.push(Probe::Find(instance_ref(&machine)));
            probes.extend(instances.list_page.map(|_| Probe::List));
        }
        for (number, fixture) in LoadBalancerFixture::each_kind(context)?.into_iter().enumerate() {
            let desired =
                fixture.full_featured(&format!("web-{number}"), &[fixture.node(&format!("target-{number}")).await])?;
            fixture.sync_and_verify(&desired).await?;
            let (kind, Plan { steps, .. }) = (fixture.kind()?.name, fixture.plan(&without_spec(&desired)).await?);
            probes.extend((number == 0).then(|| Probe::Keys(desired.key.cluster.clone())));
            probes.push(Probe::Observe(kind, desired.clone()));
            probes.extend(steps.into_iter().map(|step| Probe::Apply(kind, desired.key.clone(), step)));
        }
        if capabilities.routes.is_some() {
            let fixture = RouteFixture::new(context)?;
            let machine = fixture.add_machine("node-2").await;
            let route = fixture.create_and_verify(&fixture.spec(1, &machine)?, &machine).await?;
            let cluster = || fixture.cluster.clone();
            probes.push(Probe::Create(cluster(), fixture.spec(2, &machine)?));
            probes.extend([Probe::Table(cluster()), Probe::Delete(cluster(), route)]);
        }
        Ok(probes)
    }

    /// Name of the call.
    pub(crate) fn name(&self) -> String {
        match self {
            Probe::Check => "check".to_owned(),
            Probe::Find(_) => "find".to_owned(),
            Probe::List => "list".to_owned(),
            Probe::Observe(kind, _) => format!("observe{}", suffix(kind)),
            Probe::Keys(_) => "list of load balancers".to_owned(),
            Probe::Apply(kind, _, step) => format!("apply ({:?} {}){}", step.verb, step.kind, suffix(kind)),
            Probe::Table(_) => "list of routes".to_owned(),
            Probe::Create(..) => "create".to_owned(),
            Probe::Delete(..) => "delete".to_owned(),
        }
    }

    /// Whether the call changes the cloud, so that making it twice is not the same.
    pub(crate) fn writes(&self) -> bool {
        matches!(self, Probe::Apply(..) | Probe::Create(..) | Probe::Delete(..))
    }

    /// Makes the call.
    pub(crate) async fn run(&self, provider: &dyn CloudProvider) -> Probed {
        let missing =
            || Error::new(ErrorKind::Unsupported, "probe", "the provider claims it and returns no implementation");
        let (instances, balancers, routes) = (provider.instances(), provider.load_balancers(), provider.routes());
        match (self, instances, balancers, routes) {
            (Probe::Check, ..) => probed(provider.check().await),
            (Probe::Find(reference), Some(instances), ..) => {
                probed(instances.find(std::slice::from_ref(reference)).await.pop().unwrap_or_else(|| Err(missing())))
            }
            (Probe::List, Some(instances), ..) => probed(instances.list(None).await),
            (Probe::Observe(_, desired), _, Some(balancers), _) => {
                let state = balancers.observe(std::slice::from_ref(desired)).await.pop();
                probed(state.unwrap_or_else(|| Err(missing())))
            }
            (Probe::Keys(cluster), _, Some(balancers), _) => probed(balancers.list(cluster).await),
            (Probe::Apply(_, key, step), _, Some(balancers), _) => probed(balancers.apply(key, step, None).await),
            (Probe::Table(cluster), .., Some(routes)) => probed(routes.list(cluster).await),
            (Probe::Create(cluster, spec), .., Some(routes)) => {
                let created = routes.create(cluster, std::slice::from_ref(spec)).await.pop();
                probed(created.unwrap_or_else(|| Err(missing())))
            }
            (Probe::Delete(cluster, route), .., Some(routes)) => {
                let deleted = routes.delete(cluster, std::slice::from_ref(route)).await.pop();
                probed(deleted.unwrap_or_else(|| Err(missing())))
            }
            _ => probed(Err::<(), _>(missing())),
        }
    }
}

fn suffix(kind: Kind) -> String {
    if kind.is_empty() { String::new() } else { format!(" of kind {kind}") }
}

fn probed<T: Debug>(answer: Answer<T>) -> Probed {
    match answer {
        Ok(answer) => Probed { text: format!("{answer:?}"), failed: false },
        Err(error) => Probed { text: format!("{error}\n{error:#}\n{error:?}\n{error:#?}"), failed: true },
    }
}
