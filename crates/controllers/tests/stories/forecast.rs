//! Forecasts, with a cloud that counts writes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use async_trait::async_trait;
use bowline_cloud::layers::LayerOptions;
use bowline_cloud::{
    Applied, Capabilities, CloudProvider, Clouds, Error, ErrorKind, InstanceCapabilities, Instances, KnownState,
    LoadBalancerCapabilities, LoadBalancerKind, LoadBalancers, ProviderInfo, Result, SingleLookup,
};
use bowline_controllers::forecast::{Forecast, Item, NoticeKind, Snapshot, forecast};
use bowline_controllers::manager::ManagerOptions;
use bowline_controllers::service::DefaultCloud;
use bowline_core::annotations::{FieldError, LoadBalancerSettings};
use bowline_core::lifecycle::Moment;
use bowline_core::testing::{annotated, finalized, node, service, status, taint};
use bowline_core::well_known::{NO_SCHEDULE, UNINITIALIZED_TAINT};
use bowline_core::{
    Address, AddressType, ClusterName, DesiredLoadBalancer, Instance, InstanceRef, InstanceState, IpFamily,
    LoadBalancerKey, LoadBalancerState, Node, Opaque, Plan, ProviderId, Ready, Service, ServiceType, Step, Verb,
    Warning,
};
use jiff::Timestamp;

/// Cloud whose machines and load balancers behave by their names: `gone…` does not exist, `stopped…` is stopped, `broken…` fails,
/// `blurred…` runs and its details cannot be read; a Service `made…` has a load balancer, which has a failed port if the name ends
/// in `ailing`, and `busy…` has one with a change in progress.
#[derive(Default)]
struct Harbour {
    writes: Arc<AtomicUsize>,
    without_balancers: bool,
}

impl Harbour {
    fn clouds(self) -> Clouds {
        let provider: Arc<dyn CloudProvider> = Arc::new(Provider::new(self));
        Clouds::with_layers([provider], &LayerOptions::default(), &prometheus::Registry::new())
    }
}

struct Provider {
    harbour: Harbour,
    info: ProviderInfo,
    capabilities: Capabilities,
}

impl Provider {
    fn new(harbour: Harbour) -> Provider {
        let info = ProviderInfo { name: "harbour".to_owned(), id_prefixes: vec!["harbour".to_owned()] };
        let kind = LoadBalancerKind { tcp: true, ip_families: vec![IpFamily::IPv4], ..LoadBalancerKind::default() };
        let balancers = LoadBalancerCapabilities { marks_uid: false, ..LoadBalancerCapabilities::of(kind) };
        let capabilities = Capabilities {
            instances: Some(InstanceCapabilities { lookup_by_name: true, ..InstanceCapabilities::default() }),
            load_balancers: (!harbour.without_balancers).then_some(balancers),
            routes: None,
        };
        Provider { harbour, info, capabilities }
    }
}

#[async_trait]
impl CloudProvider for Provider {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn instances(&self) -> Option<&dyn Instances> {
        Some(self)
    }

    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        (!self.harbour.without_balancers).then_some(self)
    }

    async fn check(&self) -> Result<()> {
        Ok(())
    }
}

#[async_trait]
impl SingleLookup for Provider {
    async fn find_one(&self, asked: &InstanceRef) -> Result<InstanceState> {
        let name = asked.node.as_str();
        let instance = Arc::new(Instance {
            id: name.to_owned(),
            name: name.to_owned(),
            provider_id: Some(ProviderId::of("harbour", name)),
            zone: "quay-1".to_owned(),
            addresses: vec![Address::new(AddressType::InternalIP, "10.0.0.1")],
            ..Instance::default()
        });
        match name.trim_end_matches(|c: char| c.is_ascii_digit()) {
            "gone" => Ok(InstanceState::Gone),
            "stopped" => Ok(InstanceState::Stopped(instance)),
            "blurred" => {
                Err(Error::new(ErrorKind::NotFound, "get type", "no such type").with_known_state(KnownState::Running))
            }
            "broken" => Err(Error::new(ErrorKind::Unavailable, "find", "the harbour is closed")),
            _ => Ok(InstanceState::Running(instance)),
        }
    }
}

