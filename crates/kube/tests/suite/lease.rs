//! Leader election in virtual time (LE-1 to LE-8).

use std::time::Duration;

use bowline_apiserver::{ApiServer, Effect, FaultRule, Options};
use bowline_kube::{ElectionMetrics, Elector, Held, Identity, LeaseOptions, LeaseOptionsError, Lost};
use bowline_runtime::{Clock, Component, Fence, Shutdown};
use http::StatusCode;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use prometheus::Registry;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::time::{Instant, sleep, timeout};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const NAME: &str = "cloud-controller-manager";
const SECOND: Duration = Duration::from_secs(1);

struct World {
    server: ApiServer,
    leases: Api<Lease>,
    metrics: Registry,
}

/// Process that takes part in the election.
struct Candidate {
    elector: Elector,
    identity: Identity,
    component: Arc<dyn Component>,
}

impl World {
    async fn new() -> Result<World, Failure> {
        let server = ApiServer::start(Options::default()).await?;
        let leases = Api::namespaced(server.in_process_client(), "kube-system");
        Ok(World { server, leases, metrics: Registry::new() })
    }

    fn candidate(&self) -> Result<Candidate, Failure> {
        self.candidate_at("2024-02-29T12:00:00Z")
    }

    fn candidate_at(&self, time: &str) -> Result<Candidate, Failure> {
        let clock = Clock::from_tokio(time.parse()?);
        // Each process has its own registry.
        let metrics =
            ElectionMetrics::register(&self.metrics).or_else(|_| ElectionMetrics::register(&Registry::new()))?;
        let identity = Identity::new("host");
        let client = self.server.in_process_client();
        let elector = Elector::new(client, LeaseOptions::default(), identity.clone(), clock, &metrics);
        Ok(Candidate { component: elector.component(), elector, identity })
    }

    async fn spec(&self) -> Result<Value, Failure> {
        Ok(serde_json::to_value(self.leases.get(NAME).await?.spec)?)
    }

    async fn holder(&self) -> Result<String, Failure> {
        Ok(self.spec().await?["holderIdentity"].as_str().unwrap_or_default().to_owned())
    }

    async fn create(&self, metadata: Value, spec: Value) -> Result<(), Failure> {
        let mut lease = json!({ "metadata": metadata, "spec": spec });
        lease["metadata"]["name"] = json!(NAME);
        self.leases.create(&PostParams::default(), &serde_json::from_value(lease)?).await?;
        Ok(())
    }

    async fn patch(&self, spec: Value) -> Result<(), Failure> {
        self.leases.patch(NAME, &PatchParams::default(), &Patch::Merge(json!({ "spec": spec }))).await?;
        Ok(())
    }

    fn fault(&self, verb: &str, effect: Effect, times: Option<u64>) {
        let (verb, resource) = (Some(verb.to_owned()), Some("leases".to_owned()));
        self.server.faults().add(FaultRule { verb, resource, effect, times, ..FaultRule::default() });
    }

    async fn events(&self) -> Result<Vec<Event>, Failure> {
        let events: Api<Event> = Api::namespaced(self.server.in_process_client(), "kube-system");
        Ok(events.list(&ListParams::default()).await?.items)
    }

    /// Number of requests for leases, without watches.
    fn requests(&self) -> u64 {
        let requests = self.server.requests().into_iter();
        requests.filter(|(kind, _)| kind.resource == "leases" && kind.verb != "watch").map(|(_, count)| count).sum()
    }

    fn metric(&self, name: &str) -> Option<f64> {
        let families = self.metrics.gather();
        let metric = families.iter().find(|family| family.name() == name)?.get_metric().first()?;
        assert_eq!(metric.get_label().first().map(|label| (label.name(), label.value())), Some(("name", NAME)));
        Some(metric.get_gauge().get_value() + metric.get_counter().get_value())
    }
}

impl Candidate {
    /// Acquires the lease within this time.
    async fn within(self, limit: Duration) -> Result<Held, Failure> {
        let shutdown = Shutdown::new();
        Ok(timeout(limit, self.elector.acquire(&shutdown)).await?.ok_or("no shutdown was requested")?)
    }

    async fn at_once(self) -> Result<Held, Failure> {
        self.within(SECOND / 10).await
    }
}

fn broken() -> Effect {
    Effect::Status { code: StatusCode::INTERNAL_SERVER_ERROR, message: "broken".into(), retry_after: None }
}

