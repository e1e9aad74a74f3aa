//! Explanation of one Service.

use super::*;
use crate::forecast::explain::{Comparison, Explanation, pause_suffix};

/// Explains a Service with the observed state of its load balancer.
pub(in crate::forecast) async fn explain(
    service: &Service,
    snapshot: &Snapshot,
    clouds: &Clouds,
    options: &Options,
    now: Timestamp,
) -> std::result::Result<Explanation, RoutingError> {
    let routing = Routing::new(clouds, &options.default_cloud, options.classes)?;
    let forecaster = Forecaster { snapshot, clouds, options, routing: &routing, now, targets: TargetSets::default() };
    let mut cases: Vec<_> = forecaster.case(service).into_iter().collect();
    for cloud in clouds.iter() {
        observe(cloud, &mut cases).await;
    }
    let is_wanted = matches!(plan::need(service, &routing, false), Need::LoadBalancer(_));
    let balancer = cases.first().map(|case| load_balancer(case, is_wanted));
    let choice = forecaster.choice(service);
    let item = cases.pop().map(|case| forecaster.to_item(case)).or_else(|| Some(forecaster.unchanged(service)?.1));
    let item = item.unwrap_or_else(|| Item::of_service(service));
    let observed = |_: &Item| balancer.into_iter().chain(observed(service)).collect();
    let explanation = Explanation::new(item, ownership(service, &routing), observed);
    let targets = choice.as_ref().map(|choice| choice.targets.len());
    Ok(Explanation { targets, left_out: choice.unwrap_or_default().excluded, ..explanation })
}

impl Forecaster<'_> {
    /// Selects the targets of the load balancer, if one is desired.
    fn choice(&self, service: &Service) -> Option<TargetSelection> {
        let Need::LoadBalancer(cloud) = plan::need(service, self.routing, false) else { return None };
        let settings = plan::settings(cloud, service, service::read(service)).ok()?;
        Some(self.choose(service, &settings, cloud))
    }
}

/// Compares the clouds that should have a load balancer with those that have one.
fn load_balancer(case: &Case<'_>, is_wanted: bool) -> Comparison {
    let names = case.clouds.iter().map(|cloud| &**cloud.name());
    let seen = case.observations.iter().filter_map(|(cloud, observation)| match observation {
        Ok(observation) => observation.state.as_ref().map(|_| format!("in {cloud}")),
        Err(_) => Some(format!("unknown in {cloud}")),
    });
    let desired = names.filter(|_| is_wanted).map(|cloud| format!("in {cloud}")).collect::<Vec<_>>().join(", ");
    Comparison { field: "load balancer".to_owned(), desired, observed: seen.collect::<Vec<_>>().join(", ") }
}

/// Fields of a Service that its controller writes.
pub(in crate::forecast) fn observed(service: &Service) -> Vec<Comparison> {
    let finalizer = if service.has_finalizer() { LOAD_BALANCER_CLEANUP } else { "" };
    let ready = service.condition(LOAD_BALANCER_READY).map(|condition| condition.status.clone()).unwrap_or_default();
    vec![
        Comparison::unchanged("finalizer", finalizer),
        Comparison::unchanged("status.loadBalancer", ingress_list(&service.status)),
        Comparison::unchanged(format!("condition {LOAD_BALANCER_READY}"), ready),
    ]
}

/// Describes the owner of the Service, and whether it is paused.
fn ownership(service: &Service, routing: &Routing) -> String {
    plan::ownership(service, routing) + pause_suffix(&service.annotations)
}