/// Annotation that the cloud writes to identify a load balancer.
const BERTH: &str = "harbour.example/berth";
/// Annotation with a warning for the plan.
const WARNING: &str = "harbour.example/warning";
/// Annotation with an error in the settings.
const INVALID: &str = "harbour.example/invalid";
/// Annotation with an error that the plan returns after its steps.
const PLAN_ERROR: &str = "harbour.example/plan-error";

#[async_trait]
impl LoadBalancers for Provider {
    fn settings(
        &self,
        annotations: &BTreeMap<String, String>,
        common: LoadBalancerSettings,
    ) -> std::result::Result<LoadBalancerSettings, Vec<FieldError>> {
        match annotations.get(INVALID) {
            Some(message) => Err(vec![FieldError { field: INVALID.to_owned(), message: message.clone() }]),
            None => Ok(common),
        }
    }

    async fn observe(&self, wanted: &[DesiredLoadBalancer]) -> Vec<Result<Option<LoadBalancerState>>> {
        let state = |desired: &DesiredLoadBalancer| match desired.key.service.as_str() {
            "broken" => Err(Error::new(ErrorKind::Unavailable, "observe", "the harbour is closed")),
            name if name.starts_with("made") => {
                let status = status(&["192.0.2.1"]);
                let errors = name.ends_with("ailing").then(|| "port 80/TCP: taken".to_owned()).into_iter().collect();
                let is_noted = name.ends_with("noted");
                let annotations = is_noted.then(|| (BERTH.to_owned(), "7".to_owned())).into_iter().collect();
                Ok(Some(LoadBalancerState { errors, annotations, ..LoadBalancerState::new(status, Opaque::default()) }))
            }
            _ => Ok(None),
        };
        wanted.iter().map(state).collect()
    }

    async fn list(&self, _: &ClusterName) -> Result<Vec<LoadBalancerKey>> {
        Ok(Vec::new())
    }

    fn plan(&self, desired: &DesiredLoadBalancer, state: Option<&LoadBalancerState>) -> Result<Plan> {
        if desired.key.service.starts_with("busy") {
            return Err(Error::new(ErrorKind::InProgress, "plan", "an earlier change"));
        }
        let step = |verb| Step::new(verb, "load balancer", desired.key.service.clone(), Vec::new(), Opaque::default());
        let plan_error = |text: &String| Error::new(ErrorKind::QuotaExceeded, "plan", text).to_plan_error("berth");
        let warning = |text: &String| Warning { reason: "HarbourWarning".to_owned(), message: text.clone() };
        Ok(Plan {
            warnings: desired.annotations.get(WARNING).map(warning).into_iter().collect(),
            steps: match (&desired.spec, state) {
                (Some(_), None) => vec![step(Verb::Create)],
                (None, Some(_)) => vec![step(Verb::Delete)],
                _ => Vec::new(),
            },
            errors: desired.annotations.get(PLAN_ERROR).map(plan_error).into_iter().collect(),
            ..Plan::default()
        })
    }

    async fn apply(&self, _: &LoadBalancerKey, _: &Step, _: Option<&Opaque>) -> Result<Applied> {
        self.harbour.writes.fetch_add(1, Ordering::Relaxed);
        Ok(Applied::Done)
    }
}

/// Forecasts these objects with the default controllers.
async fn forecast_of(nodes: Vec<Node>, services: Vec<Service>) -> Forecast {
    forecast_with(nodes, services, |_| {}).await
}

