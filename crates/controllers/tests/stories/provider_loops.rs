//! Background loops of providers: triggers, snapshots and failures.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bowline_cloud::{ClusterSnapshot, Error, ErrorKind, LoopPlan, LoopTriggers, Result, TypedProviderLoop};
use bowline_controllers::forecast::{Notice, NoticeKind};
use bowline_controllers::provider_loops;
use bowline_core::NodeName;
use bowline_runtime::Kind;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use crate::plans::plan;
use crate::test_providers::Wrapped;
use crate::world::{World, machine};

/// Annotation that [`Visits`] writes.
pub(crate) const VISITED: &str = "example.com/visited";

/// Label that [`Visits`] declares and writes.
pub(crate) const VISITED_LABEL: &str = "k8s.io/visited";

/// Annotates and labels every Node; fails while one of them has the label `fail`.
pub(crate) struct Visits;

#[async_trait]
impl TypedProviderLoop for Visits {
    type Change = ();

    fn name(&self) -> &str {
        "visits"
    }

    fn period(&self) -> Duration {
        Duration::from_secs(600)
    }

    fn labels(&self) -> &'static [&'static str] {
        &[VISITED_LABEL]
    }

    async fn plan(&self, cluster: &ClusterSnapshot) -> Result<LoopPlan<()>> {
        if cluster.nodes.iter().any(|node| node.labels.contains_key("fail")) {
            return Err(Error::new(ErrorKind::Unavailable, "visit", "the cloud is down"));
        }
        let mut planned = LoopPlan::new("visited", Vec::new());
        for name in cluster.nodes.iter().map(|node| &node.name).chain([&NodeName::from("elsewhere")]) {
            let values = [(VISITED, "yes"), ("kubernetes.io/visited", "yes")];
            let values = values.map(|(key, value)| (key.to_owned(), Some(value.to_owned()))).into();
            planned.annotations.insert(name.clone(), values);
            let labels = [VISITED_LABEL, "undeclared"].map(|key| (key.to_owned(), "yes".to_owned()));
            planned.labels.insert(name.clone(), labels.into());
        }
        Ok(planned)
    }

    async fn apply(&self, _: &()) -> Result<()> {
        Ok(())
    }
}

/// Plan of a run by its number; `None` panics.
type Script = Arc<dyn Fn(usize) -> Option<Result<LoopPlan<()>>> + Send + Sync>;

/// Records the snapshot of every run.
struct Recorded {
    triggers: LoopTriggers,
    script: Script,
    runs: Arc<Mutex<Vec<ClusterSnapshot>>>,
}

#[async_trait]
impl TypedProviderLoop for Recorded {
    type Change = ();

    fn name(&self) -> &str {
        "recorded"
    }

    fn triggers(&self) -> LoopTriggers {
        self.triggers
    }

    fn period(&self) -> Duration {
        Duration::from_secs(600)
    }

    async fn plan(&self, cluster: &ClusterSnapshot) -> Result<LoopPlan<()>> {
        let run = {
            let mut runs = self.runs.lock().unwrap();
            runs.push(cluster.clone());
            runs.len()
        };
        (self.script)(run).expect("the loop panics on purpose")
    }

    async fn apply(&self, _: &()) -> Result<()> {
        Ok(())
    }
}

pub(crate) fn label(node: &Node, key: &str) -> Option<String> {
    node.metadata.labels.as_ref()?.get(key).cloned()
}

pub(crate) fn annotation(node: &Node, key: &str) -> Option<String> {
    node.metadata.annotations.as_ref()?.get(key).cloned()
}

/// Snapshots of all runs of one loop.
type Runs = Arc<Mutex<Vec<ClusterSnapshot>>>;

impl World {
    fn with_loops(&mut self) {
        self.options.provider_loops = Some(provider_loops::Options { cluster: "harbour".into() });
    }

    /// Adds one loop with this script to each cloud, and returns their runs.
    fn record(&mut self, script: impl Fn(usize) -> Option<Result<LoopPlan<()>>> + Send + Sync + 'static) -> Vec<Runs> {
        self.record_with(LoopTriggers::default(), script)
    }

    fn record_with(
        &mut self,
        triggers: LoopTriggers,
        script: impl Fn(usize) -> Option<Result<LoopPlan<()>>> + Send + Sync + 'static,
    ) -> Vec<Runs> {
        self.with_loops();
        let runs: Vec<Runs> = self.clouds.iter().map(|_| Runs::default()).collect();
        let (script, handed): (Script, _) = (Arc::new(script), runs.clone());
        let prefixes: Vec<_> = self.clouds.iter().map(|(config, _)| config.id_prefix.clone()).collect();
        self.wrap = Box::new(move |inner| {
            let place = prefixes.iter().position(|prefix| *prefix == inner.info().id_prefixes[0]).unwrap();
            let (script, runs) = (script.clone(), handed[place].clone());
            Wrapped::loops(inner, vec![Arc::new(Recorded { triggers, script, runs })])
        });
        runs
    }

