//! VMware's own Python library, pyvmomi, as the judge of the simulator.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use bowline_vsphere_simulator::vcenter::{Machine, Nic, Options, PASSWORD, USER, Vcenter};

/// Exit status of the script if pyvmomi cannot be installed.
const SKIPPED: i32 = 77;

/// Inventory that the script expects.
fn inventory() -> Vcenter {
    let vcenter = Vcenter::new(Options::default());
    let nic = |network: &str, addresses: &[&str]| Nic { network: network.to_owned(), ..Nic::with(addresses) };
    let on = |name: &str, host_name: &str, host: &str| Machine {
        name: name.to_owned(),
        host_name: host_name.to_owned(),
        host: host.to_owned(),
        ..Machine::default()
    };
    let metadata = [("guestinfo.metadata", "bWV0YQ=="), ("guestinfo.metadata.encoding", "base64")];
    let datacenter = vcenter.find("Datacenter", "DC1").unwrap();
    let nodes = vcenter.find_below(&datacenter, "Folder", "nodes").unwrap();
    let root_pool = vcenter.find("ResourcePool", "Resources").unwrap();
    let vapp = vcenter.add_vapp(&root_pool, "app");
    let machines = [
        Machine {
            uuid: "422e4956-ad22-1139-6d72-59cc8f26bc90".to_owned(),
            memory_mb: 2048,
            nics: vec![
                nic("internal_net", &["10.10.1.11", "fd00:cccc::11", "fe80::250:56ff:fe00:1"]),
                nic("external_net", &["172.15.108.11", "fd00:dddd::11"]),
            ],
            ..on("vm-1", "node-1", "DC0_C0_H0")
        },
        Machine {
            nics: vec![Nic { device: -1, ..nic("", &["10.244.0.1"]) }, nic("internal_net", &["10.10.1.22"])],
            ..on("vm-2", "node-2", "DC0_C0_H1")
        },
        Machine {
            extra_config: metadata.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            ..on("vm-3", "node-3", "DC0_C1_H0")
        },
        Machine { power: "poweredOff".to_owned(), ..on("vm-4", "", "DC0_C1_H1") },
        Machine { folder: Some(nodes.id), ..on("vm-5", "node-5.example.com", "DC1_C0_H0") },
        Machine { power: "suspended".to_owned(), ..on("vm-6", "twin", "DC1_C0_H1") },
        on("vm-7", "NODE-7", "DC1_C1_H0"),
        Machine { vapp: Some(vapp.id), ..on("vm-8", "twin", "DC0_C0_H0") },
        Machine { template: true, power: "poweredOff".to_owned(), ..on("template", "", "DC0_C0_H0") },
        Machine { connection: "inaccessible".to_owned(), ..on("lost", "", "DC1_C1_H1") },
    ];
    assert!(machines.into_iter().all(|machine| vcenter.add_machine(machine).is_some()));
    vcenter
}

/// Reports a skipped test, bypassing the capture of the test runner, in the format that the CI gate counts.
fn skip(why: &str) {
    std::io::stderr().write_all(format!("\nSKIPPED: {why}\n1 skipped\n").as_bytes()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_library_of_vmware_accepts_the_answers() {
    let server = inventory().serve("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/judge/run");
    let mut command = Command::new(script);
    command.args([&server.url(), USER, PASSWORD]);
    let output = match tokio::task::spawn_blocking(move || command.output()).await.unwrap() {
        Ok(output) => output,
        Err(error) => return skip(&format!("no pyvmomi: {error}")),
    };
    let (report, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.code() == Some(SKIPPED) {
        return skip(&format!("no pyvmomi: {}", errors.lines().last().unwrap_or_default()));
    }
    assert!(output.status.success(), "{report}{errors}");
    assert!(report.lines().last().unwrap_or_default().ends_with("checks passed, 0 failed"), "{report}{errors}");
}
