//! Events against the embedded API server. What is combined, counted and filtered is decided by pure code that has its own
//! tests; this is about what arrives, and when the server is unwell.

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

/// A server without sockets, and a source of Events that are written to it. It is 2026-01-02T03:04:05Z.
async fn fixture() -> Result<Fixture, Failure> {
    let server = ApiServer::start(Options::default()).await?;
    let (registry, shutdown) = (Registry::new(), Shutdown::new());
    let clock = Clock::from_tokio("2026-01-02T03:04:05Z".parse()?);
    let (sink, task) = EventSink::new(server.in_process_client(), clock, &registry);
    let task = tokio::spawn(task(shutdown.clone()));
    Ok(Fixture { server, registry, source: sink.source("cloud-node-controller"), shutdown, task })
}

impl Fixture {
    fn say(&self, node: &str, message: &str) {
        self.source.emit(&object(node), EventType::Normal, "Synced", message);
    }

    fn events(&self) -> Api<Event> {
        Api::all(self.server.in_process_client())
    }

    /// What is in the cluster, sorted, as message and count.
    async fn told(&self) -> Result<Vec<(String, i32)>, Failure> {
        let list = self.events().list(&ListParams::default()).await?;
        let mut told: Vec<_> = list
            .into_iter()
            .map(|event| (event.message.unwrap_or_default(), event.count.unwrap_or_default()))
            .collect();
        told.sort();
        Ok(told)
    }

