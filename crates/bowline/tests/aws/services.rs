//! A cluster from its first Node to its last Service, by a manager outside AWS.

use serde_json::json;

use crate::account::{classic, network, rules};
use crate::scene::{Machine, Scene, TYPE, node_port};
use crate::support::Program;

/// Returns the IDs of instances.
fn ids(machines: &[&Machine]) -> Vec<String> {
    let mut ids: Vec<_> = machines.iter().map(|machine| machine.id.clone()).collect();
    ids.sort();
    ids
}

#[tokio::test(flavor = "multi_thread")]
async fn services_of_both_types_follow_the_nodes_and_leave_nothing() {
    let Some(scene) = Scene::start("moto-services").await else { return };
    let manager = scene.remote_manager("moto-services", &["--configure-cloud-routes=false"]);
    let (one, two) = (scene.machine(&manager, "a").await, scene.machine(&manager, "b").await);
    let (web, net) = (scene.create("web").await, scene.create_with("net", 80, &[(TYPE, "nlb")]).await);
    let (web_name, net_name) = (scene.hostname(&manager, "web").await, scene.hostname(&manager, "net").await);
    let [web_ports, net_ports] = [&web, &net].map(|service| vec![(80, node_port(service))]);
    has_targets(&scene, &manager, &[&one, &two]).await;
    let (seen_web, seen_net) = (classic(&scene.moto).await.unwrap(), network(&scene.moto).await.unwrap());
    assert_eq!((&seen_web.hostname, &seen_web.ports), (&web_name, &web_ports));
    assert_eq!((&seen_net.hostname, &seen_net.ports), (&net_name, &net_ports));

    // Another port, and source ranges; the host names stay.
    for name in ["web", "net"] {
        let spec = json!({"ports": [{"port": 81, "nodePort": node_port(if name == "web" { &web } else { &net })}],
            "loadBalancerSourceRanges": ["192.0.2.0/24"]});
        scene.patch(name, json!({"spec": spec})).await;
    }
    let has_port = || async {
        let (web, net) = (classic(&scene.moto).await?, network(&scene.moto).await?);
        (web.ports[..] == [(81, web_ports[0].1)] && net.ports[..] == [(81, net_ports[0].1)]).then_some(())
    };
    scene.eventually(&manager, "port 81", has_port).await;
    let expected = format!("tcp {0}-{0} 192.0.2.0/24", node_port(&net));
    let is_limited = || async {
        let rules = rules(&scene.moto, &scene.id("sg-nodes")).await;
        let others = rules.iter().any(|rule| rule.starts_with("tcp ") && rule.ends_with(" 0.0.0.0/0"));
        (rules.contains(&expected) && !others).then_some(())
    };
    scene.eventually(&manager, "the source range", is_limited).await;
    assert_eq!((scene.hostname(&manager, "web").await, scene.hostname(&manager, "net").await), (web_name, net_name));

    follow_the_nodes(&scene, &manager, &one, &two).await;
    for name in ["web", "net"] {
        assert_eq!(scene.warnings(name).await, []);
        scene.delete(&manager, name).await;
    }
    scene.end(manager).await;
}

/// A third instance joins, is stopped, runs again and is terminated; the second one leaves with its Node.
async fn follow_the_nodes(scene: &Scene, manager: &Program, one: &Machine, two: &Machine) {
    let three = scene.machine(manager, "a").await;
    has_targets(scene, manager, &[one, two, &three]).await;
    scene.stop_instance(manager, &three).await;
    scene.start_instance(manager, &three).await;
    has_targets(scene, manager, &[one, two, &three]).await;
    scene.terminate(manager, &three).await;
    has_targets(scene, manager, &[one, two]).await;
    scene.nodes().delete(&two.name, &Default::default()).await.unwrap();
    has_targets(scene, manager, &[one]).await;
    assert_eq!(scene.nodes().list(&Default::default()).await.unwrap().items.len(), 1);
}

/// Waits until both load balancers have these targets.
async fn has_targets(scene: &Scene, manager: &Program, machines: &[&Machine]) {
    let expected = ids(machines);
    let ask = || async {
        let (classic, network) = (classic(&scene.moto).await?, network(&scene.moto).await?);
        (classic.targets == expected && network.targets == expected).then_some(())
    };
    scene.eventually(manager, &format!("the targets {expected:?}"), ask).await;
}
