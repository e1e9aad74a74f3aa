//! Event recorder against the embedded API server: written Events, and behaviour when the server fails. The correlator has its
//! own unit tests.

use std::time::Duration;

use bowline_apiserver::{ApiServer, Effect, FaultRule, Options};
use bowline_kube::{EventSink, EventSource, EventType, ObjectRef};
use bowline_runtime::{Clock, Shutdown};
use http::StatusCode;
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use prometheus::{Registry, TextEncoder};
use serde_json::{Value, json};

type Failure = Box<dyn std::error::Error + Send + Sync>;

struct Fixture {
    server: ApiServer,
    registry: Registry,
    source: EventSource,
    shutdown: Shutdown,
    task: tokio::task::JoinHandle<()>,
}

/// In-process server and an Event source. The time is 2026-01-02T03:04:05Z.
async fn fixture() -> Result<Fixture, Failure> {
    let server = ApiServer::start(Options::default()).await?;
    let (registry, shutdown) = (Registry::new(), Shutdown::new());
    let clock = Clock::from_tokio("2026-01-02T03:04:05Z".parse()?);
    let (sink, task) = EventSink::new(server.in_process_client(), clock, &registry);
    let task = tokio::spawn(task(shutdown.clone()));
    Ok(Fixture { server, registry, source: sink.source("cloud-node-controller"), shutdown, task })
}

impl Fixture {
    fn emit(&self, node: &str, message: &str) {
        self.source.emit(&object(node), EventType::Normal, "Synced", message);
    }

    fn events(&self) -> Api<Event> {
        Api::all(self.server.in_process_client())
    }

    /// Messages and counts of the Events in the cluster, sorted.
    async fn written(&self) -> Result<Vec<(String, i32)>, Failure> {
        let list = self.events().list(&ListParams::default()).await?;
        let mut events: Vec<_> = list
            .into_iter()
            .map(|event| (event.message.unwrap_or_default(), event.count.unwrap_or_default()))
            .collect();
        events.sort();
        Ok(events)
    }