fn status(code: StatusCode) -> Effect {
    Effect::Status { code, message: "no".into(), retry_after: None }
}

// ---- acquiring

#[tokio::test(start_paused = true)]
async fn le1_a_missing_lease_is_created_at_once() -> Result<(), Failure> {
    let world = World::new().await?;
    let candidate = world.candidate()?;
    let identity = candidate.identity.clone();
    assert_eq!(world.metric("leader_election_master_status"), Some(0.0));
    let _held = candidate.at_once().await?;
    assert_eq!(world.metric("leader_election_master_status"), Some(1.0));
    let spec = world.spec().await?;
    assert_eq!(spec["holderIdentity"], identity.as_str());
    assert_eq!((&spec["leaseDurationSeconds"], &spec["leaseTransitions"]), (&json!(15), &json!(0)));
    assert!(identity.as_str().starts_with("host_") && identity.as_str().len() == "host_".len() + 36);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn le3_a_lease_of_a_go_manager_is_acquired_after_its_duration() -> Result<(), Failure> {
    let world = World::new().await?;
    // Its clock is an hour ahead and its lease duration is short, neither of which may matter.
    let spec = json!({
        "holderIdentity": "master-0_4711", "leaseDurationSeconds": 7, "leaseTransitions": 4,
        "acquireTime": "2024-02-29T13:00:00.000000Z", "renewTime": "2024-02-29T13:00:00.000000Z",
    });
    let metadata = json!({ "labels": { "team": "harbour" }, "annotations": { "note": "keep" } });
    world.create(metadata, spec).await?;
    let start = Instant::now();
    let _held = world.candidate()?.within(60 * SECOND).await?;
    let waited = start.elapsed();
    assert!(waited >= 7 * SECOND && waited < 8 * SECOND, "the duration in the lease counts: {waited:?}");
    let lease = world.leases.get(NAME).await?;
    assert_eq!(lease.metadata.labels.unwrap_or_default()["team"], "harbour");
    assert_eq!(lease.metadata.annotations.unwrap_or_default()["note"], "keep");
    assert_eq!(world.spec().await?["leaseTransitions"], 5);
    assert_eq!(world.spec().await?["leaseDurationSeconds"], 15);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn le3_a_holder_that_renews_keeps_the_lease_and_a_dead_one_loses_it_after_its_duration() -> Result<(), Failure> {
    let world = World::new().await?;
    let (first, second) = (world.candidate()?, world.candidate_at("1999-01-01T00:00:00Z")?);
    let (leader, standby) = (first.identity.clone(), second.identity.clone());
    let mut held = first.at_once().await?;
    let keeping = tokio::spawn(async move { held.keep().await });
    let waiting = tokio::spawn(second.within(3600 * SECOND));
    sleep(600 * SECOND).await;
    assert_eq!(world.holder().await?, leader.as_str());
    assert!(!waiting.is_finished());
    keeping.abort();
    let died = Instant::now();
    let _held = waiting.await??;
    let waited = died.elapsed();
    assert!(waited > 12 * SECOND && waited <= 15 * SECOND, "one lease duration since the last renewal: {waited:?}");
    assert_eq!(world.holder().await?, standby.as_str());
    assert_eq!(world.spec().await?["leaseTransitions"], 1);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn le7_a_released_lease_has_a_new_holder_at_once() -> Result<(), Failure> {
    let world = World::new().await?;
    let (first, second) = (world.candidate()?, world.candidate_at("2024-02-29T12:00:00.5Z")?);
    let (leader, standby) = (first.identity.clone(), second.identity.clone());
    let mut held = first.at_once().await?;
    let waiting = tokio::spawn(second.within(3600 * SECOND));
    let _: Result<Lost, _> = timeout(30 * SECOND, held.keep()).await;
    let freed = Instant::now();
    held.release().await;
    let _held = waiting.await??;
    assert!(freed.elapsed() < SECOND, "{:?}", freed.elapsed());
    assert_eq!(world.holder().await?, standby.as_str());
    assert_eq!(world.spec().await?["leaseTransitions"], 1, "upstream counts this transition, too");
    sleep(SECOND).await;
    let mut messages: Vec<_> =
        world.events().await?.into_iter().map(|event| event.message.unwrap_or_default()).collect();
    messages.sort();
    let mut expected =
        [format!("{leader} became leader"), format!("{leader} stopped leading"), format!("{standby} became leader")];
    expected.sort();
    assert_eq!(messages, expected);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn le6_the_events_are_about_the_lease() -> Result<(), Failure> {
    let world = World::new().await?;
    let _held = world.candidate()?.at_once().await?;
    sleep(SECOND).await;
    let event = world.events().await?.pop().ok_or("no Event")?;
    let about = serde_json::to_value(&event.involved_object)?;
    assert_eq!((&about["apiVersion"], &about["kind"]), (&json!("coordination.k8s.io/v1"), &json!("Lease")));
    assert_eq!((&about["name"], &about["namespace"]), (&json!(NAME), &json!("kube-system")));
    assert_eq!(about["uid"].as_str(), world.leases.get(NAME).await?.metadata.uid.as_deref());
    assert_eq!(event.source.and_then(|source| source.component).as_deref(), Some(NAME));
    assert_eq!((event.reason.as_deref(), event.type_.as_deref()), (Some("LeaderElection"), Some("Normal")));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn le7_a_released_lease_has_no_holder_and_lasts_a_second() -> Result<(), Failure> {
    let world = World::new().await?;
    let held = world.candidate()?.at_once().await?;
    // A renewal in flight when the controllers stopped.
    world.patch(json!({ "renewTime": "2024-02-29T12:00:01.000000Z" })).await?;
    held.release().await;
    let spec = world.spec().await?;
    assert_eq!((&spec["holderIdentity"], &spec["leaseDurationSeconds"]), (&json!(""), &json!(1)));
    assert_eq!(spec["leaseTransitions"], 0);
    assert_eq!(world.metric("leader_election_master_status"), Some(0.0));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_another_holder_is_not_released() -> Result<(), Failure> {
    let world = World::new().await?;
    let held = world.candidate()?.at_once().await?;
    world.patch(json!({ "holderIdentity": "other" })).await?;
    held.release().await;
    assert_eq!(world.holder().await?, "other");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn shutdown_cancels_waiting_for_a_lease() -> Result<(), Failure> {
    let world = World::new().await?;
    let _held = world.candidate()?.at_once().await?;
    let (shutdown, waiting) = (Shutdown::new(), world.candidate()?.elector);
    let requested = shutdown.clone();
    let ended = tokio::spawn(async move { waiting.acquire(&requested).await.is_none() });
    sleep(5 * SECOND).await;
    shutdown.request();
    assert!(timeout(SECOND, ended).await??);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn shutdown_does_not_cancel_a_request_that_acquires_the_lease() -> Result<(), Failure> {
    let world = World::new().await?;
    let (candidate, shutdown) = (world.candidate()?, Shutdown::new());
    world.fault("create", Effect::Latency(2 * SECOND), None);
    let ending = async {
        sleep(SECOND).await;
        shutdown.request();
    };
    let (held, ()) = tokio::join!(candidate.elector.acquire(&shutdown), ending);
    let held = held.ok_or("the lease was not acquired")?;
    assert_eq!(world.holder().await?, candidate.identity.as_str());
    held.release().await;
    assert_eq!(world.holder().await?, "");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_standby_without_watch_permission_polls() -> Result<(), Failure> {
    let world = World::new().await?;
    world.fault("watch", status(StatusCode::FORBIDDEN), None);
    let (first, second) = (world.candidate()?, world.candidate()?);
    let mut held = first.at_once().await?;
    let waiting = tokio::spawn(second.within(3600 * SECOND));
    let _: Result<Lost, _> = timeout(30 * SECOND, held.keep()).await;
    let freed = Instant::now();
    held.release().await;
    let _held = waiting.await??;
    assert!(freed.elapsed() <= 4 * SECOND + SECOND / 2, "retry period and jitter: {:?}", freed.elapsed());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn errors_while_acquiring_a_lease_are_retried() -> Result<(), Failure> {
    let world = World::new().await?;
    world.fault("get", broken(), Some(2));
    world.fault("create", Effect::AnswerLost, Some(1));
    let candidate = world.candidate()?;
    let identity = candidate.identity.clone();
    let _held = candidate.within(30 * SECOND).await?;
    assert_eq!(world.holder().await?, identity.as_str());
    assert_eq!(world.spec().await?["leaseTransitions"], 0, "its first request had succeeded");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn one_of_many_candidates_holds_the_lease() -> Result<(), Failure> {
    let world = World::new().await?;
    world.create(json!({}), json!({ "holderIdentity": "" })).await?;
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let candidate = world.candidate()?;
        waiting.spawn(async move {
            let mut held = candidate.within(3600 * SECOND).await?;
            Ok::<_, Failure>(held.keep().await)
        });
    }
    sleep(600 * SECOND).await;
    assert!(waiting.try_join_next().is_none(), "one candidate holds the lease and keeps it");
    assert_eq!(world.spec().await?["leaseTransitions"], 1);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_release_causes_few_requests_of_many_standbys() -> Result<(), Failure> {
    let world = World::new().await?;
    let mut held = world.candidate()?.at_once().await?;
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..5 {
        let candidate = world.candidate()?;
        waiting.spawn(async move { candidate.within(3600 * SECOND).await });
    }
    let _: Result<Lost, _> = timeout(30 * SECOND, held.keep()).await;
    let before = world.requests();
    held.release().await;
    let _next = waiting.join_next().await.ok_or("no candidate waits")???;
    sleep(SECOND).await;
    // Each standby reads and tries once, in addition to the release.
    let requests = world.requests() - before;
    assert!(requests <= 2 * 5 + 2, "{requests} requests");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_missing_namespace_of_the_lease_is_retried() -> Result<(), Failure> {
    let world = World::new().await?;
    world.fault("create", status(StatusCode::NOT_FOUND), Some(2));
    let _held = world.candidate()?.within(10 * SECOND).await?;
    assert!(world.server.faults().list().is_empty());
    Ok(())
}

// ---- renewing

#[tokio::test(start_paused = true)]
async fn le4_a_renewal_is_one_request_unless_the_lease_was_changed() -> Result<(), Failure> {
    let world = World::new().await?;
    let mut held = world.candidate()?.at_once().await?;
    let acquired = world.spec().await?["acquireTime"].clone();
    let before = world.spec().await?["renewTime"].clone();
    let _: Result<Lost, _> = timeout(11 * SECOND, held.keep()).await;
    assert_eq!(world.metric("leader_election_slowpath_total"), None);
    let labels = json!({ "metadata": { "labels": { "touched": "yes" } } });
    world.leases.patch(NAME, &PatchParams::default(), &Patch::Merge(labels)).await?;
    let _: Result<Lost, _> = timeout(11 * SECOND, held.keep()).await;
    assert_eq!(world.metric("leader_election_slowpath_total"), Some(1.0));
    let spec = world.spec().await?;
    assert_eq!((&spec["acquireTime"], &spec["leaseTransitions"]), (&acquired, &json!(0)));
    assert_ne!(spec["renewTime"], before);
    assert_eq!(world.leases.get(NAME).await?.metadata.labels.unwrap_or_default()["touched"], "yes");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn le4_a_lease_that_cannot_be_renewed_is_lost_at_the_deadline() -> Result<(), Failure> {
    let slow = Effect::Latency(60 * SECOND);
    for effect in [broken(), slow, Effect::Reset, status(StatusCode::TOO_MANY_REQUESTS), status(StatusCode::CONFLICT)] {
        let world = World::new().await?;
        let (candidate, fence) = (world.candidate()?, Fence::open());
        let (component, term) = (Arc::clone(&candidate.component), fence.term(NAME));
        assert!(fence.check().is_err());
        let mut held = candidate.at_once().await?;
        held.open(term);
        let start = Instant::now();
        world.fault("update", effect.clone(), None);
        let watched = fence.clone();
        let writing = tokio::spawn(async move { watched.guard(std::future::pending::<()>()).await });
        let lost = timeout(60 * SECOND, held.keep()).await?;
        assert_eq!(lost, Lost::Deadline(NAME.into(), 10 * SECOND), "{effect:?}");
        assert_eq!(start.elapsed().as_secs(), 10, "{effect:?}");
        assert!(fence.check().is_err());
        assert_eq!(world.metric("leader_election_master_status"), Some(0.0));
        assert_eq!((component.status()["leads"].clone(), component.health()), (json!(false), Ok(())));
        writing.abort();
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn errors_before_the_renew_deadline_are_retried() -> Result<(), Failure> {
    let world = World::new().await?;
    let fence = Fence::open();
    let term = fence.term(NAME);
    let mut held = world.candidate()?.at_once().await?;
    held.open(term);
    world.fault("update", broken(), Some(3));
    world.fault("get", broken(), Some(1));
    assert!(timeout(60 * SECOND, held.keep()).await.is_err(), "still kept");
    assert_eq!(fence.check(), Ok(()));
    assert_eq!(world.spec().await?["leaseTransitions"], 0);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_is_recreated_by_its_holder() -> Result<(), Failure> {
    let world = World::new().await?;
    let candidate = world.candidate()?;
    let identity = candidate.identity.clone();
    let mut held = candidate.at_once().await?;
    world.leases.delete(NAME, &DeleteParams::default()).await?;
    assert!(timeout(30 * SECOND, held.keep()).await.is_err());
    assert_eq!(world.holder().await?, identity.as_str());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_finds_another_identity_loses_the_lease_at_once() -> Result<(), Failure> {
    let world = World::new().await?;
    let fence = Fence::open();
    let term = fence.term(NAME);
    let mut held = world.candidate()?.at_once().await?;
    held.open(term);
    world.patch(json!({ "holderIdentity": "other_1" })).await?;
    let start = Instant::now();
    assert_eq!(timeout(60 * SECOND, held.keep()).await?, Lost::Taken(NAME.into(), "other_1".into()));
    assert_eq!(start.elapsed().as_secs(), 2, "with the next renewal, and not at the deadline");
    assert!(fence.check().is_err());
    assert_eq!(world.holder().await?, "other_1");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_process_paused_beyond_the_deadline_does_not_write_the_lease() -> Result<(), Failure> {
    let world = World::new().await?;
    let mut held = world.candidate()?.at_once().await?;
    let before = world.leases.get(NAME).await?.metadata.resource_version;
    tokio::time::advance(11 * SECOND).await;
    assert_eq!(held.keep().await, Lost::Deadline(NAME.into(), 10 * SECOND));
    assert_eq!(world.leases.get(NAME).await?.metadata.resource_version, before);
    Ok(())
}

// ---- status

#[tokio::test(start_paused = true)]
async fn status_shows_the_lease_and_only_a_holder_without_renewals_is_unhealthy() -> Result<(), Failure> {
    let world = World::new().await?;
    let (first, second) = (world.candidate()?, world.candidate()?);
    let (leader, standby) = (Arc::clone(&first.component), Arc::clone(&second.component));
    let identity = first.identity.clone();
    let _held = first.at_once().await?;
    let waiting = tokio::spawn(second.within(3600 * SECOND));
    sleep(SECOND).await;
    for (component, leads) in [(&leader, true), (&standby, false)] {
        let status = component.status();
        assert_eq!((&status["leads"], &status["holder"]), (&json!(leads), &json!(identity.as_str())));
        assert_eq!((&status["since"], &status["renewed"]), (&json!("2024-02-29T12:00:00.000000Z"), &status["since"]));
        assert_eq!(status["transitions"], 0);
    }
    waiting.abort();
    sleep(33 * SECOND).await;
    assert_eq!(leader.health(), Ok(()), "the lease and 20 seconds have not passed");
    sleep(2 * SECOND).await;
    assert_eq!(leader.health(), Err(format!("failed election to renew leadership on lease {NAME}")));
    assert_eq!(standby.health(), Ok(()));
    Ok(())
}

#[test]
fn le2_inconsistent_durations_are_rejected() {
    let options = |lease, deadline, retry| LeaseOptions {
        lease_duration: Duration::from_millis(lease),
        renew_deadline: Duration::from_millis(deadline),
        retry_period: Duration::from_millis(retry),
        ..LeaseOptions::default()
    };
    let cases = [
        (15_000, 10_000, 2_000, Ok(())),
        (10_000, 10_000, 2_000, Err(LeaseOptionsError::LeaseNotLongerThanDeadline)),
        (15_000, 2_400, 2_000, Err(LeaseOptionsError::DeadlineNotLongerThanRetry)),
        (15_000, 2_401, 2_000, Ok(())),
        (0, 10_000, 2_000, Err(LeaseOptionsError::NoLease)),
        (15_000, 0, 2_000, Err(LeaseOptionsError::NoDeadline)),
        (15_000, 10_000, 0, Err(LeaseOptionsError::NoRetry)),
    ];
    for (lease, deadline, retry, expected) in cases {
        assert_eq!(options(lease, deadline, retry).check(), expected, "{lease} {deadline} {retry}");
    }
    assert_eq!(LeaseOptions::default().check(), Ok(()));
}
