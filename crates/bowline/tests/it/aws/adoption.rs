//! Resources that the Go manager has created.

use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use serde_json::json;

use crate::aws::scene::{CLUSTER_TAG, Scene, name_of, node_port};

/// Time in which a manager with nothing to do would have written something.
const QUIET: Duration = Duration::from_millis(500);

/// Creates the load balancer of a Service as the Go manager does: with the calls that it makes, by the AWS API.
fn classic_of_go(scene: &Scene, service: &Service) {
    let (name, port, fixture) = (name_of(service), node_port(service), scene.cloud.fixture());
    let listener = json!({"Protocol": "TCP", "LoadBalancerPort": "80", "InstanceProtocol": "TCP", "InstancePort": port.to_string()});
    let tags = [(CLUSTER_TAG, "owned"), ("kubernetes.io/service-name", "default/web")];
    scene.cloud.put_classic_load_balancer(&name, json!([listener]), &tags);
    let group = scene.cloud.put_security_group(&format!("k8s-elb-{name}"), &[(CLUSTER_TAG, "owned")]);
    scene.cloud.put_rule(&group, "0.0.0.0/0", 80, 80, None);
    scene.cloud.put_icmp_rule(&group, "0.0.0.0/0");
    scene.cloud.put_group_rule(&fixture.node_group, &group);
    let instances: Vec<_> = instances(scene).iter().map(|id| json!({"InstanceId": id})).collect();
    scene.cloud.edit("classic", &name, |record| {
        record.insert("SecurityGroups".to_owned(), json!([group]));
        record.insert("Subnets".to_owned(), json!(fixture.public_subnets));
        record.insert("Instances".to_owned(), json!(instances));
        let check = json!({"Target": format!("TCP:{port}"), "Interval": "10", "Timeout": "5",
            "UnhealthyThreshold": "6", "HealthyThreshold": "2"});
        record.insert("HealthCheck".to_owned(), check);
    });
}

fn instances(scene: &Scene) -> Vec<String> {
    let all = scene.cloud.records("instance").into_iter();
    let nodes = all.filter(|one| one["privateDnsName"].as_str().is_some_and(|name| name.starts_with("node-")));
    nodes.map(|one| one["instanceId"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_classic_load_balancer_of_the_go_manager_is_adopted_without_a_write() {
    let scene = Scene::new("adoption").await;
    let web = scene.create("web").await;
    classic_of_go(&scene, &web);
    scene.cloud.forget_calls();
    let mut manager = scene.manager("adoption");
    scene.hostname(&manager, "web").await;
    tokio::time::sleep(QUIET).await;
    assert_eq!(scene.writes(), [""; 0], "{}", manager.output());
    assert_eq!(scene.warnings("web").await, []);
    scene.end(&mut manager, "web").await;
}

/// The policy of the Go manager does not allow to read the tags of load balancers: their names are enough.
#[tokio::test(flavor = "multi_thread")]
async fn the_policy_of_the_go_manager_is_enough() {
    let scene = Scene::new("policy").await;
    scene.cloud.deny("elasticloadbalancing:DescribeTags");
    let web = scene.create("web").await;
    classic_of_go(&scene, &web);
    scene.cloud.forget_calls();
    let mut manager = scene.manager("policy");
    scene.hostname(&manager, "web").await;
    scene.create_nlb("net").await;
    scene.hostname(&manager, "net").await;
    assert!(manager.output().contains("allow elasticloadbalancing:DescribeTags"), "{}", manager.output());
    assert_eq!(scene.warnings("web").await, []);
    scene.delete(&manager, "net").await;
    scene.end(&mut manager, "web").await;
}
