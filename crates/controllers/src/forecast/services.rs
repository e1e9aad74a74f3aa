//! Forecast of the service-lb-controller.
//!
//! ```text
//!  Service ──► Case: load balancer or cleanup ──► desired state ──► each cloud: observe ──► plan ──► Item
//!                └─ not ours: no item              └─ invalid Service: refused
//! ```

mod explain;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bowline_cloud::{Cloud, Clouds, ErrorKind, Result};
use bowline_core::annotations::{FieldError, LoadBalancerSettings};
use bowline_core::service::{self, ConditionChange, FinalizerChange, ServiceChange, TargetSelection, status_equal};
use bowline_core::well_known::{LOAD_BALANCER_CLEANUP, LOAD_BALANCER_READY};
use bowline_core::{
    DesiredLoadBalancer, FieldChange, Ingress, IpMode, LoadBalancerState, LoadBalancerStatus, Opaque, Plan, PlanError,
    PortStatus, Protocol, Service, ServiceKey,
};
use jiff::Timestamp;

use super::{Item, NoticeKind, Snapshot, add_warnings, changed};
use crate::pause;
use crate::service::error::{Action, Cause, CloudErrors, Requeue, SyncError};
use crate::service::observe::TargetSets;
use crate::service::plan::{self, Need};
use crate::service::{Options, Routing, RoutingError};

pub(super) use explain::{explain, observed};

/// Placeholder for an address that the cloud assigns.
const PENDING_ADDRESS: &str = "(known after apply)";

/// Forecasts all Services of this manager, by namespace and name.
pub(super) async fn forecast(
    snapshot: &Snapshot,
    clouds: &Clouds,
    options: &Options,
    now: Timestamp,
) -> std::result::Result<Vec<Item>, RoutingError> {
    let routing = Routing::new(clouds, &options.default_cloud, options.classes)?;
    let forecaster = Forecaster { snapshot, clouds, options, routing: &routing, now, targets: TargetSets::default() };
    let mut cases: Vec<_> = snapshot.services.iter().filter_map(|service| forecaster.case(service)).collect();
    for cloud in clouds.iter() {
        observe(cloud, &mut cases).await;
    }
    let planned = cases.into_iter().map(|case| (case.service.key(), forecaster.to_item(case)));
    let items: BTreeMap<_, _> =
        planned.chain(snapshot.services.iter().filter_map(|service| forecaster.unchanged(service))).collect();
    Ok(items.into_values().collect())
}

/// Inputs of the forecast of a Service.
struct Forecaster<'a> {
    snapshot: &'a Snapshot,
    clouds: &'a Clouds,
    options: &'a Options,
    routing: &'a Routing,
    now: Timestamp,
    targets: TargetSets,
}

/// Service with its desired state, its clouds, and the observed state in each.
struct Case<'a> {
    service: &'a Service,
    desired: std::result::Result<DesiredLoadBalancer, SyncError>,
    clouds: Vec<Cloud>,
    observations: Vec<(Arc<str>, Result<Observation>)>,
    notes: Vec<String>,
}

/// Observed state in one cloud, and the plan.
struct Observation {
    state: Option<LoadBalancerState>,
    plan: Plan,
}

