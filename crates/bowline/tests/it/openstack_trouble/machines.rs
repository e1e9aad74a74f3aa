//! Nodes while Nova, Neutron or Keystone fail: an unreachable cloud does not delete Nodes.

use bowline_openstack_simulator::{Fault, FaultSpec, Service as Part};

use crate::openstack_trouble::scene::Scene;

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_kept_while_nova_fails_and_deleted_once_the_server_is_known_to_be_gone() {
    let scene = Scene::new("nova-down").await;
    scene.cloud.inject(FaultSpec::always(Fault::Answer(503, "No server is available".to_owned())).of(Part::Compute));
    let mut manager = scene.manager("nova-down");
    scene.cloud.delete_server(&scene.server_of("node-2"));
    scene.set_ready("node-2", "False").await;
    // The manager has retried several times without a result.
    let called = || async { (scene.cloud.calls() > 20).then_some(()) };
    scene.eventually(&manager, "calls for node-2", called).await;
    assert!(scene.nodes().get_opt("node-2").await.unwrap().is_some(), "{}", manager.output());

    scene.cloud.repair_all();
    scene.node_deleted(&manager, "node-2").await;
    assert!(scene.nodes().get_opt("node-1").await.unwrap().is_some(), "{}", manager.output());
    assert_eq!(manager.stop("-TERM").code(), Some(0), "{}", manager.output());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_initialised_once_nova_responds() {
    let scene = Scene::new("nova-late").await;
    scene.cloud.inject(FaultSpec::always(Fault::Answer(500, "Internal error".to_owned())).of(Part::Compute));
    let mut manager = scene.manager("nova-late");
    scene.uninitialised("node-3").await;
    let called = || async { (scene.cloud.calls() > 5).then_some(()) };
    scene.eventually(&manager, "calls for node-3", called).await;
    assert_eq!(scene.nodes().get("node-3").await.unwrap().spec.unwrap().provider_id, None);
    scene.cloud.repair_all();
    let node = scene.initialised(&manager, "node-3").await;
    assert!(node.spec.unwrap().provider_id.unwrap().starts_with("openstack:///"));
    assert_eq!(manager.stop("-TERM").code(), Some(0), "{}", manager.output());
}
