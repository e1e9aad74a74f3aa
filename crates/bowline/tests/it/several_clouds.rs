//! AWS, OpenStack and the local cloud in one cluster and one process, with a bare-metal Node that no cloud owns.
//!
//! Each Node and each Service gets what its own cloud says. A cloud that is down delays only its own objects, and no cloud touches
//! what belongs to another.

use std::time::Duration;

use bowline_openstack_simulator::{Kind, NewServer, Options, Server as OpenStackServer, Simulator as OpenStack};
use k8s_openapi::api::core::v1::Service;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::aws::scene::{FAILED, Scene, hostname};
use crate::support::cluster::{UNINITIALISED, address, taints};
use crate::support::{Program, bowline};

/// The three clouds and their cluster.
struct World {
    /// AWS, with the cluster.
    aws: Scene,
    openstack: OpenStack,
    _openstack_server: OpenStackServer,
    _local: Program,
    local_endpoint: String,
    manager: Program,
}

impl World {
    async fn start() -> World {
        let aws = Scene::without_nodes("several-clouds", bowline_aws_simulator::Options::default()).await;
        let openstack = OpenStack::new(Options::default());
        let served = openstack.serve("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let mut local = Program::start("several-clouds", &["cloud", "--listen=127.0.0.1:0"]);
        let local_endpoint = local.wait_for("cloud ready at ");
        let scratch = &aws.server.scratch;
        let fixture = openstack.fixture();
        let cloud_conf = format!(
            "[Global]\nauth-url = http://{}/identity/v3\nuser-id = {}\npassword = {}\ntenant-id = {}\n\
             [LoadBalancer]\nsubnet-id = {}\nfloating-network-id = {}\n",
            served.address(),
            fixture.user,
            fixture.password,
            fixture.project,
            fixture.subnet,
            fixture.external_network
        );
        let cloud_conf = scratch.file("cloud.conf", cloud_conf);
        let local_yaml = scratch.file("local.yaml", format!("endpoint: {local_endpoint}\n"));
        let configs = format!(
            "--cloud-config=aws={},openstack={},local={}",
            aws.config().display(),
            cloud_conf.display(),
            local_yaml.display()
        );
        let kubeconfig = format!("--kubeconfig={}", aws.server.kubeconfig().display());
        let mut command = aws.command(&[]);
        command.args(["--cloud-provider=aws,openstack,local", &configs, &kubeconfig]);
        command.args(["--configure-cloud-routes=false", "--leader-elect=false", "--secure-port=0"]);
        command.args(["--node-monitor-period=500ms", "--node-deletion-grace-period=1s"]);
        let manager = Program::start_command("several-clouds", command.arg("--node-deletion-confirm-period=1s"));
        World { aws, openstack, _openstack_server: served, _local: local, local_endpoint, manager }
    }

    /// Creates a machine in each cloud, and its uninitialised Node; returns the provider IDs by Node.
    async fn add_nodes(&self, suffix: &str) -> [(String, String); 3] {
        let names = ["ec2", "nova", "metal"].map(|name| format!("{name}-{suffix}"));
        let [aws, openstack, local] = &names;
        let instance = self.aws.instance(aws);
        let server = self.openstack.add_server(NewServer::named(openstack));
        let endpoint = format!("--endpoint={}", self.local_endpoint);
        let id = format!("--id=m-{suffix}");
        let added = bowline(&["cloud", "add", local, &id, "--address=InternalIP=10.0.0.1", &endpoint]);
        assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
        for name in &names {
            self.aws.register(name).await;
        }
        let ids =
            [format!("aws:///us-east-1a/{instance}"), format!("openstack:///{server}"), format!("local://m-{suffix}")];
        std::array::from_fn(|at| (names[at].clone(), ids[at].clone()))
    }

    /// Creates a Service for a cloud.
    async fn create(&self, name: &str, cloud: &str) {
        let service: Service = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {
                "type": "LoadBalancer", "loadBalancerClass": format!("bowline.dev/{cloud}"),
                "ports": [{"port": 80, "protocol": "TCP"}],
            },
        }))
        .unwrap();
        self.aws.services().create(&PostParams::default(), &service).await.unwrap();
    }

    /// Waits until the Service has an address or a host name.
    async fn reached(&self, name: &str) -> String {
        let ask = || async {
            let service = self.aws.services().get(name).await.unwrap();
            hostname(&service).or_else(|| address(&service))
        };
        self.aws.eventually(&self.manager, &format!("an address of {name}"), ask).await
    }

    /// Names of the load balancers' members in OpenStack, by address.
    fn openstack_members(&self) -> Vec<String> {
        let members = self.openstack.records(Kind::Member);
        members.iter().map(|member| member["address"].as_str().unwrap().to_owned()).collect()
    }
}