impl<'a> Forecaster<'a> {
    /// Returns `None` if the Service is not ours or needs no sync.
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
                let (unmanaged, clouds): (Vec<_>, _) =
                    clouds.into_iter().partition(|cloud| plan::is_unmanaged(cloud, service));
                let notes = unmanaged.iter().map(unmanaged_note).collect();
                (self.desired_cleanup(service), clouds, notes)
            }
            Need::Unmanaged(_) | Need::Paused | Need::Nothing => return None,
        };
        Some(Case { service, desired, clouds, observations: Vec::new(), notes })
    }

    /// Item of a Service that is paused or has an unmanaged load balancer.
    fn unchanged(&self, service: &Service) -> Option<(ServiceKey, Item)> {
        let mut item = Item::of_service(service);
        match plan::need(service, self.routing, false) {
            Need::Paused => {
                item.add_notice(NoticeKind::Note, pause::message(&service.annotations, service.deleting).1);
            }
            Need::Unmanaged(cloud) => {
                item.cloud = Some(cloud.name().clone());
                item.update(fields(service, &plan::unmanaged_change(service, self.now)));
                item.add_notice(NoticeKind::Note, unmanaged_note(cloud));
            }
            _ => return None,
        }
        Some((service.key(), item))
    }

    fn desired(
        &self,
        service: &Service,
        settings: std::result::Result<LoadBalancerSettings, Vec<FieldError>>,
        cloud: &Cloud,
        notes: &mut Vec<String>,
    ) -> std::result::Result<DesiredLoadBalancer, SyncError> {
        let settings = settings.map_err(SyncError::invalid_service)?;
        let choice = self.choose(service, &settings, cloud);
        if choice.excluded.is_over_limit() {
            notes.push(format!("Nodes left out of the load balancer: {}", choice.excluded));
        }
        plan::desired(cloud, &self.options.cluster, service, &settings, choice.targets)
    }

    /// Selects the targets of the load balancer.
    fn choose(&self, service: &Service, settings: &LoadBalancerSettings, cloud: &Cloud) -> TargetSelection {
        let rules = self.options.target_rules();
        let rules = plan::target_rules(cloud, &self.options.cluster, service, settings, rules);
        // The start of a Node's drain period is unknown here, so it counts as just begun.
        self.targets.targets(cloud, settings, rules, || self.snapshot.nodes.clone(), |_| true)
    }

    fn desired_cleanup(&self, service: &Service) -> std::result::Result<DesiredLoadBalancer, SyncError> {
        let settings = plan::cleanup_settings(service)?;
        Ok(service::desired_cleanup(&self.options.cluster, service, &settings))
    }
}

/// Note on a load balancer that the annotations of its Service exclude from management.
fn unmanaged_note(cloud: &Cloud) -> String {
    format!(
        "The load balancer is unmanaged, by an annotation of the Service: nothing is read or changed in {}.",
        cloud.name()
    )
}

