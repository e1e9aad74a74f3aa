//! The AWS SDK for Python, boto3, as the judge of the simulator.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use bowline_aws_simulator::{
    ACCESS_KEY, CONTAINER_TOKEN, Limits, NewInstance, NewInterface, Options, REGION, SECRET_KEY, Simulator,
    WEB_IDENTITY_TOKEN, Work,
};
use serde_json::{Value, json};

/// Exit status of the script if boto3 cannot be installed.
const SKIPPED: i32 = 77;

/// Account that the script expects, and what it needs to know about it.
fn account() -> (Simulator, Value) {
    let limits = Limits { classic_load_balancers: 2, ..Limits::default() };
    let cloud = Simulator::new(Options { work: Work::Taking(Duration::from_secs(1)), limits, ..Options::default() });
    let fixture = cloud.fixture();
    let node = |name: &str| NewInstance::named(name).tagged("kubernetes.io/cluster/demo", "owned");
    let second = |new| NewInstance { subnet: fixture.private_subnets[1].clone(), ..new };
    let hpc = cloud.add_instance(NewInstance { kind: "hpc7a.12xlarge".to_owned(), ..node("hpc") });
    let nodes = [cloud.add_instance(node("node-1")), cloud.add_instance(second(node("node-2"))), hpc.clone()];
    let interfaces = vec![
        NewInterface { ipv4: vec![[10, 20, 1, 7].into()], ipv6: vec!["2001:db8::7".parse().unwrap()] },
        NewInterface { ipv4: vec![[10, 20, 1, 8].into(), [10, 20, 1, 9].into()], ipv6: Vec::new() },
    ];
    let subnet = fixture.public_subnets[0].clone();
    let public = Some([198, 51, 100, 7].into());
    let dual = cloud.add_instance(NewInstance { interfaces, subnet, public, ..NewInstance::named("dual") });
    let gone = cloud.add_instance(NewInstance::named("gone"));
    cloud.put_route(&fixture.node_table, "10.244.9.0/24", &gone);
    cloud.terminate(&gone);
    for number in 0..4 {
        cloud.add_instance(NewInstance::named(&format!("other-{number}")));
    }

    let facts = json!({"region": REGION, "key": ACCESS_KEY, "secret": SECRET_KEY, "web": WEB_IDENTITY_TOKEN,
        "container": CONTAINER_TOKEN, "vpc": fixture.vpc, "public": fixture.public_subnets, "private": fixture.private_subnets,
        "nodes": nodes, "dual": dual, "hpc": hpc, "node_group": fixture.node_group, "other_group": fixture.control_plane_group,
        "table": fixture.node_table, "certificate": fixture.certificate, "allocation": fixture.allocation,
        "free": "10.20.64.200"});
    (cloud, facts)
}

/// Reports a skipped test, bypassing the capture of the test runner, in the format that the CI gate counts.
fn skip(why: &str) {
    std::io::stderr().write_all(format!("\nSKIPPED: {why}\n1 skipped\n").as_bytes()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_sdk_of_aws_accepts_the_answers() {
    let (cloud, facts) = account();
    let server = cloud.serve("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/judge/run");
    let mut command = Command::new(script);
    command.args([server.url(), facts.to_string()]);
    let output = match tokio::task::spawn_blocking(move || command.output()).await.unwrap() {
        Ok(output) => output,
        Err(error) => return skip(&format!("no boto3: {error}")),
    };
    let (report, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.code() == Some(SKIPPED) {
        return skip(&format!("no boto3: {}", errors.lines().last().unwrap_or_default()));
    }
    assert!(output.status.success(), "{report}{errors}");
    let summary = report.lines().last().unwrap_or_default();
    assert!(summary.ends_with("checks passed, 0 failed, 0 differences"), "{report}{errors}");
}
