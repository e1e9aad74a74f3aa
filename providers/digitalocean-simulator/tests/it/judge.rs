//! DigitalOcean's own Python client, pydo, as the judge of the simulator.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use bowline_digitalocean_simulator::{NewDroplet, Options, Simulator, TOKEN, Work};
use serde_json::json;

/// Exit status of the script if pydo cannot be installed.
const SKIPPED: i32 = 77;

/// Account that the script expects: Droplets with and without public addresses, one in another VPC, and certificates.
fn account() -> Simulator {
    let cloud = Simulator::new(Options { work: Work::Taking(Duration::from_secs(1)), ..Options::default() });
    for number in 1..=7 {
        let mut new = NewDroplet::named(&format!("node-{number}"));
        new.tags = vec!["k8s".to_owned(), "k8s:worker".to_owned()];
        new.private.push([10, 108, 0, number + 1].into());
        if number % 3 != 0 {
            new.public.push([198, 51, 100, number].into());
        }
        if number % 2 == 0 {
            new.public.push(format!("2001:db8::{number}").parse().unwrap());
        }
        cloud.add_droplet(new);
    }
    let vpc = cloud.put("vpcs", json!({"name": "other", "ip_range": "10.109.0.0/20"}));
    cloud.add_droplet(NewDroplet { vpc, ..NewDroplet::named("elsewhere") });
    cloud.put("certificates", json!({"name": "custom"}));
    cloud.put("certificates", json!({"name": "renewable", "type": "lets_encrypt"}));
    cloud
}

/// Reports a skipped test, bypassing the capture of the test runner, in the format that the CI gate counts.
fn skip(why: &str) {
    std::io::stderr().write_all(format!("\nSKIPPED: {why}\n1 skipped\n").as_bytes()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_client_of_digitalocean_accepts_the_answers() {
    let server = account().serve("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/judge/run");
    let mut command = Command::new(script);
    command.args([&server.url(), TOKEN]);
    let output = match tokio::task::spawn_blocking(move || command.output()).await.unwrap() {
        Ok(output) => output,
        Err(error) => return skip(&format!("no pydo: {error}")),
    };
    let (report, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.code() == Some(SKIPPED) {
        return skip(&format!("no pydo: {}", errors.lines().last().unwrap_or_default()));
    }
    assert!(output.status.success(), "{report}{errors}");
    let summary = report.lines().last().unwrap_or_default();
    assert!(summary.ends_with("checks passed, 0 failed, 0 differences"), "{report}{errors}");
}
