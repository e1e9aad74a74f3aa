//! What would be done, told and not done: with a cloud that counts what it is asked.
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
use bowline_controllers::forecast::{Forecast, Item, RemarkKind, Snapshot, forecast};
use bowline_controllers::manager::ManagerOptions;
use bowline_controllers::service::DefaultCloud;
use bowline_core::annotations::{LoadBalancerSettings, Mistake};
use bowline_core::lifecycle::Moment;
use bowline_core::testing::{annotated, finalized, node, service, status, taint};
use bowline_core::well_known::{NO_SCHEDULE, UNINITIALIZED_TAINT};
use bowline_core::{
    Address, AddressType, ClusterName, DesiredLoadBalancer, Instance, InstanceRef, InstanceState, IpFamily,
    LoadBalancerKey, LoadBalancerState, Node, Opaque, Plan, ProviderId, Ready, Service, ServiceType, Step, Verb,
    Warning,
};
use jiff::Timestamp;

/// A cloud whose machines and balancers are told by their names: `gone…` is none, `stopped…` is stopped, `broken…` fails,
/// `blurred…` is there and no more is known of it; a Service `made…` has its balancer, which does not work if it is
/// `made…ailing`, and `busy…` has one that is being worked on.
#[derive(Default)]
struct Harbour {
    writes: Arc<AtomicUsize>,
    without_balancers: bool,
}

