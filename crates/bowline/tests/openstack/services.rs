//! Services: creation, changes and deletion of their load balancer.

use k8s_openapi::api::core::v1::Service;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::cloud::Service::{Compute, LoadBalancer, Network};
use super::cloud::{list, text};
use super::cluster::Cluster;
use super::skipped;

const NAME: &str = "kube_service_real_default_web";

#[tokio::test(flavor = "multi_thread")]
async fn a_service_gets_a_load_balancer_changes_it_and_leaves_nothing() {
    if skipped().is_some() {
        return;
    }
    let cluster = Cluster::start("real-services").await;
    let one = cluster.machine("node-1", "az-1", "10.244.1.0/24").await;
    let two = cluster.machine("node-2", "az-2", "10.244.2.0/24").await;
    cluster.services().create(&PostParams::default(), &web()).await.unwrap();
    let address = published(&cluster).await;

    // All resources are as the Go manager creates them.
    let balancer = active(&cluster).await;
    assert_eq!(balancer["description"], "Kubernetes external service default/web from cluster real");
    assert_eq!(balancer["tags"], json!([NAME]));
    let floating = floating_ip(&cluster, &balancer).await.unwrap();
    assert_eq!(floating["floating_ip_address"], address.as_str());
    assert_eq!(floating["description"], "Floating IP for Kubernetes external service default/web from cluster real");
    let seen = observe(&cluster, &balancer).await;
    assert_eq!(seen, [listener(0, 80, 30080, &[&one.address, &two.address], "0.0.0.0/0")]);
    assert_eq!(protected(&cluster).await, (vec![30080], 2));
    assert_eq!(annotation(&cluster, "load-balancer-id").await, text(&balancer["id"]));
    assert_eq!(annotation(&cluster, "load-balancer-address").await, address);

    // Another port, another protocol, source ranges; the address stays.
    let ports = json!([port("web", 81, "TCP", 30080), port("dns", 53, "UDP", 30053)]);
    change(&cluster, json!({"spec": {"ports": ports, "loadBalancerSourceRanges": ["192.0.2.0/24"]}})).await;
    let both = [one.address.as_str(), two.address.as_str()];
    let wanted = vec![listener(1, 53, 30053, &both, "192.0.2.0/24"), listener(0, 81, 30080, &both, "192.0.2.0/24")];
    becomes(&cluster, &wanted).await;
    assert_eq!(protected(&cluster).await, (vec![30053, 30080], 2));
    assert_eq!(published(&cluster).await, address);

    // A third node.
    let three = cluster.machine("node-3", "az-1", "10.244.3.0/24").await;
    let all = [one.address.as_str(), two.address.as_str(), three.address.as_str()];
    let wanted = vec![listener(1, 53, 30053, &all, "192.0.2.0/24"), listener(0, 81, 30080, &all, "192.0.2.0/24")];
    becomes(&cluster, &wanted).await;
    cluster
        .eventually("the security group on the third port", || async {
            (protected(&cluster).await.1 == 3).then_some(())
        })
        .await;

    // Internal, and external again.
    let internal = "service.beta.kubernetes.io/openstack-internal-load-balancer";
    change(&cluster, json!({"metadata": {"annotations": {internal: "true"}}})).await;
    cluster
        .eventually("no floating IP", || async { floating_ip(&cluster, &balancer).await.is_none().then_some(()) })
        .await;
    change(&cluster, json!({"metadata": {"annotations": {internal: null}}})).await;
    cluster.eventually("a floating IP", || async { floating_ip(&cluster, &balancer).await }).await;

    cluster.services().delete("web", &DeleteParams::default()).await.unwrap();
    cluster
        .eventually("deletion of the Service", || async {
            cluster.services().get_opt("web").await.unwrap().is_none().then_some(())
        })
        .await;
    for machine in [one, two, three] {
        cluster.nodes().delete(&machine.name, &DeleteParams::default()).await.unwrap();
        cluster.project.cloud.delete(Compute, &format!("/servers/{}", machine.id)).await;
    }
    cluster
        .eventually("deletion of servers and routes", || async {
            let router = cluster.project.cloud.get(Network, &format!("/routers/{}", cluster.project.router)).await;
            let servers = cluster.project.cloud.list(Compute, "/servers").await;
            (servers.is_empty() && list(&router["router"]["routes"]).is_empty()).then_some(())
        })
        .await;
    cluster.end().await;
}

fn port(name: &str, port: u16, protocol: &str, node_port: u16) -> Value {
    json!({"name": name, "port": port, "protocol": protocol, "nodePort": node_port})
}

