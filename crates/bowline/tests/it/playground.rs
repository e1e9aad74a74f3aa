//! The playground as the person at the terminal meets it: the tour by itself, the tour by hand, and the end.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::kubectl::client;
use crate::support::{BOWLINE, Scratch, Server, finish, skip, within, workspace};

/// Generous: the machine may be busy with the other tests.
const PATIENCE: Duration = Duration::from_secs(120);

/// The last line of the tour.
const END_OF_TOUR: &str = "Nothing is kept";

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
    finish(child, PATIENCE)
}

#[test]
fn the_tour_by_itself_takes_every_step_and_ends_well() {
    let output = playground("script", &["--script"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let titles = [
        "[1/15] Before",
        "[2/15] After",
        "[3/15] Empty the route table",
        "[4/15] Ask for a load balancer",
        "[5/15] Stop a backend",
        "[6/15] Speak UDP, too",
        "[7/15] Only where a Pod is",
        "[8/15] Give the address back",
        "[9/15] Stop a machine",
        "[10/15] The cloud lies",
        "[11/15] Start the machine again",
        "[12/15] Delete the machine",
        "[13/15] Add a machine",
        "[14/15] Too much vanishes",
        "[15/15] Release the brake",
        "All 15 steps came out as they should.",
    ];
    let mut rest = &said[..];
    for title in titles {
        let (_, behind) = rest.split_once(title).unwrap_or_else(|| panic!("{title:?} is missing, or late: {said}"));
        rest = behind;
    }
    shows_what_is_said("docs/tutorials/playground.md", &said);
}

/// Checks that every line of the tour that a page shows is one of those that were printed.
fn shows_what_is_said(page: &str, said: &str) {
    let text = std::fs::read_to_string(workspace().join(page)).unwrap();
    let blocks = text.split("```text\n").skip(1).filter_map(|rest| rest.split("```").next());
    let of_the_tour = blocks.filter(|block| block.contains("/15] "));
    let differs = |line: &str| line.contains("KUBECONFIG") || line.contains("127.") || line.contains(" after 0.");
    let lines: Vec<_> =
        of_the_tour.flat_map(str::lines).filter(|line| line.trim() != "..." && !differs(line)).collect();
    assert!(lines.len() > 5, "{page} shows nothing of the tour");
    for line in lines {
        assert!(said.lines().any(|said| said == line), "{page} shows {line:?}, which is not said: {said}");
    }
}

#[test]
fn the_tour_comes_out_with_ranges_of_both_families_that_are_only_shown() {
    let output = playground("ranges", &["--script", "--cluster-cidr=10.244.0.0/16,fd00:10:244::/56"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("ok the cloud leads every pod range to its Node"), "{said}");
    assert!(!said.contains("at its own address"), "nobody answers there: {said}");
}

#[test]
fn a_tour_that_was_not_taken_to_its_end_is_no_success() {
    let mut server = Server::start_command("cut-short", "playground", &["--script"]);
    assert_eq!(server.stop("-INT").code(), Some(1));
}

#[test]
fn flags_that_cannot_work_are_refused_with_what_would() {
    for (flags, says) in [
        (&["--nodes=0"][..], "from 1 to 10000"),
        (&["--nodes=many"], "from 1 to 10000"),
        (&["--port=1", "--listen=127.0.0.1:1"], "cannot be used with"),
        (&["--port=70000"], "--port"),
        (&["--cluster-cidr=10.244.0.0"], "expected one such as 10.244.0.0/16"),
        (&["--cluster-cidr=10.1.0.0/16,10.2.0.0/16"], "one of each family"),
        (&["--cluster-cidr=127.0.0.0/16"], "loopback network"),
        (&["--cluster-cidr=10.244.0.0/24", "--nodes=200"], "too small for 200 Nodes"),
        (&["--cluster-cidr=10.96.8.0/24"], "belongs to Services"),
    ] {
        let output = playground("refused", flags);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {text}");
        assert!(text.contains(says), "{flags:?}: {text}");
    }
}

#[test]
fn an_interrupt_ends_it_well_and_soon() {
    let mut server = Server::start_command("interrupt", "playground", &["--nodes=50"]);
    let said = server.read_until(END_OF_TOUR);
    let asked = Instant::now();
    let status = server.stop("-INT");
    // To be compared with the second that it is meant to take; how busy the machine is, a test cannot know.
    eprintln!("the playground ended {} ms after the interrupt", asked.elapsed().as_millis());
    assert_eq!(status.code(), Some(0), "{said}");
    shows_what_is_said("README.md", &said);
}

#[test]
fn the_commands_of_the_tour_do_what_it_says() {
    let kubectls = client::installed();
    let Some(kubectl) = kubectls.iter().rfind(|program| program.since(29)) else {
        return skip("no kubectl of 1.29 or newer");
    };
    for program in ["curl", "bash"] {
        if Command::new(program).arg("--version").stdout(Stdio::null()).status().is_err() {
            return skip(&format!("no {program}"));
        }
    }
    let mut server = Server::start_command("by-hand", "playground", &[]);
    let tour = server.read_until(END_OF_TOUR);
    let shell = Shell::new(&server, &kubectl.path, cloud_of(&tour));
    for step in tour.split("\n[").skip(3) {
        let commands: Vec<_> = step.lines().filter_map(command).collect();
        assert!(!commands.is_empty(), "{step}");
        commands.iter().for_each(|command| drop(shell.run(command)));
        step.lines().filter_map(|line| line.strip_prefix("   -> ")).for_each(|claim| shell.check(claim));
    }
    assert!(server.stop("-INT").success());
}

/// Where the cloud's API is, as the commands have it.
fn cloud_of(tour: &str) -> &str {
    let (before, _) = tour.split_once("/v1/").expect("no command asks the cloud");
    before.rfind("http").map(|start| &before[start..]).expect("the cloud has a URL")
}

/// A line that is meant to be pasted.
fn command(line: &str) -> Option<&str> {
    line.strip_prefix("  ").filter(|rest| !rest.starts_with(' '))
}

/// A terminal in which `kubectl` is the one under test, and `$CLOUD` where the cloud's API is.
struct Shell<'a> {
    server: &'a Server,
    path: String,
    cloud: &'a str,
}

impl Shell<'_> {
    fn new<'a>(server: &'a Server, kubectl: &Path, cloud: &'a str) -> Shell<'a> {
        let bin = server.scratch.path("bin");
        std::fs::create_dir_all(&bin).unwrap();
        let script = format!("#!/bin/sh\nexec '{}' \"$@\"\n", kubectl.display());
        std::fs::write(bin.join("kubectl"), script).unwrap();
        assert!(Command::new("chmod").arg("+x").arg(bin.join("kubectl")).status().unwrap().success());
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
        Shell { server, path, cloud }
    }

    /// Runs a command that has to work, and returns what it printed.
    fn run(&self, command: &str) -> String {
        let child = Command::new("sh")
            .args(["-c", command])
            .current_dir(workspace())
            .env("PATH", &self.path)
            .env("HOME", self.server.scratch.path(""))
            .env("KUBECONFIG", self.server.kubeconfig())
            .env("CLOUD", self.cloud)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = finish(child, PATIENCE);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command}\n{said}{error}");
        // curl ends well whatever the cloud says, and the cloud says what is wrong.
        assert!(!said.contains(r#""error""#), "{command}\n{said}");
        said
    }

    /// Checks what the tour promised, with a kubectl command of this test's own.
    fn check(&self, claim: &str) {
        let (question, expected) = question(claim);
        let held = within(PATIENCE, || expected.is_met(&self.run(&question)).then_some(()));
        assert!(held.is_some(), "{claim}: {}", self.run(&question));
    }
}

/// What the answer to a question must be.
enum Expected {
    Text(String),
    Word(String, bool),
    Lines(usize),
    /// Every line is an answer, by these Pods and no others.
    By(BTreeSet<String>),
}

impl Expected {
    fn is_met(&self, said: &str) -> bool {
        match self {
            Expected::Text(text) => said == text,
            Expected::Word(word, there) => said.split_whitespace().any(|said| said == word) == *there,
            Expected::Lines(count) => said.lines().count() == *count,
            Expected::By(pods) => {
                let pod = |line: &str| line.strip_prefix("hello from ")?.split(' ').next().map(str::to_owned);
                said.lines().map(pod).collect::<Option<BTreeSet<_>>>().as_ref() == Some(pods)
            }
        }
    }
}

/// How to ask whether a claim holds.
fn question(claim: &str) -> (String, Expected) {
    let names = "kubectl get nodes -o name".to_owned();
    let field = |node: &str, field: &str| format!("kubectl get node {node} -o jsonpath='{{{field}}}'");
    let words: Vec<_> = claim.split_whitespace().collect();
    match words[..] {
        [node, "has", "the", "condition", condition] => {
            let (kind, status) = condition.split_once('=').unwrap();
            let told = format!(r#".status.conditions[?(@.type=="{kind}")].status"#);
            (field(node, &told), Expected::Text(status.to_owned()))
        }
        [node, "has", "the", "taint", key] => {
            (field(node, ".spec.taints[*].key"), Expected::Word(key.to_owned(), true))
        }
        [node, "does", "not", "have", "the", "taint", key] => {
            (field(node, ".spec.taints[*].key"), Expected::Word(key.to_owned(), false))
        }
        [node, "has", "the", "provider", "ID", id] => (field(node, ".spec.providerID"), Expected::Text(id.to_owned())),
        ["the", "Node", node, "is", state] => (names, Expected::Word(format!("node/{node}"), state == "there")),
        ["there", "are" | "is", count, "Nodes" | "Node"] => (names, Expected::Lines(count.parse().unwrap())),
        ["the", "Service", service, "is", "gone"] => {
            ("kubectl get services -o name".to_owned(), Expected::Word(format!("service/{service}"), false))
        }
        ["the", "cloud", "leads", "every", "pod", "range", "to", "its", "Node"] => {
            (compare_routes(), Expected::Text("same\n".to_owned()))
        }
        ["no", "route", "leads", "to", machine] => (ROUTES.to_owned(), Expected::Word(machine.to_owned(), false)),
        _ => traffic_question(&words).unwrap_or_else(|| panic!("this test does not know how to check that {claim}")),
    }
}

/// Prints `RANGE MACHINE` for each route of the cloud.
const ROUTES: &str = r#"curl -sS "$CLOUD/v1/routes?cluster=playground" | tr '{' '\n' |
    sed -n 's/.*"destination":"\([^"]*\)","machine":"\([^"]*\)".*/\1 \2/p' | sort"#;

/// Prints `same` if the cloud's routes are the Nodes' pod ranges.
fn compare_routes() -> String {
    let each = r#"{range .items[*]}{.spec.podCIDR} {.spec.providerID}{"\n"}{end}"#;
    let ranges = format!("kubectl get nodes -o jsonpath='{each}' | sed 's#local://##' | sort");
    format!(r#"[ "$({ranges})" = "$({ROUTES})" ] && echo same || {{ {ranges}; {ROUTES}; }}"#)
}

/// How to ask whether a claim about traffic holds. The address outlives its Service in a file.
fn traffic_question(words: &[&str]) -> Option<(String, Expected)> {
    let address = |service: &str| {
        format!(
            "kubectl get service {service} -o jsonpath='{{.status.loadBalancer.ingress[0].ip}}' | tee $HOME/address"
        )
    };
    let names =
        |pods: &[&str]| Expected::By(pods.iter().filter(|pod| **pod != "and").map(|pod| pod.to_string()).collect());
    match words {
        ["the", "Service", service, "has", "an", "address"] => Some((address(service), Expected::Lines(1))),
        ["the", "Service", service, "is", "answered", "over", "HTTP", "on", "port", port, "by", pods @ ..] => {
            let ask = format!("curl -sS -m 5 http://$({}):{port} || echo nobody", address(service));
            Some((format!("for n in 1 2 3 4 5 6; do {ask}; done"), names(pods)))
        }
        ["the", "Service", service, "is", "answered", "over", "UDP", "on", "port", port, "by", pods @ ..] => {
            let talk = format!("exec 3<>/dev/udp/$0/{port}; echo ahoy >&3; timeout 5 head -n 1 <&3 || echo nobody");
            Some((format!("bash -c '{talk}' $({})", address(service)), names(pods)))
        }
        ["the", "Nodes", "that", "want", "traffic", "of", "the", "Service", service, ..] => {
            Some((compare_health(service), Expected::Text("same\n".to_owned())))
        }
        ["the", "Pod", pod, "answers", "over", "HTTP", "on", "port", port, ..] => {
            let own = format!("kubectl get pod {pod} -o jsonpath='{{.status.podIP}}'");
            Some((format!("curl -sS -m 5 http://$({own}):{port} || echo nobody"), names(&[*pod])))
        }
        ["nobody", "answers", "over", "HTTP", "on", "port", port, ..] => {
            let ask = format!("curl -sS -m 5 http://$(cat $HOME/address):{port} || echo silence");
            Some((ask, Expected::Text("silence\n".to_owned())))
        }
        _ => None,
    }
}

/// Prints `same` if the Nodes that answer 200 on the health-check node port are those that have a Pod.
fn compare_health(service: &str) -> String {
    let nodes = r#"kubectl get nodes -o jsonpath='{range .items[*]}{.metadata.name} {.status.addresses[0].address}{"\n"}{end}'"#;
    let port = format!("$(kubectl get service {service} -o jsonpath='{{.spec.healthCheckNodePort}}')");
    let status = format!("curl -s -o /dev/null -w '%{{http_code}}' http://$ip:{port}/healthz");
    let willing = format!(r#"{nodes} | while read -r node ip; do [ "$({status})" = 200 ] && echo $node; done"#);
    let pods = format!(r#"kubectl get pods -l app={service} -o jsonpath='{{.items[*].spec.nodeName}}'"#);
    format!(r#"[ "$({willing})" = "$({pods})" ] && echo same || echo other"#)
}
