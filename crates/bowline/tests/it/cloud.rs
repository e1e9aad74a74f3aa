//! `bowline cloud`: a running cloud, and the subcommands that manage it.

use std::net::TcpListener;

use crate::support::{Program, Scratch, bowline, refused};

/// A running cloud on a free port.
struct Cloud {
    program: Program,
    endpoint: String,
}

impl Cloud {
    fn start(flags: &[&str]) -> Cloud {
        let arguments: Vec<_> = ["cloud", "--listen=127.0.0.1:0"].iter().chain(flags).copied().collect();
        let mut program = Program::start("cloud", &arguments);
        let endpoint = program.wait_for("cloud ready at ");
        Cloud { program, endpoint }
    }

    /// Runs a subcommand and returns its output.
    fn run(&self, command: &str) -> String {
        let endpoint = format!("--endpoint={}", self.endpoint);
        let words: Vec<_> = ["cloud"].into_iter().chain(command.split(' ')).chain([endpoint.as_str()]).collect();
        let output = bowline(&words);
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a subcommand that must fail.
    fn refuses(&self, command: &str, expected: &[&str]) {
        let endpoint = format!("--endpoint={}", self.endpoint);
        let words: Vec<_> = ["cloud"].into_iter().chain(command.split(' ')).chain([endpoint.as_str()]).collect();
        refused(&words, 1, expected);
    }
}

#[test]
fn machines_are_created_stopped_started_and_deleted() {
    let mut cloud = Cloud::start(&["--page-size=2"]);
    let id = cloud.run("add worker-1 --zone=quay-1 --type=small --address=InternalIP=10.0.0.1 --label=disk=fast --pod-range=10.1.0.0/24");
    let id = id.trim_end();
    assert!(!id.is_empty());
    for name in ["worker-2", "worker-3"] {
        assert_eq!(cloud.run(&format!("add {name} --id={name}")), format!("{name}\n"));
    }
    let list = cloud.run("list");
    let machine = list.lines().find(|line| line.contains("worker-1")).unwrap();
    let cells: Vec<_> = machine.split_whitespace().collect();
    assert_eq!(cells, [id, "worker-1", "running", "small", "quay-1", "InternalIP=10.0.0.1", "10.1.0.0/24"]);
    assert_eq!(list.lines().count(), 4, "a header and three machines, over two pages: {list}");

    let state = |name: &str| {
        let list = cloud.run("list");
        let line = list.lines().find(|line| line.contains(name)).map(str::to_owned);
        line.map(|line| line.split_whitespace().nth(2).unwrap().to_owned())
    };
    cloud.run("stop worker-2");
    assert_eq!(state("worker-2").as_deref(), Some("stopped"));
    cloud.run("start worker-2");
    assert_eq!(state("worker-2").as_deref(), Some("running"));
    cloud.run("delete worker-2");
    assert_eq!(state("worker-2"), None);
    cloud.refuses("stop worker-2", &["worker-2"]);
    cloud.refuses("add worker-3 --id=worker-3", &["worker-3"]);
    assert!(cloud.program.stop("-TERM").success());
}

#[test]
fn routes_are_created_become_blackholes_and_are_deleted() {
    let cloud = Cloud::start(&["--max-routes=2"]);
    let cells = |line: usize| {
        let list = cloud.run("routes");
        let line = list.lines().nth(line).map(str::to_owned);
        line.map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    };
    cloud.run("add worker-1 --id=one");
    let id = cloud.run("add-route 10.244.1.0/24 one");
    let id = id.trim_end();
    let route = |state: &str| {
        Some(["kubernetes", id, "10.244.1.0/24", "one", "<none>", state, "false"].map(str::to_owned).to_vec())
    };
    assert_eq!(cells(1), route("active"));
    cloud.refuses("add-route 10.244.1.0/24 one", &["10.244.1.0/24"]);
    cloud.refuses("add-route 10.244.2.0/24 missing", &["missing"]);
    cloud.run("add-route 10.244.2.0/24 one --stamped");
    cloud.refuses("add-route 10.244.3.0/24 one", &["2"]);
    cloud.run("add-route 10.244.1.0/24 one --cluster=harbour");
    let list = cloud.run("routes");
    assert!(list.lines().nth(1).is_some_and(|line| line.starts_with("harbour ")), "by cluster: {list}");
    cloud.run("delete one");
    assert_eq!(cells(2), route("blackhole"));
    cloud.run(&format!("delete-route {id}"));
    cloud.refuses(&format!("delete-route {id}"), &[id]);
    assert_eq!(cloud.run("routes").lines().count(), 3, "the other routes still exist");
}

#[test]
fn a_fault_is_removed_by_its_number() {
    let cloud = Cloud::start(&["--seed=7", "--latency=1ms"]);
    let number = cloud.run("fault failing=503 --call=list --times=3");
    assert!(number.trim_end().parse::<u64>().is_ok(), "{number}");
    cloud.run("fault throttled=5s --probability=0.5");
    cloud.run(&format!("repair {}", number.trim_end()));
    cloud.run("repair");
    // Calls of the owner are not counted.
    assert!(cloud.run("calls --reset").lines().all(|line| line.ends_with(" 0")));
}

#[test]
fn machines_survive_a_restart_with_a_snapshot() {
    let scratch = Scratch::new("snapshot");
    let snapshot = format!("--snapshot={}", scratch.path("cloud.json").display());
    let mut cloud = Cloud::start(&[&snapshot]);
    cloud.run("add worker-1 --id=one");
    assert!(cloud.program.stop("-INT").success());
    let cloud = Cloud::start(&[&snapshot]);
    assert!(cloud.run("list").contains("one   worker-1   running"));
}

#[test]
fn invalid_flags_are_rejected_with_a_hint() {
    let scratch = Scratch::new("bad-cloud");
    let garbage = format!("--snapshot={}", scratch.file("garbage", "{").display());
    refused(&["cloud", "--listen=127.0.0.1:0", &garbage], 2, &["--snapshot", "garbage"]);
    refused(&["cloud", "--listen=0.0.0.0:7480"], 2, &["--listen", "expected a loopback address"]);
    refused(&["cloud", "--latency=fast"], 2, &["--latency", "such as 300ms"]);
    refused(&["cloud", "--page-size=0"], 2, &["--page-size"]);
    refused(&["cloud", "fault", "sunk"], 2, &["sunk", "failing=STATUS"]);
    refused(&["cloud", "add", "a", "--address=10.0.0.1"], 2, &["InternalIP=10.0.0.1"]);
    refused(&["cloud", "add", "a", "--pod-range=10.0.0.1"], 2, &["--pod-range", "expected a CIDR"]);
    refused(&["cloud", "add-route", "10.244.1.7/24", "one"], 2, &["host bits are set; use 10.244.1.0/24"]);
    refused(&["cloud", "add-route", "10.244.1.0/24", "one", "--cluster="], 2, &["--cluster", "must not be empty"]);
    refused(&["cloud", "--max-routes=0"], 2, &["--max-routes"]);
    refused(&["cloud", "list", "--endpoint=ftp://example"], 2, &["--endpoint", "http://"]);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    refused(&["cloud", "--listen", &address], 1, &[&address]);
    drop(taken);
    let gone = format!("--endpoint=http://{address}");
    refused(&["cloud", "list", &gone], 1, &[&address, "is `bowline cloud` running there?"]);
}

#[test]
fn changes_need_the_owner_token() {
    let scratch = Scratch::new("owner");
    let path = scratch.path("token");
    let flag = format!("--owner-token-file={}", path.display());
    let mut cloud = Cloud::start(&[&flag]);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    cloud.refuses("add worker-1", &["the owner's token is required"]);
    assert_eq!(cloud.run("list").lines().count(), 1, "reads need no token: the header of an empty table");
    assert_eq!(cloud.run(&format!("add worker-1 --id=one {flag}")), "one\n");
    let wrong = scratch.file("wrong", "Authorization: Bearer wrong\n");
    cloud.refuses(&format!("delete one --owner-token-file={}", wrong.display()), &["the owner's token is required"]);
    cloud.run(&format!("delete one {flag}"));
    assert!(cloud.program.stop("-TERM").success());
    assert!(!path.exists(), "the token file is deleted with the cloud");
}

#[test]
fn several_machines_and_all_routes_are_changed_at_once() {
    let cloud = Cloud::start(&[]);
    for name in ["a", "b", "c"] {
        cloud.run(&format!("add {name} --id={name}"));
    }
    cloud.run("stop a b");
    assert_eq!(cloud.run("list").matches("stopped").count(), 2);
    cloud.run("add-route 10.1.0.0/24 a --cluster=c1");
    cloud.run("add-route 10.2.0.0/24 b --cluster=c1");
    cloud.run("add-route 10.3.0.0/24 b --cluster=c2");
    cloud.run("delete-route --all --cluster=c1");
    assert!(!cloud.run("routes").contains("c1") && cloud.run("routes").contains("10.3.0.0/24"));
    cloud.run("delete a c");
    let mut list = std::process::Command::new(crate::support::BOWLINE);
    let list = list.args(["cloud", "list"]).env("BOWLINE_CLOUD_ENDPOINT", &cloud.endpoint).output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    assert!(list.lines().count() == 2 && list.contains('b'), "the environment names the cloud: {list}");
    let endpoint = format!("--endpoint={}", cloud.endpoint);
    refused(&["cloud", "delete-route", "--all", "rt-1", &endpoint], 2, &["--all"]);
    refused(&["cloud", "delete-route", &endpoint], 2, &["required"]);
}