fn web() -> Service {
    serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web" },
        "spec": { "type": "LoadBalancer", "selector": { "app": "web" }, "ports": [port("web", 80, "TCP", 30080)] },
    }))
    .unwrap()
}

async fn change(cluster: &Cluster, patch: Value) {
    // A merge patch, which replaces all ports.
    cluster.services().patch("web", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// Waits for the address in the status.
async fn published(cluster: &Cluster) -> String {
    cluster
        .eventually("an address", || async {
            let status = cluster.services().get("web").await.unwrap().status?;
            status.load_balancer?.ingress?.first()?.ip.clone()
        })
        .await
}

async fn annotation(cluster: &Cluster, name: &str) -> String {
    let service = cluster.services().get("web").await.unwrap();
    let annotations = service.metadata.annotations.unwrap_or_default();
    annotations.get(&format!("loadbalancer.openstack.org/{name}")).cloned().unwrap_or_default()
}

/// Waits until the load balancer is ACTIVE.
async fn active(cluster: &Cluster) -> Value {
    cluster
        .eventually("the load balancer to be ACTIVE", || async {
            let balancers = cluster.project.cloud.list(LoadBalancer, &format!("/loadbalancers?name={NAME}")).await;
            assert!(balancers.len() < 2, "{balancers:?}");
            let balancer = balancers.into_iter().next()?;
            (balancer["provisioning_status"] == "ACTIVE").then_some(balancer)
        })
        .await
}

async fn floating_ip(cluster: &Cluster, balancer: &Value) -> Option<Value> {
    let path = format!("/floatingips?port_id={}", text(&balancer["vip_port_id"]));
    cluster.project.cloud.list(Network, &path).await.into_iter().next()
}

/// Formats a listener with its pool, members and monitor.
fn listener(index: u32, port: u16, node_port: u16, members: &[&str], allowed: &str) -> String {
    let mut members: Vec<String> = members.iter().map(|address| format!("{address}:{node_port}")).collect();
    members.sort();
    format!(
        "{port} listener_{index}_{NAME} pool_{index}_{NAME} monitor_{index}_{NAME} every 7 from {allowed} {members:?}"
    )
}

/// Reads the listeners of the load balancer, each formatted by [`listener`], sorted by port.
async fn observe(cluster: &Cluster, balancer: &Value) -> Vec<String> {
    let cloud = &cluster.project.cloud;
    let id = text(&balancer["id"]);
    let mut seen = Vec::new();
    for listener in cloud.list(LoadBalancer, &format!("/listeners?loadbalancer_id={id}")).await {
        let pool = format!("/pools/{}", text(&listener["default_pool_id"]));
        let answer = cloud.try_call(http::Method::GET, LoadBalancer, &pool, None).await.body["pool"].clone();
        let monitor = format!("/healthmonitors/{}", text(&answer["healthmonitor_id"]));
        let monitor =
            cloud.try_call(http::Method::GET, LoadBalancer, &monitor, None).await.body["healthmonitor"].clone();
        let members = cloud.try_call(http::Method::GET, LoadBalancer, &format!("{pool}/members"), None).await.body;
        let member = |one: &Value| format!("{}:{}", text(&one["address"]), one["protocol_port"]);
        let mut members: Vec<String> = list(&members["members"]).iter().map(member).collect();
        members.sort();
        let allowed: Vec<String> = list(&listener["allowed_cidrs"]).iter().map(text).collect();
        seen.push(format!(
            "{} {} {} {} every {} from {} {members:?}",
            listener["protocol_port"],
            text(&listener["name"]),
            text(&answer["name"]),
            text(&monitor["name"]),
            monitor["delay"],
            allowed.join(","),
        ));
    }
    seen.sort();
    seen
}

/// Waits until the load balancer has these listeners.
async fn becomes(cluster: &Cluster, wanted: &[String]) {
    cluster
        .eventually(&format!("{wanted:#?}"), || async {
            let balancer = active(cluster).await;
            (observe(cluster, &balancer).await == wanted).then_some(())
        })
        .await;
}

/// Returns the node ports that the security group opens, and the number of Neutron ports with the group.
async fn protected(cluster: &Cluster) -> (Vec<u64>, usize) {
    let cloud = &cluster.project.cloud;
    let groups = cloud.list(Network, "/security-groups").await;
    let Some(group) = groups.iter().find(|group| text(&group["name"]).starts_with("lb-sg-")) else {
        return (Vec::new(), 0);
    };
    let rules = list(&group["security_group_rules"]);
    let mut open: Vec<u64> = rules.iter().filter_map(|rule| rule["port_range_min"].as_u64()).collect();
    open.sort_unstable();
    let ports = cloud.list(Network, &format!("/ports?security_groups={}", text(&group["id"]))).await;
    (open, ports.len())
}