async fn forecast_with(nodes: Vec<Node>, services: Vec<Service>, set: impl FnOnce(&mut ManagerOptions)) -> Forecast {
    let harbour = Harbour::default();
    let writes = harbour.writes.clone();
    let mut options = ManagerOptions::default();
    set(&mut options);
    let snapshot = Snapshot {
        nodes: nodes.into_iter().map(Arc::new).collect(),
        services: services.into_iter().map(Arc::new).collect(),
        cluster_uid: None,
    };
    let now = Moment { instant: Instant::now(), wall: Timestamp::now() };
    let forecast = forecast(&snapshot, &harbour.clouds(), &options, now).await.unwrap();
    assert_eq!(writes.load(Ordering::Relaxed), 0, "a forecast writes nothing");
    forecast
}

/// One line per item: title, steps in the cloud, fields that change in the cluster, kinds of notices.
fn lines(forecast: &Forecast) -> Vec<String> {
    forecast.items.iter().map(line).collect()
}

fn line(item: &Item) -> String {
    let cloud = item.in_cloud.steps.iter().map(|step| format!("{} {}", step.verb, step.kind));
    let cluster = item.in_cluster.steps.iter().map(|step| {
        let fields: Vec<_> = step.changes.iter().map(ToString::to_string).collect();
        format!("{} [{}]", step.verb, fields.join("; "))
    });
    let notices = item.notices.iter().map(|notice| format!("{:?}", notice.kind));
    let parts: Vec<_> = cloud.chain(cluster).chain(notices).collect();
    format!("{}: {}", item.object.title(), parts.join(", "))
}

fn uninitialized(name: &str) -> Node {
    Node { taints: vec![taint(UNINITIALIZED_TAINT, NO_SCHEDULE)], ..node(name) }
}

/// Node that was initialised an hour ago and matches its machine.
fn initialized(name: &str, ready: Ready) -> Node {
    Node {
        provider_id: Some(ProviderId::of("harbour", name)),
        created: Some(Timestamp::now() - jiff::SignedDuration::from_hours(1)),
        addresses: vec![Address::new(AddressType::InternalIP, "10.0.0.1")],
        ready,
        ..node(name)
    }
}

#[tokio::test]
async fn nodes_and_services_in_their_desired_state_have_no_item() {
    let made = Service { status: status(&["192.0.2.1"]), ..finalized(service("default/made")) };
    let other = Service { class: Some("example.com/other".to_owned()), ..service("default/foreign") };
    let plain = Service { kind: ServiceType::ClusterIP, ..service("default/plain") };
    let forecast = forecast_of(vec![initialized("worker", Ready::True)], vec![made, other, plain]).await;
    assert_eq!(lines(&forecast), [""; 0]);
    assert!(forecast.summary().is_unchanged());
}

#[tokio::test]
async fn a_new_node_is_initialised_and_then_gets_its_addresses() {
    let forecast = forecast_of(vec![uninitialized("worker")], vec![]).await;
    let zone = "label failure-domain.beta.kubernetes.io/zone: quay-1; label topology.kubernetes.io/zone: quay-1";
    let expected = format!(
        "Node worker: update [spec.providerID: harbour://worker; {zone}; taint: {UNINITIALIZED_TAINT} (removed)], \
         update [status.addresses: InternalIP=10.0.0.1]"
    );
    assert_eq!(lines(&forecast), [expected]);
    assert_eq!(forecast.items[0].cloud.as_deref(), Some("harbour"));
}

#[tokio::test]
async fn a_node_without_machine_stays_tainted_and_a_failed_read_is_counted() {
    let forecast =
        forecast_of(vec![uninitialized("gone"), uninitialized("broken"), uninitialized("worker")], vec![]).await;
    assert_eq!(forecast.items.len(), 3, "the other node is planned: {:?}", lines(&forecast));
    let summary = forecast.summary();
    assert_eq!((summary.refused, summary.failed, summary.in_cluster), (1, 1, 2), "{:?}", lines(&forecast));
}

