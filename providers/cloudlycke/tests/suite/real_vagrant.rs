//! Compares the provider with Vagrant itself, and with the parser `python-vagrant`, on the same files and the same stand-in for
//! `VBoxManage`. `tests/vagrant/run` installs both. Slow: each start of Vagrant takes seconds.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use bowline_cloud::CloudProvider;

use crate::host::{Host, Vm, by_id, by_name, examples, look_up, skip};

/// States in which the machines of the comparison are.
const STATES: [&str; 6] = ["running", "poweroff", "saved", "aborted", "gurumeditation", "paused"];

/// Name of the machine in a state.
fn name(state: &str) -> String {
    format!("{state}-machine")
}

/// Returns whether a command works; reports that the test is skipped otherwise.
fn is_installed(command: &mut Command, what: &str) -> bool {
    let works = command.output().is_ok_and(|output| output.status.success());
    if !works {
        skip(&format!("no {what}"));
    }
    works
}

fn has_vagrant() -> bool {
    is_installed(Command::new("vagrant").arg("--version"), "vagrant")
}

fn has_python_vagrant() -> bool {
    is_installed(Command::new("python3").args(["-c", "import vagrant"]), "python-vagrant")
}

/// A host with one machine in each state, one that is in the index and not created, and one that is only in the Vagrantfile.
fn host() -> Host {
    let host = Host::new();
    for state in STATES {
        let vm = host.add(&name(state));
        host.set_state(&vm, state);
        if state == "paused" {
            host.write_address(&vm, &vm.ip);
        }
        complete(&host, &vm);
    }
    fs::remove_file(host.id_path(&host.add("forgotten-machine"))).unwrap();
    let names: Vec<_> =
        STATES.into_iter().map(name).chain(["forgotten-machine".into(), "new-machine".into()]).collect();
    let defined: String = names.iter().map(|name| format!("  config.vm.define {name:?}\n")).collect();
    let text = format!("Vagrant.configure(\"2\") do |config|\n  config.vm.box = \"ubuntu/jammy64\"\n{defined}end\n");
    fs::write(host.path("project/Vagrantfile"), text).unwrap();
    host
}

/// Writes the other files that Vagrant expects for a machine that it has created.
fn complete(host: &Host, vm: &Vm) {
    let folder = host.id_path(vm);
    fs::write(folder.with_file_name("index_uuid"), &vm.key).unwrap();
    let user = Command::new("id").arg("-u").output().unwrap().stdout;
    fs::write(folder.with_file_name("creator_uid"), String::from_utf8(user).unwrap().trim()).unwrap();
}

/// Runs a command in the project, with the stand-in first in `PATH`.
fn run(host: &Host, program: &str, arguments: &[&str]) -> Output {
    let path = format!("{}:{}", host.path("bin").display(), std::env::var("PATH").unwrap());
    let mut command = Command::new(program);
    command.args(arguments).current_dir(host.path("project")).env("PATH", path).env("HOME", &host.folder.0);
    command.env("VAGRANT_HOME", host.path("home")).env("VAGRANT_CHECKPOINT_DISABLE", "1").output().unwrap()
}

/// Returns the states by name, as the provider reports them for `bowline check`.
async fn our_states(host: &Host) -> BTreeMap<String, String> {
    let checks = host.provider("").diagnose().await;
    let machines = checks.iter().filter_map(|check| Some((check.subject.strip_prefix("machine ")?, &check.outcome)));
    let word = |outcome: &bowline_cloud::Result<String>| match outcome {
        Ok(text) => text.split(',').next().unwrap().to_owned(),
        Err(error) if error.to_string().contains("not created") => "not_created".to_owned(),
        Err(error) => error.to_string(),
    };
    machines.map(|(name, outcome)| (name.to_owned(), word(outcome))).collect()
}

/// Returns the expected states by name.
fn expected() -> BTreeMap<String, String> {
    let created = STATES.map(|state| (name(state), state.to_owned()));
    created.into_iter().chain([("forgotten-machine".to_owned(), "not_created".to_owned())]).collect()
}

