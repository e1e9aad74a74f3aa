//! `bowline playground` without a terminal: the automatic tour, the tour by hand, and shutdown.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::kubectl::client;
use crate::support::{BOWLINE, Scratch, Server, bowline, finish, refused, skip, within, workspace};

/// Generous timeout: the machine may be busy with other tests.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Start of the last line of the tour.
const END_OF_TOUR: &str = "Press Ctrl-C";

fn playground(test: &str, flags: &[&str]) -> Output {
    let scratch = Scratch::new(test);
    let child = Command::new(BOWLINE)
        .arg("playground")
        .arg("--kubeconfig")
        .arg(scratch.path("kubeconfig"))
        .args(flags)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    finish(child, TIMEOUT)
}

#[test]
fn the_automatic_tour_passes_every_step() {
    let output = playground("script", &["--script"]);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
    let titles = [
        "[1/15] Before",
        "[2/15] After",
        "[3/15] Delete all routes",
        "[4/15] Create a load balancer",
        "[5/15] Delete a Pod",
        "[6/15] Add a UDP port",
        "[7/15] Set externalTrafficPolicy: Local",
        "[8/15] Delete the Service",
        "[9/15] Stop a machine",
        "[10/15] The cloud lists no machines",
        "[11/15] Start the machine again",
        "[12/15] Delete the machine",
        "[13/15] Add a machine",
        "[14/15] Delete most machines at once",
        "[15/15] Release the brake",
        "All 15 steps passed.",
    ];
    let mut rest = &stdout[..];
    for title in titles {
        let (_, behind) =
            rest.split_once(title).unwrap_or_else(|| panic!("{title:?} is missing or out of order: {stdout}"));
        rest = behind;
    }
    for line in ["   ok there are 3 Nodes", "   ok the Service hello is deleted", "   ok there is 1 Node"] {
        assert!(stdout.lines().any(|printed| printed == line), "{line:?} is missing: {stdout}");
    }
}

#[test]
fn without_a_terminal_the_tour_needs_no_flag() {
    let output = playground("no-terminal", &["--nodes=1", "--cluster-cidr=10.244.0.0/16"]);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
    assert!(stdout.contains(" steps passed.") && !stdout.contains('\x1b'), "{stdout}");
}

#[test]
fn examples_are_the_files_of_the_repository() {
    let list = bowline(&["playground", "example"]);
    let list = String::from_utf8(list.stdout).unwrap();
    for name in ["hello", "hello-udp", "node", "service"] {
        assert!(list.lines().any(|line| line.split_whitespace().next() == Some(name)), "{list}");
        let file = std::fs::read(workspace().join(format!("examples/{name}.yaml"))).unwrap();
        assert_eq!(bowline(&["playground", "example", name]).stdout, file, "{name}");
    }
    let other = bowline(&["playground", "example", "hello-udp", "--port=5000"]).stdout;
    let other = String::from_utf8(other).unwrap();
    assert!(other.contains("port: 5000\n") && other.contains("port: 5001\n"), "{other}");
    refused(&["playground", "example", "halo"], 2, &["halo", "hello-udp"]);
}

#[test]
fn the_log_is_appended_to_the_named_file() {
    let scratch = Scratch::new("log-file");
    let file = scratch.file("log", "first\n");
    let flag = format!("--log-file={}", file.display());
    let output = playground("log", &["--nodes=1", "--cluster-cidr=10.244.0.0/16", &flag]);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let log = std::fs::read_to_string(&file).unwrap();
    assert!(log.starts_with("first\n") && log.contains("the cloud is ready"), "{log}");
}

#[test]
fn the_tour_passes_with_unreachable_dual_stack_cluster_cidrs() {
    let output = playground("ranges", &["--script", "--cluster-cidr=10.244.0.0/16,fd00:10:244::/56"]);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
    assert!(stdout.contains("ok every pod CIDR has a route to its Node"), "{stdout}");
    assert!(!stdout.contains("at its own address"), "unreachable Pods were probed: {stdout}");
}

#[test]
fn an_interrupted_tour_fails() {
    let mut server = Server::start_command("cut-short", "playground", &["--script"]);
    assert_eq!(server.stop("-INT").code(), Some(1));
}