#[tokio::test]
async fn nodes_of_stopped_machines_are_tainted_and_nodes_of_deleted_machines_are_deleted() {
    let nodes = ["stopped", "gone", "w1", "w2"]
        .map(|name| initialized(name, if name.starts_with('w') { Ready::True } else { Ready::Unknown }));
    let forecast = forecast_of(nodes.to_vec(), vec![]).await;
    let expected =
        ["Node gone: delete [], Note", "Node stopped: update [taint: node.cloudprovider.kubernetes.io/shutdown]"];
    assert_eq!(lines(&forecast), expected);
}

#[tokio::test]
async fn an_existing_machine_is_a_witness_even_if_its_details_cannot_be_read() {
    let nodes = ["gone", "blurred1", "blurred2"].map(|name| initialized(name, Ready::Unknown)).to_vec();
    let forecast = forecast_with(nodes.clone(), vec![], |options| options.node = None).await;
    assert_eq!(lines(&forecast), ["Node gone: delete [], Note"]);
    let forecast = forecast_of(nodes, vec![]).await;
    assert_eq!(lines(&forecast), ["Node blurred1: Failed", "Node blurred2: Failed", "Node gone: delete [], Note"]);
}

#[tokio::test]
async fn doubtful_deletions_are_held_back_with_the_reason() {
    let too_many = ["gone1", "gone2", "gone3"].map(|name| initialized(name, Ready::Unknown));
    let mut nodes = too_many.to_vec();
    nodes.extend(["w1", "w2"].map(|name| initialized(name, Ready::True)));
    nodes.push(Node { created: Some(Timestamp::now()), ..initialized("gone4", Ready::Unknown) });
    let forecast = forecast_of(nodes, vec![]).await;
    let held: Vec<_> = ["gone1", "gone2", "gone3", "gone4"].map(|name| format!("Node {name}: HeldBack")).to_vec();
    assert_eq!(lines(&forecast), held);
    let says = |item: usize, words: &str| forecast.items[item].notices[0].message.contains(words);
    assert!(says(0, "may be deleted in that time") && says(3, "was created"), "{forecast:#?}");
}

#[tokio::test]
async fn a_new_service_gets_finalizer_load_balancer_and_status() {
    let forecast = forecast_of(vec![], vec![service("default/web")]).await;
    let expected = "Service default/web: create load balancer, update [finalizer: service.kubernetes.io/load-balancer-cleanup], \
                    update [status.loadBalancer: (known after apply); condition bowline.dev/LoadBalancerReady: True]";
    assert_eq!(lines(&forecast), [expected]);
}

#[tokio::test]
async fn a_known_address_is_shown() {
    let forecast =
        forecast_of(vec![], vec![Service { status: status(&["192.0.2.9"]), ..finalized(service("default/made")) }])
            .await;
    let expected = "Service default/made: update [status.loadBalancer: 192.0.2.9 -> 192.0.2.1; \
                    condition bowline.dev/LoadBalancerReady: True]";
    assert_eq!(lines(&forecast), [expected]);
}

#[tokio::test]
async fn a_load_balancer_with_a_failed_port_is_not_ready() {
    let ailing = |address: &str| {
        forecast_of(vec![], vec![Service { status: status(&[address]), ..finalized(service("default/made-ailing")) }])
    };
    let expected = "Service default/made-ailing: update [status.loadBalancer: 192.0.2.9 -> 192.0.2.1; \
                    condition bowline.dev/LoadBalancerReady: False]";
    assert_eq!(lines(&ailing("192.0.2.9").await), [expected]);
    assert_eq!(lines(&ailing("192.0.2.1").await), [""; 0]);
}

