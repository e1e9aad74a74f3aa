//! Machines of libvirt, on the test driver of libvirt itself: `virsh -c test:///FILE` reads a host from a file (CL-51 to CL-53).

use std::fs;
use std::process::Command;

use bowline_cloud::CloudProvider;

use crate::host::{Folder, Host, by_id, by_name, look_up, provider, skip};

const ON: &str = "6695eb01-f6a4-8304-79aa-97f2502e1931";
const OFF: &str = "6695eb01-f6a4-8304-79aa-97f2502e1932";

/// A domain with a run state: 1 is running, 3 is paused, 5 is off.
fn domain(name: &str, uuid: &str, state: u32) -> String {
    format!(
        "<domain type='test' xmlns:test='http://libvirt.org/schemas/domain/test/1.0'><name>{name}</name><uuid>{uuid}</uuid>\
         <memory>1048576</memory><vcpu>2</vcpu><os><type>hvm</type></os>\
         <devices><interface type='network'><mac address='aa:bb:cc:dd:ee:f{state}'/><source network='default'/></interface></devices>\
         <test:runstate>{state}</test:runstate></domain>"
    )
}

/// Returns the configuration for a libvirt host; `None` without virsh.
fn host(folder: &Folder, domains: &[String]) -> Option<String> {
    if !Command::new("virsh").arg("--version").output().is_ok_and(|output| output.status.success()) {
        skip("no virsh");
        return None;
    }
    let network = "<network><name>default</name><bridge name='virbr0'/><ip address='192.168.122.1' netmask='255.255.255.0'>\
                   <dhcp><range start='192.168.122.128' end='192.168.122.253'/></dhcp></ip></network>";
    let file = folder.0.join("host.xml");
    fs::write(&file, format!("<node>{}{network}</node>", domains.concat())).unwrap();
    Some(format!("backend: libvirt\nlibvirtUri: test://{}\ncacheSeconds: 0\n", file.display()))
}

#[tokio::test]
async fn domains_of_libvirt_are_machines() {
    let folder = Folder::new();
    let domains = [domain("node-c2-1", ON, 1), domain("off", OFF, 5), domain("asleep", &ON.replace("31", "33"), 3)];
    let Some(config) = host(&folder, &domains) else { return };
    let provider = provider(&config);
    let answer = look_up(&provider, &by_name("node-c2-1")).await;
    assert!(
        answer.starts_with("running node-c2-1 cloudlycke://n-c2-1 libvirt.vm.1g.2cpu InternalIP=192.168.122."),
        "{answer}"
    );
    assert_eq!(
        look_up(&provider, &by_id(&format!("cloudlycke://{ON}"))).await,
        answer.replace("n-c2-1 lib", &format!("{ON} lib"))
    );
    assert_eq!(look_up(&provider, &by_name("off")).await, format!("stopped off cloudlycke://{OFF} libvirt.vm.1g.2cpu"));
    assert!(look_up(&provider, &by_name("asleep")).await.starts_with("running asleep"));
    assert_eq!(look_up(&provider, &by_name("nowhere")).await, "gone");
    let checks = provider.diagnose().await;
    assert!(checks.iter().all(|check| check.outcome.is_ok()), "{checks:?}");
}

#[tokio::test]
async fn a_host_without_domains_or_without_a_daemon_is_an_error() {
    let folder = Folder::new();
    let Some(config) = host(&folder, &[]) else { return };
    let answer = look_up(&provider(&config), &by_name("a")).await;
    assert!(answer.starts_with("unexpected") && answer.contains("lists no machine at all"), "{answer}");
    let config = config.replace("host.xml", "missing.xml");
    let answer = look_up(&provider(&config), &by_name("a")).await;
    assert!(answer.starts_with("unavailable") && answer.contains("virsh -q -c test:///"), "{answer}");
}

// CL-51: machines of vagrant-libvirt have a key in the index and the UUID of their domain in the id file.
#[tokio::test]
async fn machines_of_vagrant_may_be_domains() {
    let folder = Folder::new();
    let Some(config) = host(&folder, &[domain("project_web", ON, 1), domain("project_db", OFF, 5)]) else { return };
    let vagrant = Host::new();
    for (name, uuid) in [("web", ON), ("db", OFF), ("lost", &OFF.replace("32", "39"))] {
        let vm = vagrant.add_in(name, &vagrant.path("project"), "libvirt");
        fs::write(vagrant.id_path(&vm), uuid).unwrap();
    }
    let provider =
        vagrant.provider(&config.replace("backend: libvirt\n", "provider: libvirt\n").replace("cacheSeconds: 0\n", ""));
    let key = vagrant.vm("web").key;
    let answer = look_up(&provider, &by_name("web")).await;
    assert!(
        answer.starts_with(&format!("running web cloudlycke://{key} libvirt.vm.1g.2cpu InternalIP=192.168.122.")),
        "{answer}"
    );
    assert!(look_up(&provider, &by_name("db")).await.starts_with("stopped db"));
    assert_eq!(look_up(&provider, &by_name("lost")).await, "gone", "virsh does not find the domain");
    assert_eq!(vagrant.calls(), [""; 0], "VBoxManage is not asked");
}
