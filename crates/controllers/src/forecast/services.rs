//! What the service-lb-controller would do.
//!
//! ```text
//!  Service ──► Case: a balancer is wanted, or none any more ──► wish ──► each cloud: observe ──► plan ──► Item
//!                └─ not ours: nothing to tell            └─ what is wrong with the Service: refused
//! ```

mod explain;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bowline_cloud::{Cloud, Clouds, ErrorKind, Result};
use bowline_core::annotations::{LoadBalancerSettings, Mistake};
use bowline_core::service::{self, Choice, ConditionChange, FinalizerChange, ServiceChange, status_equal};
use bowline_core::well_known::{LOAD_BALANCER_CLEANUP, LOAD_BALANCER_READY};
use bowline_core::{
    DesiredLoadBalancer, FieldChange, Ingress, IpMode, LoadBalancerState, LoadBalancerStatus, Opaque, Plan, PlanError,
    PortStatus, Protocol, Service, ServiceKey, Warning,
};
use jiff::Timestamp;

use super::{Item, RemarkKind, Snapshot, changed};
use crate::pause;
use crate::service::error::{Action, Cause, CloudErrors, Requeue, SyncError};
use crate::service::observe::TargetSets;
use crate::service::plan::{self, Need};
use crate::service::{Options, Routing, RoutingError};

pub(super) use explain::{explain, observed};

/// What is said of a status that the cloud decides on.
const KNOWN_AFTERWARDS: &str = "(known when the cloud is done)";

/// Something to tell of each Service that is ours, or nothing; by namespace and name.
pub(super) async fn forecast(
    snapshot: &Snapshot,
    clouds: &Clouds,
    options: &Options,
    now: Timestamp,
) -> std::result::Result<Vec<Item>, RoutingError> {
    let routing = Routing::new(clouds, &options.default_cloud, options.classes)?;
    let scene = Scene { snapshot, clouds, options, routing: &routing, now, targets: TargetSets::default() };
    let mut cases: Vec<_> = snapshot.services.iter().filter_map(|service| scene.case(service)).collect();
    for cloud in clouds.iter() {
        ask(cloud, &mut cases).await;
    }
    let planned = cases.into_iter().map(|case| (case.service.key(), scene.told(case)));
    let items: BTreeMap<_, _> =
        planned.chain(snapshot.services.iter().filter_map(|service| scene.paused(service))).collect();
    Ok(items.into_values().collect())
}

/// All that a Service is judged by.
struct Scene<'a> {
    snapshot: &'a Snapshot,
    clouds: &'a Clouds,
    options: &'a Options,
    routing: &'a Routing,
    now: Timestamp,
    targets: TargetSets,
}

/// A Service, what is wished of which clouds, and what those have for it.
struct Case<'a> {
    service: &'a Service,
    desired: std::result::Result<DesiredLoadBalancer, SyncError>,
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
        let (desired, clouds, notes) = match plan::need(service, self.routing, false) {
            Need::LoadBalancer(cloud) => {
                let reading = service::read(service);
                let mut notes = reading.unknown.iter().map(ToString::to_string).collect();
                let desired = self.desired(service, plan::settings(cloud, service, reading), cloud, &mut notes);
                (desired, vec![cloud.clone()], notes)
            }
            Need::Cleanup => {
                let clouds = plan::clouds_to_clean(service, self.routing, self.clouds);
                (self.desired_cleanup(service), clouds, Vec::new())
            }
            Need::Paused | Need::Nothing => return None,
        };
        Some(Case { service, desired, clouds, sights: Vec::new(), notes })
    }

    /// The note on a Service that an operator has paused.
    fn paused(&self, service: &Service) -> Option<(ServiceKey, Item)> {
        let is_paused = matches!(plan::need(service, self.routing, false), Need::Paused);
        let mut item = is_paused.then(|| Item::of_service(service))?;
        item.remark(RemarkKind::Note, pause::message(&service.annotations, service.deleting).1);
        Some((service.key(), item))
    }

    fn desired(
        &self,
        service: &Service,
        settings: std::result::Result<LoadBalancerSettings, Vec<Mistake>>,
        cloud: &Cloud,
        notes: &mut Vec<String>,
    ) -> std::result::Result<DesiredLoadBalancer, SyncError> {
        let settings = settings.map_err(SyncError::invalid_service)?;
        let choice = self.choose(service, &settings, cloud);
        if choice.left_out.is_over_limit() {
            notes.push(format!("Nodes left out of the load balancer: {}", choice.left_out));
        }
        plan::desired(cloud, &self.options.cluster, service, &settings, choice.targets)
    }

    /// The Nodes behind the load balancer, and those that are not.
    fn choose(&self, service: &Service, settings: &LoadBalancerSettings, cloud: &Cloud) -> Choice {
        let rules = self.options.target_rules();
        let rules = plan::target_rules(cloud, &self.options.cluster, service, settings, rules);
        // Since when a Node has been leaving is not known here: it is taken to have just begun.
        self.targets.targets(cloud, settings, rules, || self.snapshot.nodes.clone(), |_| true)
    }

    fn desired_cleanup(&self, service: &Service) -> std::result::Result<DesiredLoadBalancer, SyncError> {
        let settings = plan::cleanup_settings(service)?;
        Ok(service::desired_cleanup(&self.options.cluster, service, &settings))
    }
}