/// Sets a Node to unknown, as after its kubelet has stopped.
async fn lost(world: &World, name: &str) {
    world.aws.set_ready(name, "Unknown").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_object_belongs_to_one_cloud_and_a_cloud_that_is_down_delays_only_its_own() {
    let mut world = World::start().await;
    // A Node that is in no cloud keeps its provider ID, its taint and itself.
    let taint = json!({"key": UNINITIALISED, "value": "true", "effect": "NoSchedule"});
    let bare = json!({"metadata": {"name": "bare"}, "spec": {"providerID": "metal://rack-7", "taints": [taint]},
        "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
    world.aws.create_node(bare).await;
    let nodes = world.add_nodes("1").await;
    initialised(&world, &nodes).await;
    services_by_class(&world).await;

    world.aws.cloud.close();
    world.create("late-aws", "aws").await;
    world.create("late-openstack", "openstack").await;
    world.create("late-local", "local").await;
    world.reached("late-openstack").await;
    world.reached("late-local").await;
    world.aws.warned(&world.manager, "late-aws", FAILED, &[]).await;
    stops_while_aws_is_down(&world, &nodes).await;

    world.aws.cloud.open().await;
    world.aws.set_annotation("late-aws", "example.com/retry", "now").await;
    world.reached("late-aws").await;
    for name in ["aws", "openstack", "local", "late-aws", "late-openstack", "late-local"] {
        world.aws.delete(&world.manager, name).await;
    }
    world.aws.is_clean();
    assert_eq!(world.openstack.records(Kind::LoadBalancer), []);
    bare_metal_is_untouched(&world).await;
    world.aws.stop(&mut world.manager);
}

/// Checks that each Node has the ID of its own cloud.
async fn initialised(world: &World, nodes: &[(String, String)]) {
    for (name, id) in nodes {
        let node = world.aws.initialised(&world.manager, name).await;
        assert_eq!(node.spec.unwrap().provider_id.as_ref(), Some(id), "{name}");
    }
    for (name, _) in nodes {
        world.aws.set_ready(name, "True").await;
    }
}

/// Creates a Service for each cloud; its targets are the Nodes of that cloud.
async fn services_by_class(world: &World) {
    for cloud in ["aws", "openstack", "local"] {
        world.create(cloud, cloud).await;
    }
    assert!(world.reached("aws").await.ends_with(".elb.amazonaws.com"));
    world.reached("openstack").await;
    world.reached("local").await;
    let has_targets =
        || async { (world.aws.targets().len() == 1 && world.openstack_members().len() == 1).then_some(()) };
    world.aws.eventually(&world.manager, "one target in each cloud", has_targets).await;
    // The Service of another controller gets nothing.
    let foreign: Service = serde_json::from_value(json!({"metadata": {"name": "foreign"}, "spec": {
        "type": "LoadBalancer", "loadBalancerClass": "service.k8s.aws/nlb", "ports": [{"port": 80}]}}))
    .unwrap();
    world.aws.services().create(&PostParams::default(), &foreign).await.unwrap();
}

/// All machines disappear while AWS is down: the Nodes of the other clouds are deleted, that of AWS is kept.
async fn stops_while_aws_is_down(world: &World, nodes: &[(String, String)]) {
    let [(aws, _), (openstack, openstack_id), (local, local_id)] = nodes else { panic!("three Nodes") };
    let server = openstack_id.rsplit('/').next().unwrap();
    world.openstack.delete_server(server);
    let endpoint = format!("--endpoint={}", world.local_endpoint);
    let machine = local_id.rsplit('/').next().unwrap();
    assert!(bowline(&["cloud", "delete", machine, &endpoint]).status.success());
    for name in [aws, openstack, local] {
        lost(world, name).await;
    }
    world.aws.node_deleted(&world.manager, openstack).await;
    world.aws.node_deleted(&world.manager, local).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(world.aws.nodes().get_opt(aws).await.unwrap().is_some(), "a cloud that is down proves nothing");
}

async fn bare_metal_is_untouched(world: &World) {
    let bare = world.aws.nodes().get("bare").await.unwrap();
    assert!(taints(&bare).contains(&UNINITIALISED.to_owned()), "{bare:?}");
    assert_eq!(bare.spec.unwrap().provider_id.as_deref(), Some("metal://rack-7"));
    let foreign = world.aws.services().get("foreign").await.unwrap();
    assert_eq!((hostname(&foreign), address(&foreign)), (None, None));
    let status: Value = serde_json::to_value(&foreign.status).unwrap();
    assert!(status["loadBalancer"]["ingress"].is_null(), "{status}");
}
