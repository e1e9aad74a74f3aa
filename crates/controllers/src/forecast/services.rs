//! What the service-lb-controller would do.
//!
//! ```text
//!  Service ──► Case: a balancer is wanted, or none any more ──► wish ──► each cloud: observe ──► plan ──► Item
//!                └─ not ours: nothing to tell            └─ what is wrong with the Service: refused
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use bowline_cloud::{Cloud, Clouds, ErrorKind, Result};
use bowline_core::annotations::LoadBalancerSettings;
use bowline_core::service::{self, ServiceChange, ServiceType, TargetRules};
use bowline_core::well_known::{LOAD_BALANCER_CLEANUP, LOAD_BALANCER_READY};
use bowline_core::{
    FieldChange, Ingress, LoadBalancerState, LoadBalancerStatus, LoadBalancerWish, Node, Plan, Service, TargetNode,
};
use futures::stream::{self, StreamExt as _};

use super::{Item, RemarkKind, Snapshot, changed};
use crate::service::pass::{cleanup_settings, with_ip_mode};
use crate::service::tell::problems;
use crate::service::trouble::{Cause, Next, Task, Trouble};
use crate::service::{Options, Routing, RoutingError};

/// How many questions are put to a cloud at once; its own limit may be lower.
const AT_ONCE: usize = 8;

/// What is said of a status that the cloud decides on.
const KNOWN_AFTERWARDS: &str = "(known when the cloud is done)";

/// Something to tell of each Service that is ours, or nothing; by namespace and name.
pub(super) async fn forecast(
    snapshot: &Snapshot,
    clouds: &Clouds,
    options: &Options,
) -> std::result::Result<Vec<Item>, RoutingError> {
    let routing = Routing::new(clouds, &options.default_cloud, options.classes)?;
    let scene = Scene { snapshot, clouds, options, routing: &routing };
    let mut cases: Vec<_> = snapshot.services.iter().filter_map(|service| scene.case(service)).collect();
    for cloud in clouds.iter() {
        ask(cloud, &mut cases).await;
    }
    let items: BTreeMap<_, _> = cases.into_iter().map(|case| (case.service.key(), case.told())).collect();
    Ok(items.into_values().collect())
}

/// All that a Service is judged by.
struct Scene<'a> {
    snapshot: &'a Snapshot,
    clouds: &'a Clouds,
    options: &'a Options,
    routing: &'a Routing,
}

/// A Service, what is wished of which clouds, and what those have for it.
struct Case<'a> {
    service: &'a Service,
    settings: LoadBalancerSettings,
    wish: std::result::Result<LoadBalancerWish, Trouble>,
    clouds: Vec<Cloud>,
    sights: Vec<(Arc<str>, Result<Sight>)>,
    notes: Vec<String>,
}

/// What a cloud has, and what is to be done about it.
struct Sight {
    state: Option<LoadBalancerState>,
    plan: Plan,
}