    /// Waits until exactly these Events are in the cluster.
    async fn wait_for(&self, expected: &[(&str, i32)]) -> Result<(), Failure> {
        let expected: Vec<(String, i32)> = expected.iter().map(|(text, count)| ((*text).to_owned(), *count)).collect();
        for _ in 0..2000 {
            if self.written().await? == expected {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Err(format!("expected {expected:?}, found {:?}", self.written().await?).into())
    }

    fn fail(&self, verb: &str, effect: Effect, times: u64) {
        let rule = FaultRule {
            verb: Some(verb.into()),
            resource: Some("events".into()),
            effect,
            times: Some(times),
            ..FaultRule::default()
        };
        self.server.faults().add(rule);
    }

    fn metrics(&self) -> Result<String, Failure> {
        Ok(TextEncoder::new().encode_to_string(&self.registry.gather())?)
    }
}

fn object(name: &str) -> ObjectRef {
    ObjectRef {
        api_version: "v1".into(),
        kind: "Node".into(),
        namespace: None,
        name: name.into(),
        uid: format!("uid-of-{name}"),
        resource_version: None,
    }
}

#[tokio::test(start_paused = true)]
async fn ev1_an_event_has_the_format_of_client_go() -> Result<(), Failure> {
    let f = fixture().await?;
    f.source.emit(&object("n").at("7"), EventType::Warning, "Broken", "it broke");
    f.wait_for(&[("it broke", 1)]).await?;
    let events = f.events().list(&ListParams::default()).await?;
    let event = serde_json::to_value(events.iter().next())?;
    let expected = json!({
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "uid-of-n", "resourceVersion": "7"},
        "type": "Warning", "reason": "Broken", "message": "it broke", "count": 1,
        "source": {"component": "cloud-node-controller"}, "reportingComponent": "cloud-node-controller",
        "firstTimestamp": "2026-01-02T03:04:05Z", "lastTimestamp": "2026-01-02T03:04:05Z",
    });
    for (field, value) in expected.as_object().into_iter().flatten() {
        assert_eq!(event.get(field), Some(value), "{field}");
    }
    assert_eq!(event.pointer("/metadata/namespace"), Some(&json!("default")));
    let name = event.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let nanoseconds = i64::from_str_radix(name.strip_prefix("n.").unwrap_or_default(), 16)?;
    assert_eq!(nanoseconds / 1_000_000_000, 1_767_323_045, "{name}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn ev1_an_event_is_in_the_namespace_of_its_object() -> Result<(), Failure> {
    let f = fixture().await?;
    let service = ObjectRef { kind: "Service".into(), namespace: Some("kube-public".into()), ..object("web") };
    f.source.emit(&service, EventType::Normal, "Synced", "done");
    f.wait_for(&[("done", 1)]).await?;
    let events: Api<Event> = Api::namespaced(f.server.in_process_client(), "kube-public");
    assert_eq!(events.list(&ListParams::default()).await?.items.len(), 1);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn ev2_identical_events_increment_the_count_and_a_deleted_event_is_recreated() -> Result<(), Failure> {
    let f = fixture().await?;
    f.emit("n", "a");
    f.emit("n", "a");
    f.wait_for(&[("a", 2)]).await?;
    tokio::time::sleep(Duration::from_secs(60)).await;
    f.emit("n", "a");
    f.wait_for(&[("a", 3)]).await?;
    let event = f.events().list(&ListParams::default()).await?.items.remove(0);
    let times = serde_json::to_value([event.first_timestamp, event.last_timestamp])?;
    assert_eq!(times.get(0), Some(&json!("2026-01-02T03:04:05Z")));
    assert!(times.get(1).and_then(Value::as_str).is_some_and(|time| time.starts_with("2026-01-02T03:05:")), "{times}");
    let events: Api<Event> = Api::default_namespaced(f.server.in_process_client());
    events.delete(&event.metadata.name.unwrap_or_default(), &DeleteParams::default()).await?;
    f.emit("n", "a");
    f.wait_for(&[("a", 4)]).await
}

#[tokio::test(start_paused = true)]
async fn ev3_many_different_messages_are_aggregated() -> Result<(), Failure> {
    let f = fixture().await?;
    (0..12).for_each(|i| f.emit("n", &i.to_string()));
    let own = ["0", "1", "2", "3", "4", "5", "6", "7", "8"].map(|message| (message, 1));
    let expected: Vec<_> = [("(combined from similar events): 11", 3)].into_iter().chain(own).collect();
    f.wait_for(&expected).await
}

#[tokio::test(start_paused = true)]
async fn ev5_the_queues_hold_all_events_of_a_large_cluster() -> Result<(), Failure> {
    let f = fixture().await?;
    // No await here, so no Event is written meanwhile.
    for i in 0..5000 {
        f.emit(&format!("n{i}"), "a");
        f.emit(&format!("n{i}"), "b");
    }
    assert!(!f.metrics()?.contains("queue_full"));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn ev5_more_events_than_the_upstream_queue_holds_are_written() -> Result<(), Failure> {
    let f = fixture().await?;
    for i in 0..600 {
        f.emit(&format!("n{i}"), "initialized");
        f.emit(&format!("n{i}"), "initialized");
    }
    f.shutdown.request();
    f.task.await?;
    let events: Api<Event> = Api::all(f.server.in_process_client());
    let list = events.list(&ListParams::default()).await?;
    assert_eq!((list.items.len(), list.iter().filter_map(|event| event.count).sum::<i32>()), (600, 1200));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn ev5_events_are_written_after_an_outage_of_the_server() -> Result<(), Failure> {
    for effect in
        [Effect::Reset, Effect::Status { code: StatusCode::SERVICE_UNAVAILABLE, message: "".into(), retry_after: None }]
    {
        let f = fixture().await?;
        f.fail("create", effect, 40);
        f.emit("n", "a");
        f.emit("n", "b");
        f.emit("n", "b");
        f.wait_for(&[("a", 1), ("b", 2)]).await?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn ev5_an_event_is_dropped_and_counted_when_the_outage_lasts() -> Result<(), Failure> {
    let f = fixture().await?;
    // Twelve attempts of four requests each.
    f.fail("create", Effect::Reset, 48);
    f.emit("n", "lost");
    f.emit("n", "kept");
    f.wait_for(&[("kept", 1)]).await?;
    assert!(f.metrics()?.contains(r#"bowline_events_dropped_total{cause="unavailable"} 1"#));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn ev5_a_rejected_event_is_dropped_and_the_next_one_is_written() -> Result<(), Failure> {
    let f = fixture().await?;
    f.fail("create", Effect::Status { code: StatusCode::FORBIDDEN, message: "no".into(), retry_after: None }, 1);
    f.emit("n", "rejected");
    f.emit("n", "kept");
    f.wait_for(&[("kept", 1)]).await?;
    assert!(f.metrics()?.contains(r#"bowline_events_dropped_total{cause="rejected"} 1"#));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn ev5_emitting_never_blocks_and_events_beyond_the_queue_are_counted() -> Result<(), Failure> {
    let f = fixture().await?;
    f.fail("create", Effect::Latency(Duration::from_secs(3600)), u64::MAX);
    // No await here, so no Event is written meanwhile.
    (0..70_000).for_each(|i| f.emit(&format!("n{i}"), "a"));
    let (metrics, capacity) = (f.metrics()?, 8 * 8192);
    let line = format!("bowline_events_dropped_total{{cause=\"queue_full\"}} {}\n", 70_000 - capacity);
    assert!(metrics.contains(&line), "{line} in {metrics}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn on_shutdown_queued_events_are_written_within_a_timeout() -> Result<(), Failure> {
    let f = fixture().await?;
    f.shutdown.request();
    f.emit("n", "last");
    f.task.await?;
    let events: Api<Event> = Api::all(f.server.in_process_client());
    assert_eq!(events.list(&ListParams::default()).await?.items.len(), 1);

    let f = fixture().await?;
    f.fail("create", Effect::Latency(Duration::from_secs(3600)), u64::MAX);
    f.emit("n", "never written");
    f.shutdown.request();
    tokio::time::timeout(Duration::from_secs(6), f.task).await??;
    Ok(())
}
