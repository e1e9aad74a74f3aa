//! Machines of a YAML file (CL-47 to CL-50).

use std::fs;

use bowline_cloud::CloudProvider;

use crate::host::{Folder, by_id, by_name, examples, look_up, provider};

const MACHINES: &str = "\
machines:
- name: node-c2-1
  addresses: [192.168.20.11]
  memoryMiB: 1024
  cpus: 2
- name: big
  id: host-7
  addresses: [10.0.0.7, 10.0.0.8, fd00::7]
  externalAddresses: [203.0.113.7]
  instanceType: rack.large
  zone: rack-7
  region: lab
  labels: {disk: ssd}
- name: off
  state: poweroff
";

async fn answer(text: &str, asked: &str, more: &str) -> String {
    let folder = Folder::new();
    let file = folder.0.join("machines.yaml");
    fs::write(&file, text).unwrap();
    let provider = provider(&format!("backend: inventory\ninventoryFile: {}\n{more}", file.display()));
    assert_eq!(provider.files(), [file]);
    let asked = if asked.contains("://") { by_id(asked) } else { by_name(asked) };
    look_up(&provider, &asked).await
}

// CL-47
#[tokio::test]
async fn machines_have_what_the_file_says() {
    let cases = [
        (
            "node-c2-1",
            "running node-c2-1 cloudlycke://n-c2-1 vbox.vm.1g.2cpu InternalIP=192.168.20.11 ExternalIP=192.168.20.11 Hostname=node-c2-1",
        ),
        (
            "cloudlycke://host-7",
            "running big cloudlycke://host-7 rack.large InternalIP=10.0.0.7 InternalIP=fd00::7 ExternalIP=203.0.113.7 Hostname=big",
        ),
        ("cloudlycke://off", "stopped off cloudlycke://off "),
        ("cloudlycke://other", "gone"),
        ("other", "gone"),
        ("aws://i-1", "not mine"),
    ];
    for (asked, expected) in cases {
        assert_eq!(answer(MACHINES, asked, "").await, expected);
    }
    let expected = "running big cloudlycke://host-7 rack.large InternalIP=10.0.0.8 ExternalIP=203.0.113.7 Hostname=big";
    assert_eq!(answer(MACHINES, "big", "nodeNetwork: 10.0.0.8/32\n").await, expected);
}

// CL-48, CL-49
#[tokio::test]
async fn an_invalid_file_is_an_error_with_its_line() {
    let cases = [
        ("", "machines: the key is missing"),
        ("machines: []\n", "lists no machine at all"),
        ("machines:\n- {name: a, ip: 10.0.0.1}\n", "machines.yaml:2: ip: unknown key"),
        ("machines:\n- {name: a, addresses: [10.0.0]}\n", "machines.yaml:2"),
        ("machines:\n- {name: a, id: x}\n- {name: b, id: x}\n", "machine \"b\": another machine has the same id"),
        ("machines:\n- {name: a, id: \"cloudlycke://x\"}\n", "without blanks and /"),
        ("machines:\n- {name: a, cpus: 2}\n", "write cpus and memoryMiB"),
        ("machines:\n- {name: a, state: on}\n- {name: b}\n", "the state \"on\" is neither known as on nor as off"),
    ];
    for (text, expected) in cases {
        let answer = answer(text, "a", "").await;
        assert!(answer.starts_with("unexpected") && answer.contains(expected), "{text}: {answer}");
    }
}

// CL-50
#[tokio::test]
async fn a_missing_file_is_an_error_at_the_start() {
    let provider = provider("backend: inventory\ninventoryFile: /nonexistent/machines.yaml\n");
    assert!(provider.start().await.unwrap_err().to_string().contains("/nonexistent/machines.yaml"));
}

// CL-47: the examples are valid.
#[tokio::test]
async fn the_example_files_are_valid() {
    let machines = examples().join("inventory.yaml");
    let config = fs::read_to_string(examples().join("inventory.conf")).unwrap();
    let provider = provider(&config.replace("examples/cloudlycke/inventory.yaml", &machines.display().to_string()));
    assert_eq!(provider.files(), [machines]);
    let answer = look_up(&provider, &by_id("cloudlycke://n-c1-1")).await;
    assert!(
        answer.starts_with("running node-c1-1 cloudlycke://n-c1-1 vbox.vm.2g.2cpu InternalIP=192.168.56.11"),
        "{answer}"
    );
    assert!(
        look_up(&provider, &by_name("rack-7"))
            .await
            .contains("cloudlycke://host-7 rack.large InternalIP=10.0.0.7 InternalIP=fd00::7")
    );
    crate::host::provider(&fs::read_to_string(examples().join("vagrant.conf")).unwrap());
}
