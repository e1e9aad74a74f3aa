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
        let (host, agents) = (host(), NAMES.map(|name| format!("{name}={}", host())));
        let created = bowline(&["lb-agent", "certificates", &directory, &agents[0], &agents[1]]);
        assert!(created.status.success(), "{}", text(&created.stderr));
        let folder = files.path("").display().to_string();
        for (name, listen, metrics) in [("lb-1", one, first), ("lb-2", two, second)] {
            let config = format!(
                "name: {name}\n\
                 listen: {host}:{listen}\n\
                 metricsListen: {host}:{metrics}\n\
                 stateFile: {folder}/{name}.json\n\
                 pool: [127.0.77.0/29]\n\
                 routes: {{enabled: false}}\n\
                 tls:\n  certificateFile: {folder}/pki/{{name}}.crt\n  keyFile: {folder}/pki/{{name}}.key\n  \
                 clientCaFile: {folder}/pki/ca.crt\n\
                 peers:\n  lb-1: {{endpoint: 'https://{host}:{one}'}}\n  lb-2: {{endpoint: 'https://{host}:{two}'}}\n"
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

    /// Waits until the rows of the status have these roles; returns the status with the rows.
    fn has_roles(&self, name: &str, is_expected: impl Fn(&[Row]) -> bool) -> (String, Vec<Row>) {
        let found = within(Duration::from_secs(60), || {
            let (_, text) = self.status(name, &[]);
            let rows: Vec<_> = text.lines().skip(1).take(NAMES.len()).map(row).collect();
            is_expected(&rows).then_some((text, rows))
        });
        found.unwrap_or_else(|| panic!("other roles: {}", self.status(name, &[]).1))
    }

    /// Waits until one agent is active and the other one its standby; returns the status and the index of the active one.
    fn settled(&self, name: &str) -> (String, usize) {
        let roles = |rows: &[Row]| rows.iter().map(|row| row.role.clone()).collect::<Vec<_>>();
        let is_settled = |rows: &[Row]| {
            let one_term = rows.windows(2).all(|pair| pair[0].rest == pair[1].rest);
            one_term && (roles(rows) == ["active", "standby"] || roles(rows) == ["standby", "active"])
        };
        let (text, rows) = self.has_roles(name, is_settled);
        let active = rows.iter().position(|row| row.role == "active").unwrap();
        (text, active)
    }

    /// Response of the plain listener of an agent.
    fn get(&self, agent: usize, path: &str) -> String {
        let mut stream = TcpStream::connect((host(), self.metrics[agent])).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    }
}

/// Row of the status.
struct Row {
    name: String,
    role: String,
    /// Term, version, numbers of addresses and of connections.
    rest: Vec<String>,
}

fn row(line: &str) -> Row {
    let mut words = line.split_whitespace().map(str::to_owned);
    let mut next = || words.next().unwrap_or_default();
    Row { name: next(), role: next(), rest: words.collect() }
}

/// Address of the agents. No connection of another test begins there, so ports that are free stay free.
fn host() -> String {
    format!("127.{}.77.1", 1 + std::process::id() % 250)
}

/// Ports that are free now.
fn free_ports<const N: usize>() -> [u16; N] {
    let bound = [(); N].map(|()| TcpListener::bind((host(), 0)).unwrap());
    bound.map(|listener| listener.local_addr().unwrap().port())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_status_shows_the_group_and_a_takeover() {
    let group = Group::new();
    let mut agents = NAMES.map(|name| group.start(name));
    let (shown, _) = group.settled("lb-1");
    assert!(shown.starts_with("AGENT   ROLE      TERM   VERSION   ADDRESSES   CONNECTIONS\n"), "{shown}");
    assert!(shown.ends_with("\nPool: 0 of 6 IPv4 addresses in use\n"), "{shown}");
    let (_, active) = group.settled("lb-2");
    let standby = 1 - active;
    let (code, json) = group.status("lb-2", &["-o", "json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, &json["active"][0]), (Some(0), &NAMES[active].into()));
    assert_eq!(json["agents"][1]["status"]["peers"][0]["name"], "lb-1");

    let metrics = group.get(active, "/metrics");
    for line in ["bowline_agent_role{role=\"active\"} 1", "bowline_agent_peers{state=\"alive\"} 1"] {
        assert!(metrics.contains(&format!("\n{line}\n")), "{line}: {metrics}");
    }
    assert!(!metrics.contains("\nbowline_agent_takeovers_total 0\n"), "{metrics}");
    assert!(group.get(standby, "/readyz").starts_with("HTTP/1.1 200 "));
    assert!(group.get(standby, "/healthz").starts_with("HTTP/1.1 200 "));

    agents[active].stop("-KILL");
    let (shown, _) = group.has_roles(NAMES[standby], |rows| {
        let role = |index: usize| rows.iter().find(|row| row.name == NAMES[index]).map(|row| row.role.as_str());
        (role(active), role(standby)) == (Some("unreachable"), Some("active"))
    });
    let problem = format!("- {} (https://{}:", NAMES[active], host());
    assert!(shown.contains("\nProblems:\n") && shown.contains(&problem), "{shown}");
    assert!(group.get(standby, "/metrics").contains("\nbowline_agent_peers{state=\"unreachable\"} 1\n"));
    assert_eq!(group.status(NAMES[active], &[]).0, Some(0));
    assert_eq!(agents[standby].stop("-TERM").code(), Some(0), "{}", agents[standby].output());
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
    other.settled("lb-1");
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
