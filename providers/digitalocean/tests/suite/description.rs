//! Compares the provider's requests, and the simulator's responses, with DigitalOcean's own description of its API.
//!
//! prism, a proxy that validates traffic against an OpenAPI document, stands between the provider and the simulator. The description
//! is older than some fields of load balancers, which it lets pass.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use bowline_cloud::{CloudProvider as _, ClusterSnapshot, Instances as _};
use bowline_core::testing::{annotated, service_port};
use bowline_core::{Protocol, Service};
use bowline_digitalocean::DigitalOcean;
use bowline_digitalocean_simulator::{Options, Simulator};
use bowline_http::{Client, Options as HttpOptions, Proxies, Tls};
use serde_json::json;

use crate::world::{LB, World, config, node, web};

/// Maximum time until prism accepts connections, including its installation.
const START: Duration = Duration::from_secs(500);

/// Violations that the Go manager has as well: ICMP rules have no ports, and load balancers can be tagged.
const KNOWN: [&str; 2] = [
    "outbound_rules.2 must have required property 'ports'",
    "resources.0.resource_type must be equal to one of the allowed values",
];

/// A running prism, killed on drop.
struct Prism {
    child: Child,
    lines: Receiver<String>,
}

impl Drop for Prism {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Prism {
    /// Starts prism in front of the simulator; the reason if it is not available.
    fn start(upstream: &str, port: u16) -> Result<Prism, String> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/judge/run");
        let mut command = Command::new(script);
        command.args([upstream, &port.to_string()]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let (sender, lines) = channel();
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        for reader in [Box::new(out) as Box<dyn std::io::Read + Send>, Box::new(err)] {
            let sender = sender.clone();
            std::thread::spawn(move || {
                BufReader::new(reader).lines().map_while(Result::ok).for_each(|line| drop(sender.send(line)))
            });
        }
        let mut prism = Prism { child, lines };
        prism.wait()?;
        Ok(prism)
    }

    fn wait(&mut self) -> Result<(), String> {
        let (begun, mut last) = (std::time::Instant::now(), String::new());
        while begun.elapsed() < START {
            match self.lines.recv_timeout(Duration::from_millis(200)) {
                Ok(line) if line.contains("Prism is listening") => return Ok(()),
                Ok(line) => last = line,
                Err(_) if self.child.try_wait().unwrap().is_some() => return Err(last),
                Err(_) => {}
            }
        }
        Err(format!("it does not start: {last}"))
    }

    /// Violations so far.
    fn violations(&self) -> Vec<String> {
        // The last lines may still be on their way.
        std::thread::sleep(Duration::from_millis(500));
        let is_new = |line: &String| line.contains("Violation") && !KNOWN.iter().any(|known| line.contains(known));
        self.lines.try_iter().filter(is_new).collect()
    }
}

fn https(certificate: &str) -> Service {
    let ports = vec![service_port(Protocol::Tcp, 443), service_port(Protocol::Tcp, 80)];
    let annotations =
        [("type", "REGIONAL"), ("certificate-id", certificate), ("http-ports", "80"), ("allow-rules", "ip:192.0.2.1")];
    let sticky = [
        ("sticky-sessions-type", "cookies"),
        ("sticky-sessions-cookie-name", "lb"),
        ("sticky-sessions-cookie-ttl", "300"),
    ];
    Service { ports, ..web(&[&annotations[..], &sticky].concat()) }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_and_responses_match_the_description_of_the_api() {
    let cloud = Simulator::new(Options::default());
    let server = cloud.serve("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let upstream = server.url();
    let started = tokio::task::spawn_blocking(move || Prism::start(&upstream, port)).await.unwrap();
    let prism = match started {
        Ok(prism) => prism,
        Err(why) => {
            // Not `eprintln!`, which the test runner captures.
            std::io::stderr().write_all(format!("\nSKIPPED: no prism: {why}\n").as_bytes()).unwrap();
            return;
        }
    };
    let (url, vpc) = (format!("http://127.0.0.1:{port}"), cloud.vpc());
    let config = config(&[
        ("DO_OVERRIDE_URL", &url),
        ("DO_CLUSTER_ID", "c1"),
        ("DO_CLUSTER_VPC_ID", &vpc),
        ("PUBLIC_ACCESS_FIREWALL_NAME", "fw"),
        ("PUBLIC_ACCESS_FIREWALL_TAGS", "k8s"),
    ]);
    let options = HttpOptions { tls: Tls::default(), proxies: Proxies::default(), timeout: Duration::from_secs(30) };
    let provider = DigitalOcean::over(config, Client::new(options).unwrap(), &"kubernetes".into()).unwrap();
    let nodes = ["node-1", "node-2"].map(|name| node(&cloud, name)).into();
    let world = World { cloud, provider, nodes };
    exercise(&world).await;
    assert_eq!(prism.violations(), Vec::<String>::new());
}

/// Makes every call of the provider at least once.
async fn exercise(world: &World) {
    world.provider.start().await.unwrap();
    let failed: Vec<_> = world.provider.diagnose().await.into_iter().filter(|result| result.outcome.is_err()).collect();
    assert!(failed.is_empty(), "{failed:?}");
    world.provider.quotas().await.unwrap();
    world.provider.list(None).await.unwrap();
    let certificate = world.cloud.put("certificates", json!({"name": "cert", "type": "custom"}));
    let mut services = Vec::new();
    for service in [web(&[]), https(&certificate), web(&[("network", "INTERNAL")])] {
        let mut kept = world.kept(service);
        world.synced(&mut kept).await;
        kept.service = annotated(kept.service, &[(&format!("{LB}healthcheck-check-interval-seconds"), "10")]);
        world.synced(&mut kept).await;
        services.push(kept.service.clone());
        kept.is_deleted = true;
        assert!(world.sync(&mut kept).await.unwrap().state.is_none());
    }
    let rule = json!({"entry_protocol": "tcp", "entry_port": 80, "target_protocol": "tcp", "target_port": 80});
    world.cloud.put("load_balancers", json!({"name": crate::world::NAME, "forwarding_rules": [rule]}));
    let services = services
        .into_iter()
        .take(1)
        .map(|service| std::sync::Arc::new(Service { annotations: Default::default(), ..service }));
    let (nodes, paused) = Default::default();
    let snapshot = ClusterSnapshot { name: "kubernetes".into(), nodes, paused, services: services.collect() };
    for one in world.provider.loops() {
        let plan = one.plan(&snapshot).await.unwrap();
        for step in &plan.plan.steps {
            one.apply(step).await.unwrap();
        }
    }
}
