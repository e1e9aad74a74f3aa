//! `bowline lb-agent`: configuration, certificates, and the status of a group, with agents on loopback.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use serde_json::Value;

use crate::support::{Program, Scratch, bowline, refused, within};

const NAMES: [&str; 2] = ["lb-1", "lb-2"];

/// Two agents without an interface, with the files that `lb-agent certificates` creates.
struct Group {
    files: Scratch,
    metrics: [u16; 2],
}

impl Group {
    fn new() -> Group {
        let files = Scratch::new("lb-agent");
        let [one, two, first, second] = free_ports();
        let directory = format!("--directory={}", files.path("pki").display());
        let created = bowline(&["lb-agent", "certificates", &directory, "lb-1=127.0.0.1", "lb-2=127.0.0.1"]);
        assert!(created.status.success(), "{}", text(&created.stderr));
        let folder = files.path("").display().to_string();
        for (name, listen, metrics) in [("lb-1", one, first), ("lb-2", two, second)] {
            let config = format!(
                "name: {name}\n\
                 listen: 127.0.0.1:{listen}\n\
                 metricsListen: 127.0.0.1:{metrics}\n\
                 stateFile: {folder}/{name}.json\n\
                 pool: [127.0.77.0/29]\n\
                 routes: {{enabled: false}}\n\
                 tls:\n  certificateFile: {folder}/pki/{{name}}.crt\n  keyFile: {folder}/pki/{{name}}.key\n  \
                 clientCaFile: {folder}/pki/ca.crt\n\
                 peers:\n  lb-1: {{endpoint: 'https://127.0.0.1:{one}'}}\n  lb-2: {{endpoint: 'https://127.0.0.1:{two}'}}\n"
            );
            files.file(&format!("{name}.yaml"), config);
        }
        Group { files, metrics: [first, second] }
    }

    fn config(&self, name: &str) -> String {
        format!("--config={}", self.files.path(&format!("{name}.yaml")).display())
    }

    fn start(&self, name: &str) -> Program {
        Program::start("lb-agent", &["lb-agent", &self.config(name)])
    }

    /// Exit code and output of `lb-agent status` on the host of this agent.
    fn status(&self, name: &str, flags: &[&str]) -> (Option<i32>, String) {
        let output = bowline(&[&["lb-agent", "status", &self.config(name)], flags].concat());
        assert_eq!(text(&output.stderr), "");
        (output.status.code(), text(&output.stdout))
    }

    /// Waits until the status has these rows.
    fn has_rows(&self, name: &str, rows: &[&str]) -> String {
        let squeezed = |text: &str| {
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
        };
        let found = within(Duration::from_secs(20), || {
            let (_, text) = self.status(name, &[]);
            rows.iter().all(|row| squeezed(&text).iter().any(|line| line == row)).then_some(text)
        });
        found.unwrap_or_else(|| panic!("missing {rows:?}: {}", self.status(name, &[]).1))
    }

    /// Response of the plain listener of an agent.
    fn get(&self, agent: usize, path: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.metrics[agent])).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    }
}

