//! Node states that the API server rejects today, and that old clusters may still contain.

use bowline_apiserver::ApiServer;
use bowline_cloud::Clouds;
use bowline_cloud::layers::LayerOptions;
use bowline_core::testing;
use bowline_kube::{Cluster, EventSink, Notes, Store};
use bowline_runtime::{Clock, QueueMetrics};
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::ListParams;

use super::*;

/// Returns type, reason and message of the Events that a controller with this allocator emits.
async fn emitted_events(allocator: AllocatorType, story: impl Fn(&Store<Node>)) -> Vec<(String, String, String)> {
    let server = ApiServer::start(bowline_apiserver::Options::default()).await.unwrap();
    let (client, metrics, shutdown) = (server.in_process_client(), prometheus::Registry::new(), Shutdown::new());
    let (events, write_events) = EventSink::new(client.clone(), Clock::system(), &metrics);
    let context = Context {
        cluster: Cluster::new(client.clone()),
        process: Cluster::new(client.clone()),
        notes: Notes::new(Cluster::new(client.clone())),
        nodes: Store::new(),
        services: Store::new(),
        clouds: Clouds::with_layers([], &LayerOptions::default(), &metrics),
        events,
        clock: Clock::system(),
        queues: QueueMetrics::register(&metrics).unwrap(),
        running: crate::RunningControllers::register(&metrics).unwrap(),
        board: bowline_runtime::StatusBoard::new(),
        console: crate::console::Parts::new(Clock::system()),
        metrics,
    };
    let nodes = context.nodes.clone();
    let cluster_cidrs = vec![ClusterCidr::new("10.10.0.0/16".parse().unwrap(), 24).unwrap()];
    let options = Options { cluster_cidrs, service_cidrs: Vec::new(), allocator };
    let controller = NodeIpamController::new(context, options).unwrap();
    story(&nodes);
    shutdown.request();
    write_events(shutdown).await;
    drop(controller);
    let events: Api<Event> = Api::all(client);
    let said = events.list(&ListParams::default()).await.unwrap().items.into_iter();
    let text = Option::<String>::unwrap_or_default;
    said.map(|event| (text(event.type_), text(event.reason), text(event.message))).collect()
}

#[tokio::test(start_paused = true)]
async fn ipam_12_deletion_of_a_node_with_an_invalid_pod_cidr_is_reported_with_a_cloud_allocator() {
    let odd = |nodes: &Store<Node>| {
        let odd = Node { pod_cidrs: vec!["x".to_owned()], ..testing::node("odd") };
        let (name, uid) = (odd.name.clone(), odd.uid.clone());
        nodes.put(odd);
        nodes.remove(name.as_str(), &uid);
    };
    let message = "Node \"odd\" has an invalid PodCIDR: \"x\"";
    let expected = ("Warning".to_owned(), "CloudCIDRAllocatorInvalidPodCIDR".to_owned(), message.to_owned());
    for allocator in [AllocatorType::FromCloud, AllocatorType::FromCluster] {
        assert_eq!(emitted_events(allocator, odd).await, std::slice::from_ref(&expected), "{allocator:?}");
    }
    assert_eq!(emitted_events(AllocatorType::Range, odd).await, [], "upstream emits no event there");
}