    /// Waits until this is in the cluster.
    async fn tells(&self, wanted: &[(&str, i32)]) -> Result<(), Failure> {
        let wanted: Vec<(String, i32)> = wanted.iter().map(|(text, count)| ((*text).to_owned(), *count)).collect();
        for _ in 0..2000 {
            if self.told().await? == wanted {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Err(format!("wanted {wanted:?}, but there is {:?}", self.told().await?).into())
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
async fn ev1_an_event_is_as_other_managers_write_it() -> Result<(), Failure> {
    let f = fixture().await?;
    f.source.emit(&object("n").at("7"), EventType::Warning, "Broken", "it broke");
    f.tells(&[("it broke", 1)]).await?;
    let events = f.events().list(&ListParams::default()).await?;
    let event = serde_json::to_value(events.iter().next())?;
    let wanted = json!({
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "uid-of-n", "resourceVersion": "7"},
        "type": "Warning", "reason": "Broken", "message": "it broke", "count": 1,
        "source": {"component": "cloud-node-controller"}, "reportingComponent": "cloud-node-controller",
        "firstTimestamp": "2026-01-02T03:04:05Z", "lastTimestamp": "2026-01-02T03:04:05Z",
    });
    for (field, value) in wanted.as_object().into_iter().flatten() {
        assert_eq!(event.get(field), Some(value), "{field}");
    }
    assert_eq!(event.pointer("/metadata/namespace"), Some(&json!("default")));
    let name = event.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let nanoseconds = i64::from_str_radix(name.strip_prefix("n.").unwrap_or_default(), 16)?;
    assert_eq!(nanoseconds / 1_000_000_000, 1_767_323_045, "{name}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn ev1_an_event_lives_in_the_namespace_of_its_object() -> Result<(), Failure> {
    let f = fixture().await?;
    let service = ObjectRef { kind: "Service".into(), namespace: Some("kube-public".into()), ..object("web") };
    f.source.emit(&service, EventType::Normal, "Synced", "done");
    f.tells(&[("done", 1)]).await?;
    let events: Api<Event> = Api::namespaced(f.server.in_process_client(), "kube-public");
    assert_eq!(events.list(&ListParams::default()).await?.items.len(), 1);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn ev2_the_same_again_raises_the_count_and_a_removed_event_comes_back() -> Result<(), Failure> {
    let f = fixture().await?;
    f.say("n", "a");
    f.say("n", "a");
    f.tells(&[("a", 2)]).await?;
    tokio::time::sleep(Duration::from_secs(60)).await;
    f.say("n", "a");
    f.tells(&[("a", 3)]).await?;
    let event = f.events().list(&ListParams::default()).await?.items.remove(0);
    let times = serde_json::to_value([event.first_timestamp, event.last_timestamp])?;
    assert_eq!(times.get(0), Some(&json!("2026-01-02T03:04:05Z")));
    assert!(times.get(1).and_then(Value::as_str).is_some_and(|time| time.starts_with("2026-01-02T03:05:")), "{times}");
    let events: Api<Event> = Api::default_namespaced(f.server.in_process_client());
    events.delete(&event.metadata.name.unwrap_or_default(), &DeleteParams::default()).await?;
    f.say("n", "a");
    f.tells(&[("a", 4)]).await
}

#[tokio::test(start_paused = true)]
async fn ev3_many_different_messages_become_one_event() -> Result<(), Failure> {
    let f = fixture().await?;
    (0..12).for_each(|i| f.say("n", &i.to_string()));
    let own = ["0", "1", "2", "3", "4", "5", "6", "7", "8"].map(|message| (message, 1));
    let wanted: Vec<_> = [("(combined from similar events): 11", 3)].into_iter().chain(own).collect();
    f.tells(&wanted).await
}

#[tokio::test(start_paused = true)]
async fn ev5_all_events_of_a_large_cluster_find_room_at_once() -> Result<(), Failure> {
    let f = fixture().await?;
    // Nothing is awaited here, so nothing is written meanwhile.
    for i in 0..5000 {
        f.say(&format!("n{i}"), "a");
        f.say(&format!("n{i}"), "b");
    }
    assert!(!f.metrics()?.contains("queue_full"));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn ev5_more_events_than_upstream_has_room_for_all_arrive() -> Result<(), Failure> {
    let f = fixture().await?;
    for i in 0..600 {
        f.say(&format!("n{i}"), "initialized");
        f.say(&format!("n{i}"), "initialized");
    }
    f.shutdown.request();
    f.task.await?;
    let events: Api<Event> = Api::all(f.server.in_process_client());
    let list = events.list(&ListParams::default()).await?;
    assert_eq!((list.items.len(), list.iter().filter_map(|event| event.count).sum::<i32>()), (600, 1200));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn ev5_a_server_that_is_away_for_a_while_gets_everything_later() -> Result<(), Failure> {
    for effect in
        [Effect::Reset, Effect::Status { code: StatusCode::SERVICE_UNAVAILABLE, message: "".into(), retry_after: None }]
    {
        let f = fixture().await?;
        f.fail("create", effect, 40);
        f.say("n", "a");
        f.say("n", "b");
        f.say("n", "b");
        f.tells(&[("a", 1), ("b", 2)]).await?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn ev5_a_server_that_stays_away_costs_the_event_and_that_is_counted() -> Result<(), Failure> {
    let f = fixture().await?;
    // Twelve tries, each of four requests.
    f.fail("create", Effect::Reset, 48);
    f.say("n", "lost");
    f.say("n", "kept");
    f.tells(&[("kept", 1)]).await?;
    assert!(f.metrics()?.contains(r#"bowline_events_dropped_total{cause="unavailable"} 1"#));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn ev5_a_refused_event_is_dropped_and_the_next_one_is_written() -> Result<(), Failure> {
    let f = fixture().await?;
    f.fail("create", Effect::Status { code: StatusCode::FORBIDDEN, message: "no".into(), retry_after: None }, 1);
    f.say("n", "refused");
    f.say("n", "kept");
    f.tells(&[("kept", 1)]).await?;
    assert!(f.metrics()?.contains(r#"bowline_events_dropped_total{cause="rejected"} 1"#));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn ev5_emitting_never_waits_and_what_finds_no_room_is_counted() -> Result<(), Failure> {
    let f = fixture().await?;
    f.fail("create", Effect::Latency(Duration::from_secs(3600)), u64::MAX);
    // Nothing is awaited here, so nothing is written meanwhile.
    (0..70_000).for_each(|i| f.say(&format!("n{i}"), "a"));
    let (lost, room) = (f.metrics()?, 8 * 8192);
    let line = format!("bowline_events_dropped_total{{cause=\"queue_full\"}} {}\n", 70_000 - room);
    assert!(lost.contains(&line), "{line} in {lost}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn on_shutdown_what_is_left_is_written_and_a_dead_server_is_not_waited_for() -> Result<(), Failure> {
    let f = fixture().await?;
    f.shutdown.request();
    f.say("n", "last words");
    f.task.await?;
    let events: Api<Event> = Api::all(f.server.in_process_client());
    assert_eq!(events.list(&ListParams::default()).await?.items.len(), 1);

    let f = fixture().await?;
    f.fail("create", Effect::Latency(Duration::from_secs(3600)), u64::MAX);
    f.say("n", "unheard");
    f.shutdown.request();
    tokio::time::timeout(Duration::from_secs(6), f.task).await??;
    Ok(())
}