/// Ports that are free now.
fn free_ports<const N: usize>() -> [u16; N] {
    let bound = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    bound.map(|listener| listener.local_addr().unwrap().port())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_status_shows_the_group_and_a_takeover() {
    let group = Group::new();
    let mut agents = NAMES.map(|name| group.start(name));
    let rows = ["lb-1 active 1 0.0 0 0", "lb-2 standby 1 0.0 0 0"];
    let shown = group.has_rows("lb-1", &rows);
    assert!(shown.starts_with("AGENT   ROLE      TERM   VERSION   ADDRESSES   CONNECTIONS\n"), "{shown}");
    assert!(shown.ends_with("\nPool: 0 of 6 IPv4 addresses in use\n"), "{shown}");
    group.has_rows("lb-2", &rows);
    let (code, json) = group.status("lb-2", &["-o", "json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, &json["active"][0], json["problems"].as_array().unwrap().len()), (Some(0), &"lb-1".into(), 0));
    assert_eq!(json["agents"][1]["status"]["peers"][0]["name"], "lb-1");

    let metrics = group.get(0, "/metrics");
    for line in [
        "bowline_agent_role{role=\"active\"} 1",
        "bowline_agent_takeovers_total 1",
        "bowline_agent_peers{state=\"alive\"} 1",
    ] {
        assert!(metrics.contains(&format!("\n{line}\n")), "{line}: {metrics}");
    }
    assert!(group.get(1, "/readyz").starts_with("HTTP/1.1 200 "));
    assert!(group.get(1, "/healthz").starts_with("HTTP/1.1 200 "));

    agents[0].stop("-KILL");
    let shown = group.has_rows("lb-2", &["lb-1 unreachable - - - -", "lb-2 active 2 0.0 0 0"]);
    assert!(shown.contains("\nProblems:\n- lb-1 (https://127.0.0.1:"), "{shown}");
    assert!(group.get(1, "/metrics").contains("\nbowline_agent_peers{state=\"unreachable\"} 1\n"));
    assert_eq!(group.status("lb-1", &[]).0, Some(0));
    assert_eq!(agents[1].stop("-TERM").code(), Some(0), "{}", agents[1].output());
}

#[test]
fn the_status_of_a_group_that_does_not_run_has_exit_code_1() {
    let group = Group::new();
    let (code, shown) = group.status("lb-1", &[]);
    assert_eq!(code, Some(1));
    for part in
        ["lb-1    unreachable", "Connection refused", "- no agent is active, so load balancers are not reachable\n"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let (code, json) = group.status("lb-1", &["--output=json"]);
    assert_eq!(code, Some(1));
    assert_eq!(serde_json::from_str::<Value>(&json).unwrap()["active"], serde_json::json!([]));
}

#[test]
fn another_process_at_an_endpoint_is_no_agent_of_the_group() {
    let (group, other) = (Group::new(), Group::new());
    let mut agents = NAMES.map(|name| other.start(name));
    other.has_rows("lb-1", &["lb-1 active 1 0.0 0 0"]);
    // The endpoints of the other group, whose certificates are of another CA.
    let config = fs::read_to_string(other.files.path("lb-1.yaml")).unwrap();
    let config =
        config.replace(&other.files.path("").display().to_string(), &group.files.path("").display().to_string());
    group.files.file("lb-1.yaml", config);
    let (code, shown) = group.status("lb-1", &[]);
    assert_eq!(code, Some(1), "{shown}");
    assert_eq!(shown.matches("certificate").count(), 2, "{shown}");
    for agent in &mut agents {
        agent.stop("-TERM");
    }
}

#[test]
fn all_errors_of_a_configuration_are_reported_with_their_lines() {
    let files = Scratch::new("lb-agent");
    let config = "listen: lb-1:9470\npool: [192.0.2.0/29, lb]\nnam: lb-1\ntls: {certificateFile: a.crt}\n";
    let path = files.file("agent.yaml", config).display().to_string();
    let flag = format!("--config={path}");
    let expected = [
        format!("{path}:1: listen: \"lb-1:9470\" is neither IP:PORT nor unix:/PATH; write"),
        format!("{path}:2: pool: \"lb\" is not an address pool; expected a CIDR"),
        format!("{path}:3: nam: unknown key; did you mean name?"),
        format!("{path}: tls.keyFile: is required; create certificates with `bowline lb-agent certificates`"),
    ];
    let expected: Vec<_> = expected.iter().map(String::as_str).collect();
    for flags in [&["lb-agent", &flag, "--check-config"] as &[_], &["lb-agent", &flag], &["lb-agent", "status", &flag]]
    {
        refused(flags, 2, &expected);
    }
    let missing = format!("--config={}", files.path("missing.yaml").display());
    refused(&["lb-agent", &missing], 2, &["missing.yaml: no such file"]);
    refused(&["lb-agent", "status", &missing], 2, &["missing.yaml: no such file"]);
    refused(&["lb-agent", "--sail"], 2, &["--sail"]);
}

#[test]
fn a_configuration_is_checked_with_its_certificates() {
    let group = Group::new();
    let check = |flags: &[&str]| bowline(&[&["lb-agent", &group.config("lb-1")], flags].concat());
    let valid: Output = check(&["--check-config"]);
    assert_eq!((valid.status.code(), text(&valid.stderr)), (Some(0), String::new()));
    assert!(text(&valid.stdout).ends_with("lb-1.yaml: valid; agent \"lb-1\", with lb-2\n"), "{}", text(&valid.stdout));
    assert!(!group.files.path("lb-1.json").exists(), "nothing was started");

    let (one, two) = (group.files.path("pki/lb-1.crt"), group.files.path("pki/lb-2.crt"));
    fs::copy(two, &one).unwrap();
    let config = group.config("lb-1");
    for flags in [&["lb-agent", &config, "--check-config"] as &[_], &["lb-agent", &config]] {
        refused(
            flags,
            2,
            &["pki/lb-1.crt: the certificate has the names [\"lb-2\"], but the agent is \"lb-1\"; fix: "],
        );
    }
    fs::write(&one, "no certificate").unwrap();
    refused(&["lb-agent", &config, "--check-config"], 2, &["pki/lb-1.crt: contains no PEM certificate"]);
    fs::remove_file(&one).unwrap();
    refused(&["lb-agent", "status", &config], 2, &["pki/lb-1.crt: cannot be read: No such file"]);
}

#[test]
fn certificates_can_be_added_and_are_never_overwritten() {
    let files = Scratch::new("lb-agent");
    let pki = files.path("pki");
    let directory = format!("--directory={}", pki.display());
    let create = |words: &[&str]| bowline(&[&["lb-agent", "certificates", &directory], words].concat());
    let created = create(&["lb-1=192.0.2.11,2001:db8::11,lb-1.example"]);
    assert!(created.status.success(), "{}", text(&created.stderr));
    let lines = text(&created.stdout);
    let expected = [
        ("/pki/ca.crt, ca.key", ": the CA; keep the key offline"),
        ("/pki/lb-1.crt, lb-1.key", ": for the agent lb-1"),
        ("/pki/bowline.crt, bowline.key", ": for the client bowline"),
    ];
    assert_eq!(lines.lines().count(), expected.len(), "{lines}");
    for (line, (start, end)) in lines.lines().zip(expected) {
        assert!(line.contains(start) && line.contains(" created, valid until ") && line.ends_with(end), "{line}");
    }
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&pki), mode(&pki.join("ca.key")), mode(&pki.join("lb-1.key"))), (0o700, 0o600, 0o600));

    let before = fs::read(pki.join("lb-1.crt")).unwrap();
    let added =
        create(&["lb-1=192.0.2.11,2001:db8::11,lb-1.example", "lb-2=192.0.2.12", "--client=spare", "--days=30"]);
    let lines = text(&added.stdout);
    let states: Vec<_> = lines.lines().map(|line| line.contains(" kept, ")).collect();
    assert_eq!((states, added.status.code()), (vec![true, true, false, false], Some(0)), "{lines}");
    assert_eq!(fs::read(pki.join("lb-1.crt")).unwrap(), before);

    let words = |words: &[&'static str]| [&["lb-agent", "certificates", directory.as_str()], words].concat();
    refused(
        &words(&["lb-1=192.0.2.13"]),
        2,
        &["lb-1.crt: exists with other names: lb-1, 192.0.2.11", "; fix: delete it and "],
    );
    refused(
        &words(&["lb-3=192.0.2.13:9470"]),
        2,
        &["invalid name \"192.0.2.13:9470\"", "without scheme, brackets and port"],
    );
    refused(&words(&["lb-3"]), 2, &["expected NAME=ADDRESS, such as lb-1=192.0.2.11"]);
    refused(&words(&[]), 2, &["NAME=ADDRESS"]);
    refused(&["lb-agent", "certificates", "lb-3=192.0.2.13"], 2, &["--directory"]);
    let file = files.file("file", "").display().to_string();
    refused(&["lb-agent", "certificates", &format!("--directory={file}"), "lb-3=192.0.2.13"], 1, &["/file"]);
    assert!(!pki.join("lb-3.crt").exists());
}
