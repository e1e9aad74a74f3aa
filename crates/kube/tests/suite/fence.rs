//! Controllers write only while the process holds the lease.

use std::time::Duration;

use bowline_apiserver::{Effect, FaultRule};
use bowline_kube::{Clients, Cluster, EventSink, EventType, ObjectRef, WriteError};
use bowline_runtime::{Clock, Fence, Shutdown};
use kube::Api;
use kube::api::ListParams;
use tokio::time::{Instant, sleep};

use crate::fixture::{Failure, fixture};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn without_the_lease_a_controller_reads_and_does_not_write() -> Result<(), Failure> {
    let fixture = fixture().await?;
    let fence = Fence::open();
    let clients = Clients::shared(fixture.server.in_process_client()).fenced(fence.clone());
    let cluster = Cluster::new(clients.controller("node-controller"));
    let term = fence.term("main");
    assert!(cluster.node(&fixture.name).await?.is_some());
    let start = Instant::now();
    let result = cluster.set_labels(&fixture.name, &[("a".to_owned(), "b".to_owned())].into()).await;
    let Err(WriteError::Unavailable(message)) = result else { return Err("the write succeeded".into()) };
    assert!(message.contains("does not hold the lease main"), "{message}");
    assert_eq!(start.elapsed(), Duration::ZERO, "the write is not retried");
    term.extend(Instant::now() + SECOND);
    cluster.set_labels(&fixture.name, &[("a".to_owned(), "b".to_owned())].into()).await?;
    // The process itself may always write, for instance leases.
    drop(term);
    Cluster::new(clients.process()).set_labels(&fixture.name, &[("a".to_owned(), "c".to_owned())].into()).await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_write_in_back_off_is_dropped_when_the_lease_expires() -> Result<(), Failure> {
    let fixture = fixture().await?;
    let fence = Fence::open();
    let term = fence.term("main");
    term.extend(Instant::now() + SECOND / 4);
    // The second attempt is 100 ms after the first, the third 200 ms after that: too late.
    fixture.server.faults().add(FaultRule { verb: Some("patch".into()), times: Some(2), ..FaultRule::default() });
    let clients = Clients::shared(fixture.server.in_process_client()).fenced(fence);
    let cluster = Cluster::new(clients.controller("node-controller"));
    let result = cluster.set_labels(&fixture.name, &[("a".to_owned(), "b".to_owned())].into()).await;
    assert!(result.is_err());
    assert!(fixture.server.faults().list().is_empty(), "two attempts were made");
    assert!(!fixture.node().await?.labels.contains_key("a"));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_write_in_flight_is_dropped_when_the_lease_expires() -> Result<(), Failure> {
    let fixture = fixture().await?;
    let fence = Fence::open();
    let term = fence.term("main");
    term.extend(Instant::now() + SECOND);
    let slow = Effect::Latency(10 * SECOND);
    fixture.server.faults().add(FaultRule { verb: Some("patch".into()), effect: slow, ..FaultRule::default() });
    let clients = Clients::shared(fixture.server.in_process_client()).fenced(fence);
    let cluster = Cluster::new(clients.controller("node-controller"));
    let result = cluster.set_labels(&fixture.name, &[("a".to_owned(), "b".to_owned())].into()).await;
    assert!(result.is_err());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn events_of_a_controller_use_its_client_and_the_fence() -> Result<(), Failure> {
    let fixture = fixture().await?;
    let fence = Fence::open();
    let process = fixture.server.in_process_client();
    let clients = Clients::shared(process.clone()).fenced(fence.clone());
    let (sink, write) = EventSink::new(process.clone(), Clock::system(), &prometheus::Registry::new());
    let shutdown = Shutdown::new();
    tokio::spawn(write(shutdown.clone()));
    let term = fence.term("main");
    let node = ObjectRef::node(&fixture.node().await?);
    let lease = ObjectRef { kind: "Lease".to_owned(), ..node.clone() };
    // Emitted first, because the objects may share a queue, where the fenced Event would block it.
    sink.source("process").emit(&lease, EventType::Normal, "Written", "at once");
    let controller = sink.clone().with_client(clients.controller("node-controller")).source("controller");
    controller.emit(&node, EventType::Normal, "Held", "back");
    let events: Api<k8s_openapi::api::core::v1::Event> = Api::all(process);
    let reasons = async || -> Result<Vec<String>, Failure> {
        let events = events.list(&ListParams::default()).await?.items;
        Ok(events.into_iter().filter_map(|event| event.reason).collect())
    };
    sleep(SECOND).await;
    assert_eq!(reasons().await?, ["Written"]);
    term.extend(Instant::now() + 60 * SECOND);
    sleep(30 * SECOND).await;
    assert_eq!(reasons().await?.len(), 2);
    Ok(())
}