// CL-7, CL-32: the same names and states as Vagrant.
#[tokio::test]
async fn vagrant_reports_the_same_states() {
    if !has_vagrant() {
        return;
    }
    let host = host();
    let ours = our_states(&host).await;
    assert_eq!(ours, expected());
    assert_eq!(look_up(&host.provider(""), &by_name("new-machine")).await, "gone", "not in the index");
    let output = run(&host, "vagrant", &["status", "--machine-readable"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let fields = text.lines().map(|line| line.splitn(4, ',').collect::<Vec<_>>());
    let states = fields.filter(|fields| fields.get(2) == Some(&"state"));
    let mut theirs: BTreeMap<_, _> = states.map(|fields| (fields[1].to_owned(), fields[3].to_owned())).collect();
    assert_eq!(theirs.remove("new-machine").as_deref(), Some("not_created"), "{text}");
    assert_eq!(theirs, ours, "{text}");
}

// CL-32: an independent parser of Vagrant's output.
#[tokio::test]
async fn python_vagrant_reports_the_same_states() {
    if !has_vagrant() || !has_python_vagrant() {
        return;
    }
    let host = host();
    let ours = our_states(&host).await;
    let script = "import vagrant\nfor s in vagrant.Vagrant(root='.').status(): print(s.name, s.state, s.provider)";
    let output = run(&host, "python3", &["-c", script]);
    let text = String::from_utf8(output.stdout).unwrap();
    let words = text.lines().map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    let theirs: BTreeMap<_, _> = words.map(|words| (words[0].clone(), (words[1].clone(), words[2].clone()))).collect();
    let with_provider = |state: &str| (state.to_owned(), "virtualbox".to_owned());
    let mut expected: BTreeMap<_, _> = ours.iter().map(|(name, state)| (name.clone(), with_provider(state))).collect();
    expected.insert("new-machine".to_owned(), with_provider("not_created"));
    assert_eq!(theirs, expected, "{text} {}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn vagrant_accepts_the_example() {
    if !has_vagrant() {
        return;
    }
    let host = Host::new();
    fs::copy(examples().join("Vagrantfile"), host.path("project/Vagrantfile")).unwrap();
    let output = run(&host, "vagrant", &["validate"]);
    assert!(output.status.success(), "{output:?}");
    let text = run(&host, "vagrant", &["status", "--machine-readable"]).stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(
        ["master-c1-1", "node-c1-1"].iter().all(|name| text.contains(&format!(",{name},state,not_created"))),
        "{text}"
    );
}

/// Contents of all files below a folder.
fn snapshot(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(snapshot(&path));
        } else {
            files.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    files
}

fn snapshots(host: &Host) -> [BTreeMap<PathBuf, Vec<u8>>; 2] {
    [snapshot(&host.path("home")), snapshot(&host.path("project"))]
}

/// Reads all machines in every way.
async fn read_everything(host: &Host) {
    let provider = host.provider("");
    provider.diagnose().await;
    for vm in ["running", "poweroff"].map(|state| host.vm(&name(state))) {
        look_up(&provider, &by_name(&vm.name)).await;
        look_up(&provider, &by_id(&format!("cloudlycke://{}", vm.key))).await;
    }
}

// CL-8: reading changes nothing, even if VirtualBox does not know a machine, or knows none. Vagrant erases its records then.
#[tokio::test]
async fn reading_changes_no_file_where_vagrant_erases_the_records() {
    let host = host();
    let vm = host.vm(&name("running"));
    let before = snapshots(&host);
    read_everything(&host).await;
    host.forget(&vm);
    read_everything(&host).await;
    for fault in ["empty", "broken", "denied", "garbled", ""] {
        host.fault(fault);
        read_everything(&host).await;
    }
    assert!(snapshots(&host) == before, "a file has changed");
    if !has_vagrant() {
        return;
    }
    run(&host, "vagrant", &["status", &vm.key, "--machine-readable"]);
    let index = fs::read_to_string(host.index()).unwrap();
    assert!(!index.contains(&vm.key) && !host.id_path(&vm).exists(), "the reason why Vagrant is never started");
}