#[tokio::test]
async fn a_service_that_is_deleted_or_changes_its_type_loses_load_balancer_and_finalizer() {
    let going = Service { deleting: true, status: status(&["192.0.2.1"]), ..finalized(service("a/made1")) };
    let retyped =
        Service { kind: ServiceType::ClusterIP, status: status(&["192.0.2.1"]), ..finalized(service("a/made2")) };
    let forecast = forecast_of(vec![], vec![retyped, going]).await;
    let finalizer = "finalizer: service.kubernetes.io/load-balancer-cleanup (removed)";
    let expected = [
        format!(
            "Service a/made1: delete load balancer, update [status.loadBalancer: 192.0.2.1 (removed); {finalizer}]"
        ),
        format!(
            "Service a/made2: delete load balancer, update [status.loadBalancer: 192.0.2.1 (removed); {finalizer}]"
        ),
    ];
    assert_eq!(lines(&forecast), expected);
}

#[tokio::test]
async fn an_invalid_or_unsupported_service_is_refused_and_gets_a_condition() {
    let udp = bowline_core::testing::service_port(bowline_core::Protocol::Udp, 53);
    let services = vec![
        annotated(service("a/mistaken"), &[("bowline.dev/internal", "perhaps")]),
        Service { ports: vec![udp], ..service("a/udp") },
        annotated(service("a/slip"), &[("bowline.dev/internl", "true")]),
    ];
    let forecast = forecast_of(vec![], services).await;
    let refused = "update [condition bowline.dev/LoadBalancerReady: False], Refused";
    let lines = lines(&forecast);
    assert_eq!(lines[0], format!("Service a/mistaken: {refused}"));
    assert_eq!(lines[2], format!("Service a/udp: {refused}"));
    assert!(lines[1].ends_with("Note") && forecast.items[1].notices[0].message.contains("bowline.dev/internal"));
    assert_eq!(forecast.summary().failed, 0);
}

#[tokio::test]
async fn annotations_and_warnings_of_the_cloud_are_shown() {
    let made = |name: &str| Service { status: status(&["192.0.2.1"]), ..finalized(service(name)) };
    let noted = [(BERTH, "7")];
    let services = vec![
        made("a/made-noted"),
        annotated(Service { deleting: true, ..made("b/made-noted") }, &noted),
        annotated(Service { kind: ServiceType::ClusterIP, ..made("c/made-noted") }, &noted),
        annotated(made("d/made-noted"), &noted),
        annotated(made("e/made"), &[(WARNING, "the tide is low")]),
    ];
    let forecast = forecast_of(vec![], services).await;
    let lines = lines(&forecast);
    assert_eq!(lines[0], format!("Service a/made-noted: update [annotation {BERTH}: 7]"));
    assert!(!lines[1].contains("annotation"), "a deleted service keeps its annotations: {}", lines[1]);
    assert!(lines[2].contains(&format!("update [annotation {BERTH}: 7 (removed)], update [status")), "{}", lines[2]);
    assert_eq!(lines[3..], ["Service e/made: Note"], "an annotation that is present is not written");
    assert_eq!(forecast.items[3].notices[0].message, "HarbourWarning: the tide is low");
}

#[tokio::test]
async fn a_plan_with_errors_shows_its_steps_and_the_error_of_the_sync() {
    let services = vec![annotated(service("a/new"), &[(PLAN_ERROR, "no berth is free")])];
    let forecast = forecast_of(vec![], services).await;
    let item = &forecast.items[0];
    assert_eq!(item.in_cloud.to_string(), "create load balancer new");
    assert!(!item.in_cluster.to_string().contains("status.loadBalancer"), "{}", item.in_cluster);
    let [notice] = &item.notices[..] else { panic!("{:?}", item.notices) };
    assert_eq!(notice.kind, NoticeKind::Failed);
    assert_eq!(notice.message, "failed to ensure load balancer: plan: no berth is free");
}

