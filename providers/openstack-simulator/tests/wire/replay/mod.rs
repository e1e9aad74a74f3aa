//! Comparison with recordings of the real services: each sequence of requests is replayed, and every response must equal the
//! recorded one, except for the differences in [`RULES`].
//!
//! Requests that no cloud controller manager sends are not simulated: `setup.rs` applies their effect to the simulator, such as
//! the creation of servers, networks and secrets, and administrative requests.

mod setup;

use std::path::{Path, PathBuf};

use bowline_openstack_simulator::{Kind, Options, Service, Simulator, Work};
use bowline_simulator::replay::{Names, Rules};
use serde::Deserialize;
use serde_json::Value;

use crate::client::Client;

/// Differences from the real services that do not matter to Bowline.
const RULES: Rules = Rules {
    prose: &["message", "faultstring"],
    prose_ends: &["\nNeutron server returns", "\n\nFailed validating", "\n[SQL"],
    left_out: &["standard_attr_id", "is_default", "gw_port_id", "distributed", "ha", "ha_vr_id"],
    own: &[
        // Barbican's message for a missing record depends on the format of the ID.
        ".description",
        "extensions[].description",
        "providers[].description",
        "created_at",
        "updated_at",
        "created",
        "updated",
        "expires_at",
        "issued_at",
        "OS-SRV-USG:launched_at",
        "hostId",
        "revision_number",
        "audit_ids[]",
    ],
    partial: &["catalog", "extensions", "roles"],
    identity: &[
        "name",
        "alias",
        "type",
        "interface",
        "rel",
        "device_id",
        "ethertype",
        "direction",
        "protocol",
        "destination",
        "nexthop",
    ],
};

/// A recorded sequence of requests and responses.
#[derive(Deserialize)]
struct Recording {
    bound: Value,
    entries: Vec<Entry>,
}

/// A recorded call, or a wait for a load balancer.
#[derive(Deserialize)]
#[serde(untagged)]
enum Entry {
    Wait { wait: String, loadbalancer: String },
    Call(Call),
}

/// A recorded request with its response.
#[derive(Deserialize)]
struct Call {
    service: String,
    method: String,
    path: String,
    #[serde(default)]
    headers: std::collections::BTreeMap<String, String>,
    body: Value,
    status: u16,
    answer: Value,
}

impl Call {
    fn service(&self) -> Service {
        *Service::ALL.iter().find(|service| service.kind() == self.service).unwrap()
    }
}

/// Replay of one recording on one simulated cloud.
struct Replay {
    cloud: Simulator,
    client: Client,
    names: Names,
    /// Differences from the recording.
    differences: Vec<String>,
    compared: usize,
}

impl Replay {
    async fn new(bound: &Value) -> Replay {
        let providers = ["amphora", "noop_driver"].map(str::to_owned).into();
        let options = Options {
            work: Work::Manual,
            octavia_providers: providers,
            octavia_flavors: false,
            external_subnets_visible: false,
            ..Options::default()
        };
        let cloud = Simulator::new(options);
        let names = setup::populate(&cloud, bound);
        let client = Client::new(&cloud).await;
        Replay { cloud, client, names, differences: Vec::new(), compared: 0 }
    }

    async fn play(&mut self, number: usize, entry: &Entry) {
        match entry {
            Entry::Wait { wait, loadbalancer } => self.wait(number, wait, loadbalancer),
            Entry::Call(call) if setup::apply(&self.cloud, &mut self.names, call) => {}
            Entry::Call(call) => self.call(number, call).await,
        }
    }

    fn wait(&mut self, number: usize, wanted: &str, balancer: &str) {
        self.cloud.finish_work();
        let record = self.cloud.record(Kind::LoadBalancer, &self.names.ours(balancer));
        let status =
            record.map_or("GONE".to_owned(), |record| record["provisioning_status"].as_str().unwrap().to_owned());
        if status != wanted {
            self.differences.push(format!("{number}: the load balancer is {status}, expected {wanted}"));
        }
    }

    async fn call(&mut self, number: usize, call: &Call) {
        let path = self.names.ours(&call.path);
        let headers: Vec<_> = call.headers.clone().into_iter().collect();
        let body = if call.body.is_null() { String::new() } else { self.names.ours(&call.body.to_string()) };
        let body = setup::with_secrets(&self.cloud, call, body, self.client.subject.lock().unwrap().as_deref());
        let method = call.method.parse().unwrap();
        let (status, answer) =
            self.client.send_with(method, call.service(), &path, &headers, body.into()).await.unwrap();
        self.compared += 1;
        let is_page = call.path.contains("limit=") && call.service() == Service::Network;
        let differences = match is_page {
            _ if status != call.status => {
                vec![format!("status {status}, recorded {}: {answer} {}", call.status, call.answer)]
            }
            true => Rules::compare_pages(&call.answer, &answer),
            false => RULES.compare(&mut self.names, &call.answer, &answer),
        };
        let named = |difference| format!("{number}: {} {}: {difference}", call.method, call.path);
        self.differences.extend(differences.into_iter().map(named));
    }
}

fn recordings() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[tokio::test]
async fn responses_match_the_recordings() {
    let (mut differences, mut compared) = (Vec::new(), 0);
    for file in recordings() {
        let recording: Recording = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let mut replay = Replay::new(&recording.bound).await;
        for (number, entry) in recording.entries.iter().enumerate() {
            replay.play(number, entry).await;
        }
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        differences.extend(replay.differences.iter().map(|difference| format!("{name} {difference}")));
        compared += replay.compared;
    }
    println!("{compared} responses compared");
    assert!(compared > 0, "no recordings found");
    assert!(differences.is_empty(), "{} differences\n{}", differences.len(), differences.join("\n"));
}