/// Asks one cloud about all of its balancers, and plans each.
async fn ask(cloud: &Cloud, cases: &mut [Case<'_>]) {
    let is_asked = |case: &&mut Case<'_>| case.clouds.iter().any(|own| own.name() == cloud.name());
    let asked = cases.iter_mut().filter(is_asked);
    let (mut asked, wanted): (Vec<_>, Vec<_>) = asked
        .filter_map(|case| {
            let desired = case.desired.as_ref().ok()?.clone();
            Some((case, desired))
        })
        .unzip();
    let answers = cloud.layers().observe_load_balancers(&wanted).await;
    for ((case, desired), answer) in asked.iter_mut().zip(&wanted).zip(answers) {
        let sight = answer.and_then(|state| {
            let plan = cloud.layers().plan_load_balancer(desired, state.as_ref())?;
            Ok(Sight { state, plan })
        });
        case.sights.push((cloud.name().clone(), sight));
    }
}

// ---- telling

impl Scene<'_> {
    fn told(&self, case: Case<'_>) -> Item {
        let mut item = Item::of_service(case.service);
        item.cloud = case.clouds.first().map(|cloud| cloud.name().clone()).filter(|_| case.clouds.len() == 1);
        case.notes.iter().for_each(|note| item.remark(RemarkKind::Note, note));
        let told = case.desired.and_then(|desired| match desired.spec {
            Some(_) => self.ensure(&mut item, case.service, &desired, case.sights),
            None => self.clean_up(&mut item, case.service, case.sights),
        });
        if let Err(trouble) = told {
            self.trouble(&mut item, case.service, &trouble);
        }
        item
    }

    fn ensure(
        &self,
        item: &mut Item,
        service: &Service,
        desired: &DesiredLoadBalancer,
        sights: Vec<(Arc<str>, Result<Sight>)>,
    ) -> std::result::Result<(), SyncError> {
        // It is there before the cloud is asked, whatever comes of that.
        item.update(fields(service, &ServiceChange::add_finalizer(service)));
        for (_, sight) in sights {
            let sight = match sight {
                // Somebody else sees to it.
                Err(error) if error.kind() == ErrorKind::ImplementedElsewhere => return Ok(()),
                sight => sight.map_err(SyncError::cloud(Action::Ensure))?,
            };
            remark_all(item, &sight.plan.warnings);
            if !sight.plan.errors.is_empty() {
                item.in_cloud = Plan::of(sight.plan.steps);
                self.errors(item, service, Action::Ensure, sight.plan.errors);
                continue;
            }
            let then = state_then(service, desired, sight.state, &sight.plan)?;
            let ready = service::ready_condition(&service::failed_ports(&then), self.now);
            item.in_cloud = Plan::of(sight.plan.steps);
            let change =
                plan::ensured_change(service, &then.status, ready).with_annotations(service, &then.annotations);
            item.update(fields(service, &change));
        }
        Ok(())
    }

    fn clean_up(
        &self,
        item: &mut Item,
        service: &Service,
        sights: Vec<(Arc<str>, Result<Sight>)>,
    ) -> std::result::Result<(), SyncError> {
        let (clouds, mut failures) = (sights.len(), CloudErrors::default());
        for (cloud, sight) in sights {
            match sight {
                Ok(sight) if sight.plan.is_empty() => {}
                Ok(sight) => {
                    item.cloud = Some(cloud);
                    remark_all(item, &sight.plan.warnings);
                    item.update(fields(service, &plan::before_deletion(service, sight.state.as_ref())));
                    item.in_cloud.steps.extend(sight.plan.steps);
                    self.errors(item, service, Action::Delete, sight.plan.errors);
                }
                Err(error) if error.kind() == ErrorKind::ImplementedElsewhere => {}
                Err(error) => {
                    failures.add(&cloud, SyncError::cloud(Action::CheckBeforeCleanup)(error))?;
                    item.cloud = Some(cloud);
                }
            }
        }
        failures.into_result(clouds)?;
        let existed = !item.in_cloud.is_empty();
        if let Some(change) = plan::deleted_change(service, self.routing.scope(), existed, false) {
            item.update(fields(service, &change));
        }
        Ok(())
    }

    /// The errors that a sync fails with after all steps of its plan.
    fn errors(&self, item: &mut Item, service: &Service, action: Action, errors: Vec<PlanError>) {
        for problem in errors {
            self.trouble(item, service, &SyncError::cloud(action)(problem.into()));
        }
    }

    /// What is in the way, and what the Service says of it.
    fn trouble(&self, item: &mut Item, service: &Service, trouble: &SyncError) {
        let kind = match (&trouble.cause, trouble.requeue()) {
            (Cause::Protected | Cause::UnclearPolicy(_), _) => RemarkKind::HeldBack,
            _ if trouble.is_benign() => RemarkKind::Note,
            (_, Requeue::OnChange) => RemarkKind::Refused,
            _ => RemarkKind::Failed,
        };
        item.remark(kind, trouble.to_string());
        // What only fails now may work by the time that a controller tries.
        if matches!(kind, RemarkKind::HeldBack | RemarkKind::Refused) {
            let condition = trouble.condition(None, self.now);
            item.update(fields(service, &ServiceChange::default().with_condition(service, condition)));
        }
    }
}