impl<'a> Scene<'a> {
    /// `None` if the Service is not ours, or needs nothing.
    fn case(&self, service: &'a Service) -> Option<Case<'a>> {
        let scope = self.routing.scope();
        let is_ours = service::wants_balancer(service, &scope);
        if is_ours && !service.deleting {
            return Some(self.wanted(service, self.routing.cloud(service)?));
        }
        (is_ours || service::needs_cleanup(service, &scope)).then(|| self.unwanted(service))
    }

    /// A balancer is wanted.
    fn wanted(&self, service: &'a Service, cloud: &Cloud) -> Case<'a> {
        let mistakes = |mistakes| Trouble { task: Task::Ensure, cause: Cause::Mistakes(mistakes) };
        let reading = service::read(service);
        let notes = reading.unknown.iter().map(|unknown| {
            let near = unknown.nearest.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
            format!("the annotation {} means nothing{near}", unknown.key)
        });
        let notes = notes.collect();
        let (settings, wish) = match reading.settings {
            Ok(settings) => {
                let targets = self.targets(cloud, &settings);
                let wish = service::wish(&self.options.cluster, service, &settings, targets).map_err(mistakes);
                (settings, wish.and_then(|wish| possible(cloud, wish)))
            }
            Err(wrong) => (LoadBalancerSettings::default(), Err(mistakes(wrong))),
        };
        Case { service, settings, wish, clouds: vec![cloud.clone()], sights: Vec::new(), notes }
    }

    /// No balancer is wanted any more, or ever was.
    fn unwanted(&self, service: &'a Service) -> Case<'a> {
        let settings = cleanup_settings(service);
        let wish = |settings: &LoadBalancerSettings| service::cleanup_wish(&self.options.cluster, service, settings);
        let (settings, wish) = match settings {
            Ok(settings) => (settings.clone(), Ok(wish(&settings))),
            Err(trouble) => (LoadBalancerSettings::default(), Err(trouble)),
        };
        Case { service, settings, wish, clouds: self.clouds_of(service), sights: Vec::new(), notes: Vec::new() }
    }

    /// Its class, which says which cloud it is, is gone once its type is another.
    fn clouds_of(&self, service: &Service) -> Vec<Cloud> {
        match service.kind {
            ServiceType::LoadBalancer => self.routing.cloud(service).cloned().into_iter().collect(),
            _ => self.clouds.iter().filter(|cloud| cloud.has_load_balancers()).cloned().collect(),
        }
    }

    fn targets(&self, cloud: &Cloud, settings: &LoadBalancerSettings) -> Vec<TargetNode> {
        let can_drain = cloud.layers().capabilities().load_balancers.as_ref().is_some_and(|balancers| balancers.drain);
        let rules = TargetRules { nodes: self.options.nodes, drain: !self.options.drain.is_zero() };
        let is_local = |node: &Node| node.provider_id.as_ref().is_some_and(|id| cloud.layers().owns(id));
        // Since when a Node has been leaving is not known here: it is taken to have just begun.
        let drains = |_: &Node| can_drain && rules.drain;
        service::targets(&self.snapshot.nodes, rules, settings.target_nodes.as_ref(), is_local, drains)
    }
}

/// The wish, if the cloud can do all of it as far as that can be said without asking.
fn possible(cloud: &Cloud, wish: LoadBalancerWish) -> std::result::Result<LoadBalancerWish, Trouble> {
    cloud.layers().check_load_balancer(&wish).map_err(Trouble::cloud(Task::Ensure))?;
    Ok(wish)
}

/// Asks one cloud about all of its balancers, and plans each.
async fn ask(cloud: &Cloud, cases: &mut [Case<'_>]) {
    let is_asked = |case: &&mut Case<'_>| case.clouds.iter().any(|own| own.name() == cloud.name());
    let asked = cases.iter_mut().filter(is_asked);
    let (mut asked, wishes): (Vec<_>, Vec<_>) = asked
        .filter_map(|case| {
            let wish = case.wish.as_ref().ok()?.clone();
            Some((case, wish))
        })
        .unzip();
    let batch = cloud.layers().capabilities().load_balancers.as_ref().map_or(1, |it| it.batch_observe.max(1));
    let answers: Vec<_> = stream::iter(wishes.chunks(batch))
        .map(|wishes| cloud.layers().observe_load_balancers(wishes))
        .buffered(AT_ONCE)
        .flat_map(stream::iter)
        .collect()
        .await;
    for ((case, wish), answer) in asked.iter_mut().zip(&wishes).zip(answers) {
        let sight = answer.and_then(|state| {
            let plan = cloud.layers().plan_load_balancer(wish, state.as_ref())?;
            Ok(Sight { state, plan })
        });
        case.sights.push((cloud.name().clone(), sight));
    }
}

// ---- telling

impl Case<'_> {
    fn told(self) -> Item {
        let mut item = Item::of_service(self.service);
        item.cloud = self.clouds.first().map(|cloud| cloud.name().clone()).filter(|_| self.clouds.len() == 1);
        self.notes.iter().for_each(|note| item.remark(RemarkKind::Note, note));
        let wish = match self.wish {
            Ok(wish) => wish,
            Err(trouble) => {
                tell_trouble(&mut item, self.service, &trouble, Vec::new());
                return item;
            }
        };
        // It is there before the cloud is asked, whatever comes of that.
        let finalizer: Vec<_> = wish.spec.iter().filter_map(|_| missing_finalizer(self.service)).collect();
        let task = if wish.spec.is_some() { Task::Ensure } else { Task::Delete };
        let mut states = Vec::new();
        for (cloud, sight) in self.sights {
            match sight {
                Ok(sight) => {
                    states.push(sight.state);
                    if !sight.plan.is_empty() {
                        item.cloud = Some(cloud);
                    }
                    item.in_cloud.steps.extend(sight.plan.steps);
                }
                // Somebody else sees to it.
                Err(error) if error.kind() == ErrorKind::ImplementedElsewhere => {
                    item.update(finalizer);
                    return item;
                }
                Err(error) => {
                    item.cloud = Some(cloud);
                    tell_trouble(&mut item, self.service, &Trouble::cloud(task)(error), finalizer);
                    return item;
                }
            }
        }
        let changes = match wish.spec {
            Some(_) => ensured(self.service, &self.settings, &item.in_cloud, states.pop().flatten()),
            None => removed(self.service),
        };
        item.update(changes);
        item
    }
}

/// What is in the way, and what the Service says of it.
fn tell_trouble(item: &mut Item, service: &Service, trouble: &Trouble, mut changes: Vec<FieldChange>) {
    let kind = match (&trouble.cause, trouble.next()) {
        (Cause::Protected | Cause::UnclearPolicy(_), _) => RemarkKind::HeldBack,
        _ if trouble.is_calm() => RemarkKind::Note,
        (_, Next::Rest) => RemarkKind::Refused,
        _ => RemarkKind::Failed,
    };
    item.remark(kind, trouble.to_string());
    // What only fails now may work by the time that a controller tries.
    if matches!(kind, RemarkKind::HeldBack | RemarkKind::Refused) {
        changes.extend(condition(service, "False"));
    }
    item.update(changes);
}

/// What is written to a Service whose balancer becomes as wanted.
fn ensured(
    service: &Service,
    settings: &LoadBalancerSettings,
    plan: &Plan,
    state: Option<LoadBalancerState>,
) -> Vec<FieldChange> {
    let mut changes: Vec<_> = missing_finalizer(service).into_iter().collect();
    // What a change will bring is not known; without one, it stays as it is.
    let works = !plan.is_empty() || state.as_ref().is_none_or(|state| problems(state).is_empty());
    let status_now = state.map(|state| with_ip_mode(state.status, settings));
    let change = ServiceChange::default();
    let differs = status_now.as_ref().is_none_or(|status| !change.with_status(service, status).is_empty());
    if differs {
        let known = status_now.filter(|_| plan.is_empty());
        let to = known.as_ref().map_or_else(|| KNOWN_AFTERWARDS.to_owned(), places);
        changes.push(changed("status.loadBalancer", Some(places(&service.status)), Some(to)));
    }
    // A Service that is as wanted and never was in trouble is not written to for the sake of a condition.
    if differs || service.condition(LOAD_BALANCER_READY).is_some() {
        changes.extend(condition(service, if works { "True" } else { "False" }));
    }
    changes
}

/// What is written to a Service of which nothing is left in a cloud.
fn removed(service: &Service) -> Vec<FieldChange> {
    let mut changes = Vec::new();
    if !service.deleting && service.status != LoadBalancerStatus::default() {
        changes.push(changed("status.loadBalancer", Some(places(&service.status)), None));
    }
    if let Some(condition) = service.condition(LOAD_BALANCER_READY).filter(|_| !service.deleting) {
        changes.push(changed(format!("condition {LOAD_BALANCER_READY}"), Some(condition.status.clone()), None));
    }
    if service.has_finalizer() {
        changes.push(changed("finalizer", Some(LOAD_BALANCER_CLEANUP.to_owned()), None));
    }
    changes
}

fn missing_finalizer(service: &Service) -> Option<FieldChange> {
    (!service.has_finalizer()).then(|| changed("finalizer", None, Some(LOAD_BALANCER_CLEANUP.to_owned())))
}

fn condition(service: &Service, to: &str) -> Option<FieldChange> {
    let from = service.condition(LOAD_BALANCER_READY).map(|condition| condition.status.clone());
    let field = format!("condition {LOAD_BALANCER_READY}");
    (from.as_deref() != Some(to)).then(|| changed(field, from, Some(to.to_owned())))
}

/// Where clients connect.
fn places(status: &LoadBalancerStatus) -> String {
    let place = |ingress: &Ingress| ingress.ip.clone().or_else(|| ingress.hostname.clone()).unwrap_or_default();
    status.ingress.iter().map(place).collect::<Vec<_>>().join(", ")
}