#[tokio::test]
async fn errors_of_the_provider_are_shown_with_the_common_ones() {
    let annotations = [("bowline.dev/internal", "perhaps"), (INVALID, "no such berth")];
    let forecast = forecast_of(vec![], vec![annotated(service("a/mistaken"), &annotations)]).await;
    let message = &forecast.items[0].notices[0].message;
    assert!(message.contains("bowline.dev/internal") && message.contains("no such berth"), "{message}");
}

#[tokio::test]
async fn the_deletion_of_a_protected_load_balancer_is_held_back() {
    let protected = annotated(finalized(service("a/made")), &[("bowline.dev/policy", "protect")]);
    let forecast = forecast_of(vec![], vec![Service { deleting: true, ..protected }]).await;
    assert_eq!(forecast.items[0].notices[0].kind, NoticeKind::HeldBack, "{:?}", lines(&forecast));
    assert!(forecast.items[0].in_cloud.is_empty());
}

#[tokio::test]
async fn the_failure_of_one_service_does_not_affect_other_services() {
    let services = ["a/broken", "a/busy", "a/web"].map(service).to_vec();
    let forecast = forecast_of(vec![], services).await;
    let lines = lines(&forecast);
    let finalizer = "update [finalizer: service.kubernetes.io/load-balancer-cleanup]";
    let expected = [format!("Service a/broken: {finalizer}, Failed"), format!("Service a/busy: {finalizer}, Note")];
    assert_eq!(lines[..2], expected, "the finalizer is added before the first cloud call");
    assert!(lines[2].starts_with("Service a/web: create load balancer"), "{lines:?}");
    assert_eq!(forecast.summary().failed, 1);
}

#[tokio::test]
async fn a_paused_object_has_a_note_and_no_steps() {
    let annotations = [("bowline.dev/paused".to_owned(), "true".to_owned())];
    let nodes = ["gone", "worker"].map(|name| Node { annotations: annotations.clone().into(), ..uninitialized(name) });
    let pause = |service: Service| annotated(service, &[("bowline.dev/paused", "true")]);
    let services = [pause(service("a/new")), pause(finalized(Service { deleting: true, ..service("b/made") }))];
    let forecast = forecast_of(nodes.into(), services.into()).await;
    let expected = ["Node gone: Note", "Node worker: Note", "Service a/new: Note", "Service b/made: Note"];
    assert_eq!(lines(&forecast), expected);
    assert!(forecast.items[3].notices[0].message.ends_with("Its deletion waits for that."));
    assert!(forecast.summary().is_unchanged());
}

#[tokio::test]
async fn a_disabled_controller_is_not_forecast() {
    let objects = || (vec![uninitialized("worker"), initialized("stopped", Ready::Unknown)], vec![service("a/web")]);
    let (nodes, services) = objects();
    let forecast = forecast_with(nodes, services, |options| options.node = None).await;
    assert_eq!(lines(&forecast).len(), 2);
    let (nodes, services) = objects();
    let forecast =
        forecast_with(nodes, services, |options| (options.node_lifecycle, options.service) = (None, None)).await;
    assert_eq!(lines(&forecast).len(), 1);
    let (nodes, services) = objects();
    let disable_all = |options: &mut ManagerOptions| {
        *options = ManagerOptions { node: None, node_lifecycle: None, ..options.clone() };
        options.service.as_mut().unwrap().default_cloud = DefaultCloud::None;
    };
    assert_eq!(lines(&forecast_with(nodes, services, disable_all).await), [""; 0]);
}

#[tokio::test]
async fn a_cloud_without_load_balancers_is_not_called_for_any() {
    let clouds = Harbour { without_balancers: true, ..Harbour::default() }.clouds();
    let snapshot = Snapshot { services: vec![Arc::new(service("a/web"))], ..Snapshot::default() };
    let now = Moment { instant: Instant::now(), wall: Timestamp::now() };
    let forecast = forecast(&snapshot, &clouds, &ManagerOptions::default(), now).await.unwrap();
    assert_eq!(lines(&forecast), [""; 0]);
}
