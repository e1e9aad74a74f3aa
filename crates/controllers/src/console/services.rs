//! Services as the watch shows them.

use bowline_console::document::{self, Document, Health, Level, text};
use bowline_core::service::{Condition, ServicePort};
use bowline_core::well_known::LOAD_BALANCER_READY;
use bowline_core::{Ingress, Service, ServiceType};
use bowline_kube::Store;

/// Maximum number of entries of each list of a Service.
const MAX_ENTRIES: usize = 100;

/// Adds an item for each Service that has a load balancer, or wants one.
pub(super) fn add(document: &mut Document, services: &Store<Service>) {
    let shown = |service: &Service| service.kind == ServiceType::LoadBalancer || service.has_finalizer();
    let services = services.all().into_iter().filter(|service| shown(service));
    document.service.extend(services.map(|service| (service.key().to_string(), item(&service))));
}

fn item(service: &Service) -> document::Service {
    let ready = service.condition(LOAD_BALANCER_READY);
    document::Service {
        // The service-lb-controller replaces it.
        health: Health::new(Level::Unknown, "NotObserved", ""),
        class: service.class.as_deref().map(text),
        kind: format!("{:?}", service.kind),
        ports: service.ports.iter().take(MAX_ENTRIES).map(port).collect(),
        traffic_policy: format!("{:?}", service.traffic_policy),
        created: service.created,
        deleting: service.deleting,
        finalizer: service.has_finalizer(),
        paused: service.is_paused(),
        addresses: service.status.ingress.iter().take(MAX_ENTRIES).filter_map(address).map(text).collect(),
        condition: ready.map(condition),
        ..document::Service::default()
    }
}

fn port(port: &ServicePort) -> String {
    let name = if port.name.is_empty() { String::new() } else { format!("{} ", port.name) };
    let node_port = port.node_port.map(|port| format!(" → {port}")).unwrap_or_default();
    text(format!("{name}{} {}{node_port}", port.protocol, port.port))
}

fn address(ingress: &Ingress) -> Option<&str> {
    ingress.ip.as_deref().or(ingress.hostname.as_deref())
}

fn condition(condition: &Condition) -> document::Condition {
    document::Condition {
        status: condition.status.clone(),
        reason: text(&condition.reason),
        message: text(&condition.message),
    }
}