#[test]
fn invalid_flags_are_rejected_with_a_hint() {
    for (flags, expected) in [
        (&["--nodes=0"][..], "from 1 to 10000"),
        (&["--nodes=many"], "from 1 to 10000"),
        (&["--port=1", "--listen=127.0.0.1:1"], "cannot be used with"),
        (&["--port=70000"], "--port"),
        (&["--cluster-cidr=10.244.0.0"], "expected for example 10.244.0.0/16"),
        (&["--cluster-cidr=10.1.0.0/16,10.2.0.0/16"], "one of each family"),
        (&["--cluster-cidr=127.0.0.0/16"], "loopback network"),
        (&["--cluster-cidr=10.244.0.0/24", "--nodes=200"], "too small for the pod CIDRs of 200 Nodes"),
        (&["--cluster-cidr=10.96.8.0/24"], "belongs to the service CIDR"),
    ] {
        let output = playground("refused", flags);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {text}");
        assert!(text.contains(expected), "{flags:?}: {text}");
    }
}

#[test]
fn an_interrupt_stops_the_playground_quickly() {
    let mut server = Server::start_command("interrupt", "playground", &["--no-tour", "--nodes=50"]);
    let stdout = server.read_until(END_OF_TOUR);
    let interrupted = Instant::now();
    let status = server.stop("-INT");
    // Printed for comparison with the target of one second, which a test on a busy machine cannot assert.
    eprintln!("the playground stopped {} ms after the interrupt", interrupted.elapsed().as_millis());
    assert_eq!(status.code(), Some(0), "{stdout}");
}

#[test]
fn the_commands_of_the_tour_have_the_described_effects() {
    let kubectls = client::installed();
    let Some(kubectl) = kubectls.iter().rfind(|program| program.since(29)) else {
        return skip("no kubectl of 1.29 or newer");
    };
    for program in ["curl", "bash"] {
        if Command::new(program).arg("--version").stdout(Stdio::null()).status().is_err() {
            return skip(&format!("no {program}"));
        }
    }
    let mut server = Server::start_command("by-hand", "playground", &["--no-tour"]);
    let tour = server.read_until(END_OF_TOUR);
    let shell = Shell::new(&server, &kubectl.path, cloud_of(&tour));
    for step in tour.split("\n[").skip(3) {
        assert!(step.lines().filter_map(command).count() >= 2, "{step}");
        for line in step.lines() {
            match (command(line), line.strip_prefix("   -> ")) {
                (Some(command), _) => drop(shell.run(command)),
                (None, Some(assertion)) => shell.check(assertion),
                (None, None) => {}
            }
        }
    }
    assert!(server.stop("-INT").success());
}

/// Returns the URL of the cloud's API in the commands.
fn cloud_of(tour: &str) -> &str {
    let (_, url) = tour.split_once("export BOWLINE_CLOUD_ENDPOINT=").expect("the cloud has a URL");
    url.lines().next().unwrap()
}

/// Returns the command of a line, if it is one.
fn command(line: &str) -> Option<&str> {
    line.strip_prefix("  ").filter(|rest| !rest.starts_with(' '))
}

/// A shell with `bowline` and the `kubectl` under test in its path, and the URL of the cloud's API in `$CLOUD`.
struct Shell<'a> {
    server: &'a Server,
    path: String,
    cloud: &'a str,
}