impl Harbour {
    fn clouds(self) -> Clouds {
        let provider: Arc<dyn CloudProvider> = Arc::new(Provider::new(self));
        Clouds::around([provider], &LayerOptions::default(), &prometheus::Registry::new())
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

/// Where the harbour notes a balancer's place.
const BERTH: &str = "harbour.example/berth";
/// What the harbour remarks in its plans, and what is wrong with a Service in its eyes.
const REMARK: &str = "harbour.example/remark";
const WRONG: &str = "harbour.example/wrong";
/// What its plans fail with after their steps.
const PROBLEM: &str = "harbour.example/problem";

#[async_trait]
impl LoadBalancers for Provider {
    fn settings(
        &self,
        annotations: &BTreeMap<String, String>,
        common: LoadBalancerSettings,
    ) -> std::result::Result<LoadBalancerSettings, Vec<Mistake>> {
        match annotations.get(WRONG) {
            Some(message) => Err(vec![Mistake { place: WRONG.to_owned(), message: message.clone() }]),
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
        let step = |verb| Step::new(verb, "balancer", desired.key.service.clone(), Vec::new(), Opaque::default());
        let problem = |text: &String| Error::new(ErrorKind::QuotaExceeded, "plan", text).about("berth");
        let warning = |text: &String| Warning { reason: "HarbourRemark".to_owned(), message: text.clone() };
        Ok(Plan {
            warnings: desired.annotations.get(REMARK).map(warning).into_iter().collect(),
            steps: match (&desired.spec, state) {
                (Some(_), None) => vec![step(Verb::Create)],
                (None, Some(_)) => vec![step(Verb::Delete)],
                _ => Vec::new(),
            },
            errors: desired.annotations.get(PROBLEM).map(problem).into_iter().collect(),
            ..Plan::default()
        })
    }

    async fn apply(&self, _: &LoadBalancerKey, _: &Step, _: Option<&Opaque>) -> Result<Applied> {
        self.harbour.writes.fetch_add(1, Ordering::Relaxed);
        Ok(Applied::Done)
    }
}

/// What is forecast for these, with all controllers.
async fn of(nodes: Vec<Node>, services: Vec<Service>) -> Forecast {
    with(nodes, services, |_| {}).await
}

async fn with(nodes: Vec<Node>, services: Vec<Service>, set: impl FnOnce(&mut ManagerOptions)) -> Forecast {
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

/// The items in few words: title, steps in the cloud, fields that change in the cluster, kinds of remarks.
fn told(forecast: &Forecast) -> Vec<String> {
    forecast.items.iter().map(line).collect()
}

fn line(item: &Item) -> String {
    let cloud = item.in_cloud.steps.iter().map(|step| format!("{} {}", step.verb, step.kind));
    let cluster = item.in_cluster.steps.iter().map(|step| {
        let fields: Vec<_> = step.changes.iter().map(ToString::to_string).collect();
        format!("{} [{}]", step.verb, fields.join("; "))
    });
    let remarks = item.remarks.iter().map(|remark| format!("{:?}", remark.kind));
    let parts: Vec<_> = cloud.chain(cluster).chain(remarks).collect();
    format!("{}: {}", item.object.title(), parts.join(", "))
}

fn fresh(name: &str) -> Node {
    Node { taints: vec![taint(UNINITIALIZED_TAINT, NO_SCHEDULE)], ..node(name) }
}

/// Initialised, long there, and as the cloud has it.
fn old(name: &str, ready: Ready) -> Node {
    Node {
        provider_id: Some(ProviderId::of("harbour", name)),
        created: Some(Timestamp::now() - jiff::SignedDuration::from_hours(1)),
        addresses: vec![Address::new(AddressType::InternalIP, "10.0.0.1")],
        ready,
        ..node(name)
    }
}

#[tokio::test]
async fn nodes_and_services_that_are_as_they_should_be_are_not_told_of() {
    let made = Service { status: status(&["192.0.2.1"]), ..finalized(service("default/made")) };
    let other = Service { class: Some("example.com/other".to_owned()), ..service("default/foreign") };
    let plain = Service { kind: ServiceType::ClusterIP, ..service("default/plain") };
    let forecast = of(vec![old("worker", Ready::True)], vec![made, other, plain]).await;
    assert_eq!(told(&forecast), [""; 0]);
    assert!(forecast.summary().is_unchanged());
}

#[tokio::test]
async fn a_new_node_is_initialised_and_then_gets_its_addresses() {
    let forecast = of(vec![fresh("worker")], vec![]).await;
    let zone = "label failure-domain.beta.kubernetes.io/zone: quay-1; label topology.kubernetes.io/zone: quay-1";
    let expected = format!(
        "Node worker: update [spec.providerID: harbour://worker; {zone}; taint: {UNINITIALIZED_TAINT} (removed)], \
         update [status.addresses: InternalIP=10.0.0.1]"
    );
    assert_eq!(told(&forecast), [expected]);
    assert_eq!(forecast.items[0].cloud.as_deref(), Some("harbour"));
}

#[tokio::test]
async fn a_node_without_machine_stays_tainted_and_one_that_fails_is_counted() {
    let forecast = of(vec![fresh("gone"), fresh("broken"), fresh("worker")], vec![]).await;
    assert_eq!(forecast.items.len(), 3, "the others are planned: {:?}", told(&forecast));
    let summary = forecast.summary();
    assert_eq!((summary.refused, summary.failed, summary.in_cluster), (1, 1, 2), "{:?}", told(&forecast));
}

#[tokio::test]
async fn stopped_machines_are_tainted_and_vanished_ones_deleted_if_nothing_speaks_against_it() {
    let nodes = ["stopped", "gone", "w1", "w2"]
        .map(|name| old(name, if name.starts_with('w') { Ready::True } else { Ready::Unknown }));
    let forecast = of(nodes.to_vec(), vec![]).await;
    let expected =
        ["Node gone: delete [], Note", "Node stopped: update [taint: node.cloudprovider.kubernetes.io/shutdown]"];
    assert_eq!(told(&forecast), expected);
}

#[tokio::test]
async fn a_machine_that_is_there_is_a_witness_although_no_more_is_known_of_it() {
    let nodes = ["gone", "blurred1", "blurred2"].map(|name| old(name, Ready::Unknown)).to_vec();
    let forecast = with(nodes.clone(), vec![], |options| options.node = None).await;
    assert_eq!(told(&forecast), ["Node gone: delete [], Note"]);
    let forecast = of(nodes, vec![]).await;
    assert_eq!(told(&forecast), ["Node blurred1: Failed", "Node blurred2: Failed", "Node gone: delete [], Note"]);
}

#[tokio::test]
async fn doubtful_deletions_are_held_back_with_the_reason() {
    let too_many = ["gone1", "gone2", "gone3"].map(|name| old(name, Ready::Unknown));
    let mut nodes = too_many.to_vec();
    nodes.extend(["w1", "w2"].map(|name| old(name, Ready::True)));
    nodes.push(Node { created: Some(Timestamp::now()), ..old("gone4", Ready::Unknown) });
    let forecast = of(nodes, vec![]).await;
    let held: Vec<_> = ["gone1", "gone2", "gone3", "gone4"].map(|name| format!("Node {name}: HeldBack")).to_vec();
    assert_eq!(told(&forecast), held);
    let says = |item: usize, words: &str| forecast.items[item].remarks[0].message.contains(words);
    assert!(says(0, "may go in that time") && says(3, "was registered"), "{forecast:#?}");
}

#[tokio::test]
async fn a_new_service_gets_finalizer_balancer_and_status() {
    let forecast = of(vec![], vec![service("default/web")]).await;
    let expected = "Service default/web: create balancer, update [finalizer: service.kubernetes.io/load-balancer-cleanup], \
                    update [status.loadBalancer: (known when the cloud is done); condition bowline.dev/LoadBalancerReady: True]";
    assert_eq!(told(&forecast), [expected]);
}

#[tokio::test]
async fn a_status_that_is_known_is_told() {
    let forecast =
        of(vec![], vec![Service { status: status(&["192.0.2.9"]), ..finalized(service("default/made")) }]).await;
    let expected = "Service default/made: update [status.loadBalancer: 192.0.2.9 -> 192.0.2.1; \
                    condition bowline.dev/LoadBalancerReady: True]";
    assert_eq!(told(&forecast), [expected]);
}

#[tokio::test]
async fn a_balancer_that_does_not_work_is_not_taken_for_ready() {
    let ailing = |address: &str| {
        of(vec![], vec![Service { status: status(&[address]), ..finalized(service("default/made-ailing")) }])
    };
    let expected = "Service default/made-ailing: update [status.loadBalancer: 192.0.2.9 -> 192.0.2.1; \
                    condition bowline.dev/LoadBalancerReady: False]";
    assert_eq!(told(&ailing("192.0.2.9").await), [expected]);
    assert_eq!(told(&ailing("192.0.2.1").await), [""; 0]);
}

#[tokio::test]
async fn a_service_that_goes_or_changes_its_type_loses_balancer_and_finalizer() {
    let going = Service { deleting: true, status: status(&["192.0.2.1"]), ..finalized(service("a/made1")) };
    let retyped =
        Service { kind: ServiceType::ClusterIP, status: status(&["192.0.2.1"]), ..finalized(service("a/made2")) };
    let forecast = of(vec![], vec![retyped, going]).await;
    let finalizer = "finalizer: service.kubernetes.io/load-balancer-cleanup (removed)";
    let expected = [
        format!("Service a/made1: delete balancer, update [status.loadBalancer: 192.0.2.1 (removed); {finalizer}]"),
        format!("Service a/made2: delete balancer, update [status.loadBalancer: 192.0.2.1 (removed); {finalizer}]"),
    ];
    assert_eq!(told(&forecast), expected);
}

#[tokio::test]
async fn what_a_service_asks_for_in_vain_is_refused_and_its_condition_says_so() {
    let udp = bowline_core::testing::service_port(bowline_core::Protocol::Udp, 53);
    let services = vec![
        annotated(service("a/mistaken"), &[("bowline.dev/internal", "perhaps")]),
        Service { ports: vec![udp], ..service("a/udp") },
        annotated(service("a/slip"), &[("bowline.dev/internl", "true")]),
    ];
    let forecast = of(vec![], services).await;
    let refused = "update [condition bowline.dev/LoadBalancerReady: False], Refused";
    let lines = told(&forecast);
    assert_eq!(lines[0], format!("Service a/mistaken: {refused}"));
    assert_eq!(lines[2], format!("Service a/udp: {refused}"));
    assert!(lines[1].ends_with("Note") && forecast.items[1].remarks[0].message.contains("bowline.dev/internal"));
    assert_eq!(forecast.summary().failed, 0);
}

#[tokio::test]
async fn what_the_cloud_notes_and_remarks_is_told() {
    let made = |name: &str| Service { status: status(&["192.0.2.1"]), ..finalized(service(name)) };
    let noted = [(BERTH, "7")];
    let services = vec![
        made("a/made-noted"),
        annotated(Service { deleting: true, ..made("b/made-noted") }, &noted),
        annotated(Service { kind: ServiceType::ClusterIP, ..made("c/made-noted") }, &noted),
        annotated(made("d/made-noted"), &noted),
        annotated(made("e/made"), &[(REMARK, "the tide is low")]),
    ];
    let forecast = of(vec![], services).await;
    let lines = told(&forecast);
    assert_eq!(lines[0], format!("Service a/made-noted: update [annotation {BERTH}: 7]"));
    assert!(!lines[1].contains("annotation"), "it goes as it is: {}", lines[1]);
    assert!(lines[2].contains(&format!("update [annotation {BERTH}: 7 (removed)], update [status")), "{}", lines[2]);
    assert_eq!(lines[3..], ["Service e/made: Note"], "what is said already is not written");
    assert_eq!(forecast.items[3].remarks[0].message, "HarbourRemark: the tide is low");
}

#[tokio::test]
async fn a_plan_with_problems_shows_its_steps_and_what_the_sync_fails_with() {
    let services = vec![annotated(service("a/new"), &[(PROBLEM, "no berth is free")])];
    let forecast = of(vec![], services).await;
    let item = &forecast.items[0];
    assert_eq!(item.in_cloud.to_string(), "create balancer new");
    assert!(!item.in_cluster.to_string().contains("status.loadBalancer"), "{}", item.in_cluster);
    let [remark] = &item.remarks[..] else { panic!("{:?}", item.remarks) };
    assert_eq!(remark.kind, RemarkKind::Failed);
    assert_eq!(remark.message, "failed to ensure load balancer: plan: no berth is free");
}

#[tokio::test]
async fn what_is_wrong_in_the_clouds_own_eyes_is_told_with_the_rest() {
    let annotations = [("bowline.dev/internal", "perhaps"), (WRONG, "no such berth")];
    let forecast = of(vec![], vec![annotated(service("a/mistaken"), &annotations)]).await;
    let message = &forecast.items[0].remarks[0].message;
    assert!(message.contains("bowline.dev/internal") && message.contains("no such berth"), "{message}");
}

#[tokio::test]
async fn a_protected_balancer_is_held_back() {
    let protected = annotated(finalized(service("a/made")), &[("bowline.dev/policy", "protect")]);
    let forecast = of(vec![], vec![Service { deleting: true, ..protected }]).await;
    assert_eq!(forecast.items[0].remarks[0].kind, RemarkKind::HeldBack, "{:?}", told(&forecast));
    assert!(forecast.items[0].in_cloud.is_empty());
}

#[tokio::test]
async fn one_service_that_fails_leaves_the_others_planned() {
    let services = ["a/broken", "a/busy", "a/web"].map(service).to_vec();
    let forecast = of(vec![], services).await;
    let lines = told(&forecast);
    let finalizer = "update [finalizer: service.kubernetes.io/load-balancer-cleanup]";
    let expected = [format!("Service a/broken: {finalizer}, Failed"), format!("Service a/busy: {finalizer}, Note")];
    assert_eq!(lines[..2], expected, "the finalizer comes before the cloud is asked");
    assert!(lines[2].starts_with("Service a/web: create balancer"), "{lines:?}");
    assert_eq!(forecast.summary().failed, 1);
}

#[tokio::test]
async fn a_paused_object_has_a_note_and_nothing_to_do() {
    let annotations = [("bowline.dev/paused".to_owned(), "true".to_owned())];
    let nodes = ["gone", "worker"].map(|name| Node { annotations: annotations.clone().into(), ..fresh(name) });
    let pause = |service: Service| annotated(service, &[("bowline.dev/paused", "true")]);
    let services = [pause(service("a/new")), pause(finalized(Service { deleting: true, ..service("b/made") }))];
    let forecast = of(nodes.into(), services.into()).await;
    let expected = ["Node gone: Note", "Node worker: Note", "Service a/new: Note", "Service b/made: Note"];
    assert_eq!(told(&forecast), expected);
    assert!(forecast.items[3].remarks[0].message.ends_with("Its deletion waits for that."));
    assert!(forecast.summary().is_unchanged());
}

#[tokio::test]
async fn a_controller_that_is_switched_off_is_not_forecast() {
    let objects = || (vec![fresh("worker"), old("stopped", Ready::Unknown)], vec![service("a/web")]);
    let (nodes, services) = objects();
    let forecast = with(nodes, services, |options| options.node = None).await;
    assert_eq!(told(&forecast).len(), 2);
    let (nodes, services) = objects();
    let forecast = with(nodes, services, |options| (options.node_lifecycle, options.service) = (None, None)).await;
    assert_eq!(told(&forecast).len(), 1);
    let (nodes, services) = objects();
    let nobody = |options: &mut ManagerOptions| {
        *options = ManagerOptions { node: None, node_lifecycle: None, ..options.clone() };
        options.service.as_mut().unwrap().default_cloud = DefaultCloud::None;
    };
    assert_eq!(told(&with(nodes, services, nobody).await), [""; 0]);
}

#[tokio::test]
async fn a_cloud_without_balancers_is_not_asked_for_any() {
    let clouds = Harbour { without_balancers: true, ..Harbour::default() }.clouds();
    let snapshot = Snapshot { services: vec![Arc::new(service("a/web"))], ..Snapshot::default() };
    let now = Moment { instant: Instant::now(), wall: Timestamp::now() };
    let forecast = forecast(&snapshot, &clouds, &ManagerOptions::default(), now).await.unwrap();
    assert_eq!(told(&forecast), [""; 0]);
}