/// What the owner of a Service is told in Events.
fn remark_all(item: &mut Item, warnings: &[Warning]) {
    for Warning { reason, message } in warnings {
        item.remark(RemarkKind::Note, format!("{reason}: {message}"));
    }
}

/// What the cloud has when the plan is carried out, as far as a Service is told. Addresses that the Service has already stay,
/// as far as anybody can tell now.
fn state_then(
    service: &Service,
    desired: &DesiredLoadBalancer,
    state: Option<LoadBalancerState>,
    plan: &Plan,
) -> std::result::Result<LoadBalancerState, SyncError> {
    let told = |state: LoadBalancerState| {
        let status = plan::with_ip_mode(state.status, &desired.settings);
        LoadBalancerState { status, ..state }
    };
    if plan.is_empty() {
        return plan::applied_state(state).map(told);
    }
    let annotations = state.as_ref().map(|state| state.annotations.clone()).unwrap_or_default();
    let stays = state.map(told).filter(|state| status_equal(&state.status, &service.status));
    let status = stays.map_or_else(known_afterwards, |state| with_ports(state.status, desired));
    Ok(LoadBalancerState { annotations, ..LoadBalancerState::new(status, Opaque::default()) })
}

fn known_afterwards() -> LoadBalancerStatus {
    let ingress = Ingress { hostname: Some(KNOWN_AFTERWARDS.to_owned()), ..Ingress::default() };
    LoadBalancerStatus { ingress: vec![ingress] }
}

/// Where a provider lists ports, it lists those that are wished.
fn with_ports(mut status: LoadBalancerStatus, desired: &DesiredLoadBalancer) -> LoadBalancerStatus {
    let wished = desired.spec.iter().flat_map(|spec| &spec.ports).map(|port| (port.port, port.protocol));
    let wished: BTreeSet<(u16, Protocol)> = wished.collect();
    let differs = |ingress: &&mut Ingress| {
        let listed: BTreeSet<_> = ingress.ports.iter().map(|port| (port.port, port.protocol)).collect();
        !listed.is_empty() && listed != wished
    };
    for ingress in status.ingress.iter_mut().filter(differs) {
        ingress.ports = wished.iter().map(|&(port, protocol)| PortStatus { port, protocol, error: None }).collect();
    }
    status
}

/// What is written, field by field.
fn fields(service: &Service, change: &ServiceChange) -> Vec<FieldChange> {
    let finalizer = Some(LOAD_BALANCER_CLEANUP.to_owned());
    let status = change
        .status
        .as_ref()
        .map(|status| changed("status.loadBalancer", Some(places(&service.status)), Some(places(status))));
    let condition = change.condition.as_ref().map(|change| condition_field(service, change));
    let finalizer = change.finalizer.map(|change| match change {
        FinalizerChange::Add => changed("finalizer", None, finalizer),
        FinalizerChange::Remove => changed("finalizer", finalizer, None),
    });
    let annotations = change
        .annotations
        .iter()
        .map(|(key, then)| changed(format!("annotation {key}"), service.annotations.get(key).cloned(), then.clone()));
    status.into_iter().chain(condition).chain(annotations).chain(finalizer).collect()
}

/// Told by its status; by its message if that is what changes.
fn condition_field(service: &Service, change: &ConditionChange) -> FieldChange {
    let field = format!("condition {LOAD_BALANCER_READY}");
    let now = service.condition(LOAD_BALANCER_READY);
    match (now, change) {
        (Some(now), ConditionChange::Set(then)) if now.status == then.status => {
            changed(field, Some(now.message.clone()), Some(then.message.clone()))
        }
        (now, ConditionChange::Set(then)) => {
            changed(field, now.map(|now| now.status.clone()), Some(then.status.clone()))
        }
        (now, ConditionChange::Remove(_)) => changed(field, now.map(|now| now.status.clone()), None),
    }
}

/// Where clients connect, and how as far as that is said.
fn places(status: &LoadBalancerStatus) -> String {
    status.ingress.iter().map(place).collect::<Vec<_>>().join(", ")
}

fn place(ingress: &Ingress) -> String {
    let place = ingress.ip.as_ref().or(ingress.hostname.as_ref()).map(String::as_str).unwrap_or_default();
    let mode = ingress.ip_mode.map(|mode| match mode {
        IpMode::Vip => "VIP".to_owned(),
        IpMode::Proxy => "Proxy".to_owned(),
    });
    let ports = ingress.ports.iter().map(|port| match &port.error {
        Some(error) => format!("{}/{} {error}", port.port, port.protocol),
        None => format!("{}/{}", port.port, port.protocol),
    });
    let details: Vec<String> = mode.into_iter().chain(ports).collect();
    if details.is_empty() { place.to_owned() } else { format!("{place} ({})", details.join(" ")) }
}