/// Observes all load balancers of one cloud, and plans each.
async fn observe(cloud: &Cloud, cases: &mut [Case<'_>]) {
    let is_in_cloud = |case: &&mut Case<'_>| case.clouds.iter().any(|own| own.name() == cloud.name());
    let in_cloud = cases.iter_mut().filter(is_in_cloud);
    let (mut cases, desired): (Vec<_>, Vec<_>) = in_cloud
        .filter_map(|case| {
            let desired = case.desired.as_ref().ok()?.clone();
            Some((case, desired))
        })
        .unzip();
    let answers = cloud.layers().observe_load_balancers(&desired).await;
    for ((case, desired), answer) in cases.iter_mut().zip(&desired).zip(answers) {
        let observation = answer.and_then(|state| {
            let plan = cloud.layers().plan_load_balancer(desired, state.as_ref())?;
            Ok(Observation { state, plan })
        });
        case.observations.push((cloud.name().clone(), observation));
    }
}

// ---- items

impl Forecaster<'_> {
    fn to_item(&self, case: Case<'_>) -> Item {
        let mut item = Item::of_service(case.service);
        item.cloud = case.clouds.first().map(|cloud| cloud.name().clone()).filter(|_| case.clouds.len() == 1);
        case.notes.iter().for_each(|note| item.add_notice(NoticeKind::Note, note));
        let result = case.desired.and_then(|desired| match desired.spec {
            Some(_) => self.ensure(&mut item, case.service, &desired, case.observations),
            None => self.clean_up(&mut item, case.service, case.observations),
        });
        if let Err(error) = result {
            self.add_error(&mut item, case.service, &error);
        }
        item
    }

    fn ensure(
        &self,
        item: &mut Item,
        service: &Service,
        desired: &DesiredLoadBalancer,
        observations: Vec<(Arc<str>, Result<Observation>)>,
    ) -> std::result::Result<(), SyncError> {
        // The finalizer is added before the first cloud call, whatever its result.
        item.update(fields(service, &ServiceChange::add_finalizer(service)));
        for (_, observation) in observations {
            let observation = match observation {
                // Another controller implements the load balancer.
                Err(error) if error.kind() == ErrorKind::ImplementedElsewhere => return Ok(()),
                observation => observation.map_err(SyncError::cloud(Action::Ensure))?,
            };
            add_warnings(item, &observation.plan.warnings);
            if !observation.plan.errors.is_empty() {
                item.in_cloud = Plan::of(observation.plan.steps);
                self.errors(item, service, Action::Ensure, observation.plan.errors);
                continue;
            }
            let then = predicted_state(service, desired, observation.state, &observation.plan)?;
            let ready = service::ready_condition(&service::failed_ports(&then), self.now);
            item.in_cloud = Plan::of(observation.plan.steps);
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
        observations: Vec<(Arc<str>, Result<Observation>)>,
    ) -> std::result::Result<(), SyncError> {
        let (clouds, mut failures) = (observations.len(), CloudErrors::default());
        for (cloud, observation) in observations {
            match observation {
                Ok(observation) if observation.plan.is_empty() => {}
                Ok(observation) => {
                    item.cloud = Some(cloud);
                    add_warnings(item, &observation.plan.warnings);
                    item.update(fields(service, &plan::before_deletion(service, observation.state.as_ref())));
                    item.in_cloud.steps.extend(observation.plan.steps);
                    self.errors(item, service, Action::Delete, observation.plan.errors);
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

    /// Adds the errors that a sync returns after all steps of its plan.
    fn errors(&self, item: &mut Item, service: &Service, action: Action, errors: Vec<PlanError>) {
        for error in errors {
            self.add_error(item, service, &SyncError::cloud(action)(error.into()));
        }
    }

    /// Adds a notice for an error, and the condition that the Service gets.
    fn add_error(&self, item: &mut Item, service: &Service, error: &SyncError) {
        let kind = match (&error.cause, error.requeue()) {
            (Cause::Protected | Cause::UnclearPolicy(_), _) => NoticeKind::HeldBack,
            _ if error.is_benign() => NoticeKind::Note,
            (_, Requeue::OnChange) => NoticeKind::Refused,
            _ => NoticeKind::Failed,
        };
        item.add_notice(kind, error.to_string());
        // A transient failure may be gone when the controller syncs, so it changes no condition here.
        if matches!(kind, NoticeKind::HeldBack | NoticeKind::Refused) {
            let condition = error.condition(None, self.now);
            item.update(fields(service, &ServiceChange::default().with_condition(service, condition)));
        }
    }
}

/// Predicts the state that the Service shows once the plan is applied. Existing addresses are assumed to stay.
fn predicted_state(
    service: &Service,
    desired: &DesiredLoadBalancer,
    state: Option<LoadBalancerState>,
    plan: &Plan,
) -> std::result::Result<LoadBalancerState, SyncError> {
    let with_ip_mode = |state: LoadBalancerState| {
        let status = plan::with_ip_mode(state.status, &desired.settings);
        LoadBalancerState { status, ..state }
    };
    if plan.is_empty() {
        return plan::applied_state(state).map(with_ip_mode);
    }
    let annotations = state.as_ref().map(|state| state.annotations.clone()).unwrap_or_default();
    let stays = state.map(with_ip_mode).filter(|state| status_equal(&state.status, &service.status));
    let status = stays.map_or_else(pending_status, |state| with_ports(state.status, desired));
    Ok(LoadBalancerState { annotations, ..LoadBalancerState::new(status, Opaque::default()) })
}

fn pending_status() -> LoadBalancerStatus {
    let ingress = Ingress { hostname: Some(PENDING_ADDRESS.to_owned()), ..Ingress::default() };
    LoadBalancerStatus { ingress: vec![ingress] }
}

/// Replaces listed ports with the desired ones, for providers that list ports.
fn with_ports(mut status: LoadBalancerStatus, desired: &DesiredLoadBalancer) -> LoadBalancerStatus {
    let desired_ports = desired.spec.iter().flat_map(|spec| &spec.ports).map(|port| (port.port, port.protocol));
    let desired_ports: BTreeSet<(u16, Protocol)> = desired_ports.collect();
    let differs = |ingress: &&mut Ingress| {
        let listed: BTreeSet<_> = ingress.ports.iter().map(|port| (port.port, port.protocol)).collect();
        !listed.is_empty() && listed != desired_ports
    };
    for ingress in status.ingress.iter_mut().filter(differs) {
        ingress.ports =
            desired_ports.iter().map(|&(port, protocol)| PortStatus { port, protocol, error: None }).collect();
    }
    status
}

/// Lists the changes of a Service, field by field.
fn fields(service: &Service, change: &ServiceChange) -> Vec<FieldChange> {
    let finalizer = Some(LOAD_BALANCER_CLEANUP.to_owned());
    let status = change
        .status
        .as_ref()
        .map(|status| changed("status.loadBalancer", Some(ingress_list(&service.status)), Some(ingress_list(status))));
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

/// Shows the change of a condition by its status, or by its message if the status stays.
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

/// Lists the addresses of a status, with IP mode and ports where known.
fn ingress_list(status: &LoadBalancerStatus) -> String {
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