    fn loop_status(&self, name: &str) -> Value {
        let entries = self.board.entries();
        let entry = entries.iter().find(|entry| entry.kind == Kind::Controller && entry.name == provider_loops::NAME);
        entry.expect("the controller is on the board").component.status()["parts"][name].clone()
    }

    fn tagged(&self) -> BTreeSet<String> {
        let machines = self.cloud().machines().into_iter();
        machines
            .filter(|machine| machine.spec.tags.contains("cluster:harbour"))
            .map(|machine| machine.spec.name)
            .collect()
    }

    async fn tagged_are(&self, names: &[&str]) {
        let names = names.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
        self.eventually(&format!("{names:?} are tagged"), async || (self.tagged() == names).then_some(())).await;
    }
}

#[tokio::test(start_paused = true)]
async fn machines_with_a_node_are_tagged_and_the_loop_is_on_the_board() {
    let mut world = World::new().await;
    world.with_loops();
    world.clouds[0].0.tag_machines = true;
    for name in ["a", "b", "spare"] {
        world.cloud().add(machine(name, &format!("i-{name}"), &["I10.0.0.1"])).unwrap();
    }
    world.register("a").await;
    world.start();
    world.tagged_are(&["a"]).await;
    world.register("b").await;
    world.tagged_are(&["a", "b"]).await;
    world.delete("a").await;
    world.tagged_are(&["b"]).await;
    // A user removes the tag, which no watch shows: the next period repairs it.
    world.sleep(Duration::from_secs(10)).await;
    world.cloud().change("i-b", |spec| spec.tags.clear()).unwrap();
    world.sleep(Duration::from_secs(310)).await;
    assert_eq!(world.tagged(), BTreeSet::from(["b".to_owned()]));
    let status = world.loop_status("local/tags");
    assert_eq!((&status["outcome"], &status["state"]), (&json!("success"), &json!("resting")), "{status}");
    assert_eq!(status["summary"], "1 machines have the tag cluster:harbour; 1 step applied");
    assert!(status["nextRunInSeconds"].as_f64().unwrap() <= 300.0, "{status}");
    let runs = world.metric("bowline_provider_loop_runs_total");
    assert_eq!(runs.keys().collect::<Vec<_>>(), ["local tags success"], "{runs:?}");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_machine_of_a_paused_node_keeps_its_tag_and_gets_none() {
    let mut world = World::new().await;
    world.with_loops();
    world.clouds[0].0.tag_machines = true;
    for name in ["old", "new", "other"] {
        world.cloud().add(machine(name, &format!("i-{name}"), &["I10.0.0.1"])).unwrap();
    }
    let pause = |value: Value| json!({"metadata": {"annotations": {"bowline.dev/paused": value}}});
    world.join("old", "local://i-old", "True").await;
    world.start();
    world.tagged_are(&["old"]).await;
    world.patch("old", pause(json!("true"))).await;
    let mut paused = pause(json!("true"));
    paused["spec"] = json!({"providerID": "local://i-new"});
    world.register_with("new", paused).await;
    world.join("other", "local://i-other", "True").await;
    world.tagged_are(&["old", "other"]).await;
    world.sleep(Duration::from_secs(310)).await;
    assert_eq!(world.tagged(), ["old", "other"].map(str::to_owned).into());
    for name in ["old", "new"] {
        world.patch(name, pause(Value::Null)).await;
    }
    world.tagged_are(&["new", "old", "other"]).await;
    world.delete("old").await;
    world.tagged_are(&["new", "other"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_reads_but_writes_nothing() {
    let mut world = World::new().await;
    world.with_loops();
    world.clouds[0].0.tag_machines = true;
    world.cloud().add(machine("a", "i-a", &[])).unwrap();
    world.join("a", "local://i-a", "True").await;
    (world.options.dry_run, world.layers.dry_run, world.calls.dry_run) = (true, true, true);
    world.start();
    world.sleep(Duration::from_secs(5)).await;
    let ran = async || world.loop_status("local/tags")["summary"].as_str().map(str::to_owned);
    let summary = world.eventually("the loop has run", ran).await;
    assert_eq!(summary, "1 machines have the tag cluster:harbour; dry run: 1 step not applied");
    assert_eq!((world.cloud().writes(), world.tagged().len()), (0, 0));
    assert_eq!(world.loop_status("local/tags")["outcome"], "success");
}

#[tokio::test(start_paused = true)]
async fn only_allowed_annotations_and_labels_on_nodes_of_this_cloud_are_written() {
    let mut world = World::new().await;
    world.with_loops();
    world.wrap = Box::new(|inner| Wrapped::loops(inner, vec![Arc::new(Visits)]));
    world.join("a", "local://i-a", "True").await;
    world.join("elsewhere", "other://i-b", "True").await;
    world.start();
    let node = world
        .eventually("the Node is annotated", async || {
            let node = world.node("a").await;
            annotation(&node, VISITED).is_some().then_some(node)
        })
        .await;
    assert_eq!(annotation(&node, "kubernetes.io/visited"), None);
    assert_eq!(label(&node, VISITED_LABEL).as_deref(), Some("yes"));
    assert_eq!(label(&node, "undeclared"), None);
    assert_eq!(annotation(&world.node("elsewhere").await, VISITED), None);
    assert_eq!(label(&world.node("elsewhere").await, VISITED_LABEL), None);
    world.patch("a", json!({"metadata": {"annotations": {VISITED: "no"}, "labels": {VISITED_LABEL: null}}})).await;
    world.sleep(Duration::from_secs(5)).await;
    let node = world.node("a").await;
    assert_eq!((annotation(&node, VISITED), label(&node, VISITED_LABEL)), (Some("yes".into()), Some("yes".into())));
}

#[tokio::test(start_paused = true)]
async fn each_cloud_sees_its_own_nodes_and_no_load_balancer_services_of_other_clouds() {
    let mut world = World::with_prefixes(&["east", "west"]).await;
    let runs = world.record(|_| Some(Ok(LoopPlan::default())));
    world.join("e", "east://i-e", "True").await;
    world.join("w", "west://i-w", "True").await;
    world.join("foreign", "moon://i-m", "True").await;
    world.join("unmanaged", "east://i-u", "True").await;
    world.patch("unmanaged", json!({"metadata": {"labels": {"bowline.dev/unmanaged": "true"}}})).await;
    world.create_service("plain").await;
    world.create_service_with("classed", json!({"spec": {"loadBalancerClass": "bowline.dev/local-west"}})).await;
    world.create_service_with("internal", json!({"spec": {"type": "ClusterIP"}})).await;
    world.start();
    world.sleep(Duration::from_secs(30)).await;
    let seen = |place: usize| {
        let last = runs[place].lock().unwrap().last().cloned().expect("the loop has run");
        let nodes: Vec<_> = last.nodes.iter().map(|node| node.name.to_string()).collect();
        let services: Vec<_> =
            last.services.iter().filter(|one| one.namespace == "default").map(|one| one.name.clone()).collect();
        assert_eq!(last.name.as_str(), "harbour");
        (nodes, services)
    };
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    let expected = [
        (names(&["e"]), names(&["internal", "kubernetes", "plain"])),
        (names(&["w"]), names(&["classed", "internal", "kubernetes"])),
    ];
    assert_eq!([seen(0), seen(1)], expected);
    world.stop().await;
    runs.iter().for_each(|runs| runs.lock().unwrap().clear());
    plan(&world).await;
    assert_eq!([seen(0), seen(1)], expected, "a forecast plans with the same snapshot");
}

#[tokio::test(start_paused = true)]
async fn a_forecast_has_the_steps_that_a_run_applies() {
    let mut world = World::new().await;
    world.with_loops();
    world.clouds[0].0.tag_machines = true;
    for name in ["a", "spare"] {
        world.cloud().add(machine(name, &format!("i-{name}"), &[])).unwrap();
    }
    world.cloud().change("i-spare", |spec| spec.tags.extend(["cluster:harbour".to_owned()])).unwrap();
    world.join("a", "local://i-a", "True").await;
    (world.options.node, world.options.node_lifecycle) = (None, None);
    let forecast = plan(&world).await;
    let [item] = forecast.items.as_slice() else { panic!("{forecast:#?}") };
    assert_eq!((item.object.title(), item.cloud.as_deref()), ("Loop tags".to_owned(), Some("local")));
    let added = "update machine i-a\n    tag: cluster:harbour\n";
    let removed = "update machine i-spare\n    tag: cluster:harbour (removed)";
    assert_eq!(item.in_cloud.to_string(), format!("{added}{removed}"));
    assert_eq!((world.cloud().writes(), item.notices.len()), (0, 0), "{item:#?}");
    world.start();
    world.tagged_are(&["a"]).await;
    world.stop().await;
    assert_eq!(world.cloud().writes(), 2);
    assert_eq!(plan(&world).await.items, []);
}

#[tokio::test(start_paused = true)]
async fn a_forecast_shows_annotations_and_labels_of_nodes_and_a_failed_plan_is_a_notice() {
    let mut world = World::new().await;
    world.with_loops();
    world.wrap = Box::new(|inner| Wrapped::loops(inner, vec![Arc::new(Visits)]));
    world.join("a", "local://i-a", "True").await;
    (world.options.node, world.options.node_lifecycle) = (None, None);
    let forecast = plan(&world).await;
    let [item] = forecast.items.as_slice() else { panic!("{forecast:#?}") };
    let expected = format!("update Node a\n    annotation {VISITED}: yes\n    label {VISITED_LABEL}: yes");
    assert_eq!(item.in_cluster.to_string(), expected);
    assert_eq!(item.notices.iter().map(|notice| notice.kind).collect::<Vec<_>>(), [NoticeKind::Note], "a reserved key");
    world.patch("a", json!({"metadata": {"labels": {"fail": "true"}}})).await;
    let forecast = plan(&world).await;
    let [item] = forecast.items.as_slice() else { panic!("{forecast:#?}") };
    let failed = Notice { kind: NoticeKind::Failed, message: "visit: the cloud is down".to_owned() };
    assert_eq!((item.object.title(), &item.notices), ("Loop visits".to_owned(), &vec![failed]));
}

#[tokio::test(start_paused = true)]
async fn only_declared_triggers_cause_a_run() {
    for (triggers, after_node, after_service) in [
        (LoopTriggers::SERVICES, 1, 2),
        (LoopTriggers { nodes: true, services: false }, 2, 2),
        (LoopTriggers::NONE, 1, 1),
    ] {
        let mut world = World::new().await;
        let runs = world.record_with(triggers, |_| Some(Ok(LoopPlan::default())));
        (world.options.node, world.options.node_lifecycle, world.options.service) = (None, None, None);
        world.start();
        let count = || runs[0].lock().unwrap().len();
        world.sleep(Duration::from_secs(30)).await;
        assert_eq!(count(), 1, "{triggers:?}: at the start");
        world.join("a", "local://i-a", "True").await;
        world.sleep(Duration::from_secs(30)).await;
        assert_eq!(count(), after_node, "{triggers:?}: after a new Node");
        world.create_service("web").await;
        world.sleep(Duration::from_secs(30)).await;
        assert_eq!(count(), after_service, "{triggers:?}: after a new Service");
        world.sleep(Duration::from_secs(600)).await;
        assert_eq!(count(), after_service + 1, "{triggers:?}: after a period");
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn several_changes_trigger_one_run_and_heartbeats_none() {
    let mut world = World::new().await;
    let runs = world.record(|_| Some(Ok(LoopPlan::default())));
    world.join("a", "local://i-a", "True").await;
    (world.options.node, world.options.node_lifecycle, world.options.service) = (None, None, None);
    world.start();
    let count = || runs[0].lock().unwrap().len();
    world.sleep(Duration::from_secs(30)).await;
    assert_eq!(count(), 1, "at the start");
    for name in ["b", "c", "d"] {
        world.join(name, &format!("local://i-{name}"), "True").await;
    }
    world.sleep(Duration::from_secs(30)).await;
    let after_changes = count();
    assert!((2..=3).contains(&after_changes), "{after_changes}");
    for _ in 0..5 {
        let heartbeat = json!({"metadata": {"managedFields": null}, "status": {"images": []}});
        world.patch("a", heartbeat).await;
        world.sleep(Duration::from_secs(10)).await;
    }
    assert_eq!(count(), after_changes, "a heartbeat changes nothing that a loop sees");
    world.sleep(Duration::from_secs(600)).await;
    assert_eq!(count(), after_changes + 1, "after a period");
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_fails_or_panics_backs_off_and_recovers_without_affecting_other_controllers() {
    let mut world = World::new().await;
    let runs = world.record(|run| match run {
        1..=3 => Some(Err(Error::new(ErrorKind::PermissionDenied, "tag", format!("request {run} is forbidden")))),
        4 => None,
        _ => Some(Ok(LoopPlan::new("fine", Vec::new()))),
    });
    world.cloud().add(machine("a", "i-a", &["I10.0.0.1"])).unwrap();
    world.register("a").await;
    world.start();
    world.wait_until_initialized("a").await;
    world.sleep(Duration::from_secs(2)).await;
    let status = world.loop_status("local/recorded");
    assert_eq!(status["outcome"], "failure", "{status}");
    assert!(status["lastError"].as_str().unwrap().contains("is forbidden"), "{status}");
    world.sleep(Duration::from_secs(60)).await;
    assert_eq!(world.loop_status("local/recorded")["summary"], "fine; nothing to do");
    assert!(runs[0].lock().unwrap().len() >= 5);
    let events = world.events().await;
    let about_loop = |reason: &str| events.iter().filter(|event| event.reason.as_deref() == Some(reason)).count();
    // Two causes: forbidden, and the panic.
    assert_eq!((about_loop("ProviderLoopFailed"), about_loop("ProviderLoopRecovered")), (2, 1), "{events:?}");
    let ran = world.metric("bowline_provider_loop_runs_total");
    assert_eq!(ran["local recorded failure"], 4.0, "{ran:?}");
}
