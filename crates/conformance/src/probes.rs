//! Every kind of call that a manager makes, ready to be made whatever the cloud does.

use std::fmt::Debug;

use bowline_cloud::{CloudProvider, Error, ErrorKind, Result as Answer};
use bowline_core::{ClusterName, DesiredLoadBalancer, InstanceRef, LoadBalancerKey, Plan, Route, RouteSpec, Step};

use crate::balancing::{Balancing, gone};
use crate::routing::Routing;
use crate::scene::{CaseResult, Scene, of};

/// One call, with all that it needs.
#[derive(Debug, Clone)]
pub(crate) enum Probe {
    Check,
    Find(InstanceRef),
    List,
    Observe(DesiredLoadBalancer),
    Keys(ClusterName),
    Apply(LoadBalancerKey, Step),
    Table(ClusterName),
    Create(ClusterName, RouteSpec),
    Delete(ClusterName, Route),
}

/// The result of a call, as text.
pub(crate) struct Probed {
    pub(crate) text: String,
    pub(crate) failed: bool,
}

impl Probe {
    /// All calls that the provider claims, prepared in a sound cloud: with a machine, a load balancer that is to be deleted,
    /// and a route.
    pub(crate) async fn all(scene: &Scene) -> CaseResult<Vec<Probe>> {
        let (machine, capabilities) = (scene.add("node-1").await, scene.provider().capabilities());
        let mut probes = vec![Probe::Check];
        if let Some(instances) = &capabilities.instances {
            probes.push(Probe::Find(of(&machine)));
            probes.extend(instances.list_page.map(|_| Probe::List));
        }
        if capabilities.load_balancers.is_some() {
            let work = Balancing::of(scene)?;
            let desired = work.everything("web", &[work.node("node-2").await])?;
            work.fulfil(&desired).await?;
            let Plan { steps, .. } = work.plan(&gone(&desired)).await?;
            probes.extend([Probe::Keys(desired.key.cluster.clone()), Probe::Observe(desired.clone())]);
            probes.extend(steps.into_iter().map(|step| Probe::Apply(desired.key.clone(), step)));
        }
        if capabilities.routes.is_some() {
            let work = Routing::of(scene)?;
            let machine = work.machine("node-3").await;
            let route = work.lead(&work.spec(1, &machine)?, &machine).await?;
            let cluster = || work.cluster.clone();
            probes.push(Probe::Create(cluster(), work.spec(2, &machine)?));
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
            Probe::Observe(_) => "observe".to_owned(),
            Probe::Keys(_) => "list of load balancers".to_owned(),
            Probe::Apply(_, step) => format!("apply ({:?} {})", step.verb, step.kind),
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
        let missing = || Error::new(ErrorKind::Unsupported, "probe", "it is claimed, and not handed out");
        let (instances, balancers, routes) = (provider.instances(), provider.load_balancers(), provider.routes());
        match (self, instances, balancers, routes) {
            (Probe::Check, ..) => probed(provider.check().await),
            (Probe::Find(asked), Some(instances), ..) => {
                probed(instances.find(std::slice::from_ref(asked)).await.pop().unwrap_or_else(|| Err(missing())))
            }
            (Probe::List, Some(instances), ..) => probed(instances.list(None).await),
            (Probe::Observe(desired), _, Some(balancers), _) => {
                let state = balancers.observe(std::slice::from_ref(desired)).await.pop();
                probed(state.unwrap_or_else(|| Err(missing())))
            }
            (Probe::Keys(cluster), _, Some(balancers), _) => probed(balancers.list(cluster).await),
            (Probe::Apply(key, step), _, Some(balancers), _) => probed(balancers.apply(key, step, None).await),
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

fn probed<T: Debug>(answer: Answer<T>) -> Probed {
    match answer {
        Ok(answer) => Probed { text: format!("{answer:?}"), failed: false },
        Err(error) => Probed { text: format!("{error}\n{error:#}\n{error:?}\n{error:#?}"), failed: true },
    }
}
