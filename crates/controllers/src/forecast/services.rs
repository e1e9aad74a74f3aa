//! What the service-lb-controller would do.
//!
//! ```text
//!  Service ──► Case: a balancer is wanted, or none any more, or it is not ours
//!                 └──► wish, or what is wrong with the Service ──► observe ──► plan ──► steps, status, finalizer
//! ```

use std::collections::BTreeMap;

use bowline_cloud::{Cloud, Clouds, Error, ErrorKind, Result};
use bowline_core::annotations::{DeletionPolicy, LoadBalancerSettings, Mistake};
use bowline_core::service::{self, TargetRules};
use bowline_core::well_known::{LOAD_BALANCER_CLEANUP, LOAD_BALANCER_READY};
use bowline_core::{FieldChange, Ingress, LoadBalancerState, LoadBalancerStatus, LoadBalancerWish, Plan, Service};
use futures::stream::{self, StreamExt as _};

use super::{Item, RemarkKind, Snapshot, changed};
use crate::service::{Options, Routing, RoutingError};

/// How many questions are put to a cloud at once; its own limit may be lower.
const AT_ONCE: usize = 8;

/// What is said of a status that the cloud decides on.
const KNOWN_AFTERWARDS: &str = "(known when the cloud is done)";

/// A Service, its cloud, and what is wished of that.
struct Case<'a> {
    service: &'a Service,
    cloud: &'a Cloud,
    wish: LoadBalancerWish,
    item: Item,
}

/// Something to tell of each Service that is ours, or nothing; by namespace and name.
pub(super) async fn forecast(
    snapshot: &Snapshot,
    clouds: &Clouds,
    options: &Options,
) -> std::result::Result<Vec<Item>, RoutingError> {
    let routing = Routing::new(clouds, &options.default_cloud, options.classes)?;
    let scene = Scene { snapshot, clouds, options, routing: &routing };
    let (mut items, mut cases) = (Vec::new(), BTreeMap::<_, Vec<_>>::new());
    for service in &snapshot.services {
        match scene.case(service) {
            Some(Ok(case)) => cases.entry(case.cloud.name().clone()).or_default().push(case),
            Some(Err(item)) => items.push(item),
            None => {}
        }
    }
    for cases in cases.into_values() {
        items.extend(planned(cases).await);
    }
    items.sort_by_key(|item| item.object.title());
    Ok(items)
}

/// All that a Service is judged by.
struct Scene<'a> {
    snapshot: &'a Snapshot,
    clouds: &'a Clouds,
    options: &'a Options,
    routing: &'a Routing,
}

impl<'a> Scene<'a> {
    /// What is wished for this Service, or why it is refused; `None` if it is not ours or needs nothing.
    fn case(&self, service: &'a Service) -> Option<std::result::Result<Case<'a>, Item>> {
        let scope = self.routing.scope();
        let is_wanted = service::wants_balancer(service, &scope) && !service.deleting;
        let is_over =
            service::needs_cleanup(service, &scope) || (service::wants_balancer(service, &scope) && service.deleting);
        if !is_wanted && !is_over {
            return None;
        }
        let cloud = self.routing.cloud(service)?;
        let mut item = Item::of_service(service);
        item.cloud = Some(cloud.name().clone());
        let reading = service::read(service);
        for unknown in &reading.unknown {
            let near = unknown.nearest.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
            item.remark(RemarkKind::Note, format!("the annotation {} means nothing{near}", unknown.key));
        }
        let wish = match reading.settings {
            Ok(settings) if is_wanted => self.wish(service, cloud, &settings),
            Ok(settings) => Ok(service::cleanup_wish(&self.options.cluster, service, &settings)),
            // A mistake does not keep a balancer alive that nobody wants.
            Err(_) if is_over => {
                Ok(service::cleanup_wish(&self.options.cluster, service, &LoadBalancerSettings::default()))
            }
            Err(mistakes) => Err(mistakes),
        };
        Some(match wish {
            Ok(wish) => Ok(Case { service, cloud, wish, item }),
            Err(mistakes) => Err(refused(item, service, &joined(&mistakes))),
        })
    }

    fn wish(
        &self,
        service: &Service,
        cloud: &Cloud,
        settings: &LoadBalancerSettings,
    ) -> std::result::Result<LoadBalancerWish, Vec<Mistake>> {
        let capabilities = cloud.layers().capabilities().load_balancers.as_ref();
        let drains = !self.options.drain.is_zero() && capabilities.is_some_and(|capabilities| capabilities.drain);
        let rules = TargetRules { nodes: self.options.nodes, drain: drains };
        let is_local = |node: &bowline_core::Node| {
            let owner = node.provider_id.as_ref().and_then(|id| self.clouds.owner(id));
            owner.is_some_and(|owner| owner.name() == cloud.name())
        };
        // Since when a Node has been leaving is not known here: it is taken to have just begun.
        let targets =
            service::targets(&self.snapshot.nodes, rules, settings.target_nodes.as_ref(), is_local, |_| drains);
        service::wish(&self.options.cluster, service, settings, targets)
    }
}

/// Asks one cloud about all of its balancers, and plans each.
async fn planned(cases: Vec<Case<'_>>) -> Vec<Item> {
    let Some(cloud) = cases.first().map(|case| case.cloud) else { return Vec::new() };
    let batch = cloud.layers().capabilities().load_balancers.as_ref().map_or(1, |it| it.batch_observe.max(1));
    let wishes: Vec<_> = cases.iter().map(|case| case.wish.clone()).collect();
    let answers: Vec<_> = stream::iter(wishes.chunks(batch))
        .map(|wishes| cloud.layers().observe_load_balancers(wishes))
        .buffered(AT_ONCE)
        .flat_map(stream::iter)
        .collect()
        .await;
    cases.into_iter().zip(answers).map(|(case, state)| case.planned(state)).collect()
}

impl Case<'_> {
    fn planned(mut self, state: Result<Option<LoadBalancerState>>) -> Item {
        let plan = state.and_then(|state| {
            let plan = self.cloud.layers().plan_load_balancer(&self.wish, state.as_ref())?;
            Ok((plan, state))
        });
        match plan {
            Ok((plan, state)) if self.wish.spec.is_some() => self.ensured(plan, state.as_ref()),
            Ok((plan, _)) => self.removed(plan),
            Err(error) => self.failed(&error),
        }
        self.item
    }