impl Shell<'_> {
    fn new<'a>(server: &'a Server, kubectl: &Path, cloud: &'a str) -> Shell<'a> {
        let bin = server.scratch.path("bin");
        std::fs::create_dir_all(&bin).unwrap();
        // The playground wrote the owner's token for this user, and the shell has another HOME.
        let home = std::env::var("HOME").unwrap_or_default();
        for (name, start) in [("kubectl", kubectl.display().to_string()), ("bowline", BOWLINE.to_owned())] {
            let home = if name == "bowline" { format!("HOME='{home}' ") } else { String::new() };
            std::fs::write(bin.join(name), format!("#!/bin/sh\n{home}exec '{start}' \"$@\"\n")).unwrap();
            assert!(Command::new("chmod").arg("+x").arg(bin.join(name)).status().unwrap().success());
        }
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
        Shell { server, path, cloud }
    }

    /// Runs a command that must succeed, and returns its output.
    fn run(&self, command: &str) -> String {
        self.try_run(command).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Runs a command, and returns its output, or all that it printed if it failed.
    fn try_run(&self, command: &str) -> Result<String, String> {
        let child = Command::new("sh")
            .args(["-c", command])
            // The commands need no checkout.
            .current_dir(self.server.scratch.path(""))
            .env("PATH", &self.path)
            .env("HOME", self.server.scratch.path(""))
            .env("KUBECONFIG", self.server.kubeconfig())
            .env("CLOUD", self.cloud)
            .env("BOWLINE_CLOUD_ENDPOINT", self.cloud)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = finish(child, TIMEOUT);
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr);
        // curl succeeds even if the cloud returns an error.
        let succeeded = output.status.success() && !stdout.contains(r#""error""#);
        if succeeded { Ok(stdout) } else { Err(format!("{command}\n{stdout}{error}")) }
    }

    /// Checks an assertion of the tour with a command of this test.
    fn check(&self, assertion: &str) {
        let (check_command, expected) = check_command(assertion);
        // The command may fail at first: a Node exists once its kubelet has registered it.
        let held =
            within(TIMEOUT, || self.try_run(&check_command).is_ok_and(|stdout| expected.is_met(&stdout)).then_some(()));
        assert!(held.is_some(), "{assertion}: {}", self.run(&check_command));
    }
}

/// Expected output of a command.
enum Expected {
    Text(String),
    Word(String, bool),
    Lines(usize),
    /// Every line is a response, and exactly these Pods answer.
    By(BTreeSet<String>),
}

impl Expected {
    fn is_met(&self, stdout: &str) -> bool {
        match self {
            Expected::Text(text) => stdout == text,
            Expected::Word(word, there) => stdout.split_whitespace().any(|stdout| stdout == word) == *there,
            Expected::Lines(count) => stdout.lines().count() == *count,
            Expected::By(pods) => {
                let pod = |line: &str| line.strip_prefix("hello from ")?.split(' ').next().map(str::to_owned);
                stdout.lines().map(pod).collect::<Option<BTreeSet<_>>>().as_ref() == Some(pods)
            }
        }
    }
}

