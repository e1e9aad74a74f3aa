//! Droplets.

use bowline_digitalocean_simulator::{NewDroplet, Options};
use serde_json::{Value, json};

use crate::client::Client;

fn names(list: &Value) -> Vec<&str> {
    list["droplets"].as_array().unwrap().iter().map(|droplet| droplet["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_name_filter_ignores_case_and_matches_whole_names() {
    let client = Client::new(Options::default());
    assert_eq!(names(&client.get("/v2/droplets?name=NODE-1").await.1), ["node-1"]);
    assert!(names(&client.get("/v2/droplets?name=node-").await.1).is_empty());
}

#[tokio::test]
async fn a_droplet_has_private_and_public_addresses() {
    let client = Client::new(Options::default());
    let public = ["192.0.2.7", "2001:db8::7"].map(|ip| ip.parse().unwrap()).to_vec();
    let id = client.cloud.add_droplet(NewDroplet { public, ..NewDroplet::named("node-3") });
    let networks = |droplet: &Value, family: &str| -> Vec<String> {
        let entries = droplet["networks"][family].as_array().unwrap().iter();
        entries
            .map(|entry| format!("{} {}", entry["type"].as_str().unwrap(), entry["ip_address"].as_str().unwrap()))
            .collect()
    };
    let (_, answer) = client.get(&format!("/v2/droplets/{id}")).await;
    assert_eq!(networks(&answer["droplet"], "v4"), ["public 192.0.2.7"]);
    assert_eq!(networks(&answer["droplet"], "v6"), ["public 2001:db8::7"]);
    let (_, answer) = client.get(&format!("/v2/droplets/{}", client.droplets[0])).await;
    assert_eq!(networks(&answer["droplet"], "v4"), ["private 10.108.0.2", "public 198.18.0.1"]);
    assert_eq!(answer["droplet"]["vpc_uuid"], client.cloud.vpc());
}

#[tokio::test]
async fn gpu_droplets_are_only_listed_by_type() {
    let client = Client::new(Options::default());
    let id = client.cloud.add_droplet(NewDroplet { size: "gpu-h100x1-80gb".to_owned(), ..NewDroplet::named("gpu-1") });
    assert_eq!(names(&client.get("/v2/droplets").await.1), ["node-1", "node-2"]);
    assert!(names(&client.get("/v2/droplets?name=gpu-1").await.1).is_empty());
    assert_eq!(names(&client.get("/v2/droplets?type=gpus").await.1), ["gpu-1"]);
    assert_eq!(client.get(&format!("/v2/droplets/{id}")).await.0, 200);
}

#[tokio::test]
async fn a_droplet_can_be_stopped_renamed_and_deleted() {
    let client = Client::new(Options::default());
    let [id, _] = client.droplets;
    let path = format!("/v2/droplets/{id}");
    client.cloud.set_droplet(id, "status", "off");
    client.cloud.set_droplet(id, "name", "renamed");
    let (_, answer) = client.get(&path).await;
    assert_eq!((&answer["droplet"]["status"], &answer["droplet"]["name"]), (&json!("off"), &json!("renamed")));
    let (status, action) = client.post(&format!("{path}/actions"), json!({"type": "power_on"})).await;
    assert_eq!((status, &action["action"]["status"]), (201, &json!("completed")));
    assert_eq!(client.get(&path).await.1["droplet"]["status"], "active");
    client.cloud.delete_droplet(id);
    assert_eq!(client.get(&path).await.0, 404);
}

#[tokio::test]
async fn a_deleted_droplet_is_removed_from_its_load_balancers() {
    let client = Client::new(Options::default());
    let path = client.create(json!({})).await;
    client.cloud.delete_droplet(client.droplets[0]);
    assert_eq!(client.get(&path).await.1["load_balancer"]["droplet_ids"], json!([client.droplets[1]]));
    let (status, error) = client.put(&path, client.web(json!({}))).await;
    assert_eq!((status, &error["message"]), (422, &json!(format!("droplet {} not found", client.droplets[0]))));
}