    /// The balancer becomes as wanted, and the Service says so.
    fn ensured(&mut self, plan: Plan, state: Option<&LoadBalancerState>) {
        let mut changes = Vec::new();
        if !self.service.has_finalizer() {
            changes.push(changed("finalizer", None, Some(LOAD_BALANCER_CLEANUP.to_owned())));
        }
        let now = &self.service.status;
        let then = state.map(|state| &state.status);
        if !then.is_some_and(|then| service::status_equal(now, then)) {
            let to = then.filter(|_| plan.is_empty()).map_or_else(|| KNOWN_AFTERWARDS.to_owned(), status);
            changes.push(changed("status.loadBalancer", Some(status(now)), Some(to)));
        }
        changes.extend(condition(self.service, "True"));
        self.item.in_cloud = plan;
        self.item.update(changes);
    }

    /// Nothing is left, and the Service may go.
    fn removed(&mut self, plan: Plan) {
        let policy = self.wish.settings.policy;
        if policy == DeletionPolicy::Protect {
            let why = "bowline.dev/policy: protect keeps the balancer, and with it the Service";
            return self.item.remark(RemarkKind::HeldBack, why);
        }
        let mut changes = Vec::new();
        if self.service.status != LoadBalancerStatus::default() {
            changes.push(changed("status.loadBalancer", Some(status(&self.service.status)), None));
        }
        if self.service.has_finalizer() {
            changes.push(changed("finalizer", Some(LOAD_BALANCER_CLEANUP.to_owned()), None));
        }
        self.item.in_cloud = plan;
        self.item.update(changes);
    }

    fn failed(&mut self, error: &Error) {
        match error.kind() {
            ErrorKind::InProgress => self.item.remark(RemarkKind::Note, format!("the cloud is still at work: {error}")),
            // Somebody else does this: the finalizer is all that is ours.
            ErrorKind::ImplementedElsewhere => {}
            ErrorKind::Unsupported | ErrorKind::InvalidConfig | ErrorKind::AlreadyExists => {
                let item = std::mem::replace(&mut self.item, Item::of_service(self.service));
                self.item = refused(item, self.service, &error.to_string());
            }
            _ => self.item.remark(RemarkKind::Failed, error.to_string()),
        }
    }
}

/// The Service asks for what cannot be; its condition says so.
fn refused(mut item: Item, service: &Service, why: &str) -> Item {
    item.remark(RemarkKind::Refused, why);
    item.update(condition(service, "False").into_iter().collect());
    item
}

fn condition(service: &Service, to: &str) -> Option<FieldChange> {
    let from = service.condition(LOAD_BALANCER_READY).map(|condition| condition.status.clone());
    let field = format!("condition {LOAD_BALANCER_READY}");
    (from.as_deref() != Some(to)).then(|| changed(field, from, Some(to.to_owned())))
}

fn joined(mistakes: &[Mistake]) -> String {
    mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn status(status: &LoadBalancerStatus) -> String {
    let place = |ingress: &Ingress| ingress.ip.clone().or_else(|| ingress.hostname.clone()).unwrap_or_default();
    status.ingress.iter().map(place).collect::<Vec<_>>().join(", ")
}