/// Returns the command that checks an assertion, and its expected output.
fn check_command(assertion: &str) -> (String, Expected) {
    let names = "kubectl get nodes -o name".to_owned();
    let field = |node: &str, field: &str| format!("kubectl get node {node} -o jsonpath='{{{field}}}'");
    let words: Vec<_> = assertion.split_whitespace().collect();
    match words[..] {
        [node, "has", "the", "condition", condition] => {
            let (kind, status) = condition.split_once('=').unwrap();
            let status_path = format!(r#".status.conditions[?(@.type=="{kind}")].status"#);
            (field(node, &status_path), Expected::Text(status.to_owned()))
        }
        [node, "has", "the", "taint", key] => {
            (field(node, ".spec.taints[*].key"), Expected::Word(key.to_owned(), true))
        }
        [node, "does", "not", "have", "the", "taint", key] => {
            (field(node, ".spec.taints[*].key"), Expected::Word(key.to_owned(), false))
        }
        [node, "has", "the", "provider", "ID", id] => (field(node, ".spec.providerID"), Expected::Text(id.to_owned())),
        ["the", "Node", node, "exists"] => (names, Expected::Word(format!("node/{node}"), true)),
        ["the", "Node", node, "is", "deleted"] => (names, Expected::Word(format!("node/{node}"), false)),
        ["there", "are" | "is", count, "Nodes" | "Node"] => (names, Expected::Lines(count.parse().unwrap())),
        ["the", "Service", service, "is", "deleted"] => {
            ("kubectl get services -o name".to_owned(), Expected::Word(format!("service/{service}"), false))
        }
        ["every", "pod", "CIDR", "has", "a", "route", "to", "its", "Node"] => {
            (compare_routes(), Expected::Text("same\n".to_owned()))
        }
        ["there", "is", "no", "route", "to", machine] => (ROUTES.to_owned(), Expected::Word(machine.to_owned(), false)),
        _ => {
            traffic_check_command(&words).unwrap_or_else(|| panic!("this test does not know how to check: {assertion}"))
        }
    }
}

/// Prints `DESTINATION MACHINE` for each route of the cloud.
const ROUTES: &str = r#"curl -sS "$CLOUD/v1/routes?cluster=playground" | tr '{' '\n' |
    sed -n 's/.*"destination":"\([^"]*\)","machine":"\([^"]*\)".*/\1 \2/p' | sort"#;

/// Returns a command that prints `same` if the cloud has exactly the routes of the Nodes' pod CIDRs.
fn compare_routes() -> String {
    let each = r#"{range .items[*]}{.spec.podCIDR} {.spec.providerID}{"\n"}{end}"#;
    let ranges = format!("kubectl get nodes -o jsonpath='{each}' | sed 's#local://##' | sort");
    format!(r#"[ "$({ranges})" = "$({ROUTES})" ] && echo same || {{ {ranges}; {ROUTES}; }}"#)
}

/// Returns the command that checks an assertion about traffic. A file keeps the address of a deleted Service.
fn traffic_check_command(words: &[&str]) -> Option<(String, Expected)> {
    let address = |service: &str| {
        format!(
            "kubectl get service {service} -o jsonpath='{{.status.loadBalancer.ingress[0].ip}}' | tee $HOME/address"
        )
    };
    let names =
        |pods: &[&str]| Expected::By(pods.iter().filter(|pod| **pod != "and").map(|pod| pod.to_string()).collect());
    match words {
        ["the", "Service", service, "has", "an", "address"] => Some((address(service), Expected::Lines(1))),
        ["requests", "to", "the", "Service", service, "over", "HTTP", "on", "port", port, "reach", pods @ ..] => {
            let ask = format!("curl -sS -m 5 http://$({}):{port} || echo none", address(service));
            Some((format!("for n in 1 2 3 4 5 6; do {ask}; done"), names(pods)))
        }
        ["requests", "to", "the", "Service", service, "over", "UDP", "on", "port", port, "reach", pods @ ..] => {
            let talk = format!("exec 3<>/dev/udp/$0/{port}; echo ahoy >&3; timeout 5 head -n 1 <&3 || echo none");
            Some((format!("bash -c '{talk}' $({})", address(service)), names(pods)))
        }
        ["only", "Nodes", "with", "a", "Pod", "of", "the", "Service", service, ..] => {
            Some((compare_health(service), Expected::Text("same\n".to_owned())))
        }
        ["the", "Pod", pod, "answers", "over", "HTTP", "on", "port", port, ..] => {
            let own = format!("kubectl get pod {pod} -o jsonpath='{{.status.podIP}}'");
            Some((format!("curl -sS -m 5 http://$({own}):{port} || echo none"), names(&[*pod])))
        }
        [
            "the",
            "former",
            "address",
            "of",
            "the",
            "Service",
            _,
            "does",
            "not",
            "answer",
            "over",
            "HTTP",
            "on",
            "port",
            port,
        ] => {
            let ask = format!("curl -sS -m 5 http://$(cat $HOME/address):{port} || echo none");
            Some((ask, Expected::Text("none\n".to_owned())))
        }
        _ => None,
    }
}

/// Returns a command that prints `same` if exactly the Nodes with a Pod answer 200 on the health-check node port.
fn compare_health(service: &str) -> String {
    let nodes = r#"kubectl get nodes -o jsonpath='{range .items[*]}{.metadata.name} {.status.addresses[0].address}{"\n"}{end}'"#;
    let port = format!("$(kubectl get service {service} -o jsonpath='{{.spec.healthCheckNodePort}}')");
    let status = format!("curl -s -o /dev/null -w '%{{http_code}}' http://$ip:{port}/healthz");
    let healthy = format!(r#"{nodes} | while read -r node ip; do [ "$({status})" = 200 ] && echo $node; done"#);
    let pods = format!(r#"kubectl get pods -l app={service} -o jsonpath='{{.items[*].spec.nodeName}}'"#);
    format!(r#"[ "$({healthy})" = "$({pods})" ] && echo same || echo other"#)
}
