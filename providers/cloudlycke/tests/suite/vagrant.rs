//! Machines of Vagrant: addresses, states and existence (CL-1 to CL-8, CL-23 to CL-34).

use bowline_cloud::{CloudProvider, KnownState};

use crate::host::{Host, by_id, by_name, find, look_up};

// CL-23 to CL-26
#[tokio::test]
async fn a_machine_has_type_zone_and_the_address_of_its_host_only_network() {
    let host = Host::with(&["node-c2-1"]);
    let vm = host.vm("node-c2-1");
    let ip = &vm.ip;
    let expected = format!(
        "running node-c2-1 cloudlycke://n-c2-1 vbox.vm.1g.2cpu InternalIP={ip} ExternalIP={ip} Hostname=node-c2-1"
    );
    assert_eq!(look_up(&host.provider(""), &by_name("node-c2-1")).await, expected);
    host.write_info(&vm, "running", 512, 1);
    assert!(look_up(&host.provider(""), &by_name("node-c2-1")).await.contains("vbox.vm.512mb.1cpu"));
    let answer = look_up(&host.provider("nodeNetwork: 10.0.2.0/24\n"), &by_name("node-c2-1")).await;
    assert!(answer.contains("has no address in 10.0.2.0/24"), "the NAT address is never used: {answer}");
}

// CL-32, CL-33
#[tokio::test]
async fn states_of_virtualbox_are_reported() {
    let host = Host::with(&["web", "db"]);
    let vm = host.vm("web");
    for (state, word) in [
        ("running", "running"),
        ("paused", "running"),
        ("starting", "running"),
        ("stopping", "running"),
        ("restoring", "running"),
        ("poweroff", "stopped"),
        ("aborted", "stopped"),
        ("saved", "stopped"),
        ("gurumeditation", "stopped"),
    ] {
        host.set_state(&vm, state);
        let answer = look_up(&host.provider(""), &by_name("web")).await;
        assert!(answer.starts_with(&format!("{word} web")), "{state}: {answer}");
    }
    for state in ["aborted-saved", "teleporting"] {
        host.set_state(&vm, state);
        let error = find(&host.provider(""), &by_name("web")).await.unwrap_err();
        assert_eq!(error.known_state(), Some(KnownState::Running), "{state}: the machine exists");
    }
}

// CL-34
#[tokio::test]
async fn an_inaccessible_machine_exists() {
    let host = Host::with(&["web", "db"]);
    std::fs::write(host.path("bin/vms").join(host.vm("web").uuid), "name=\"<inaccessible>\"\n").unwrap();
    assert!(look_up(&host.provider(""), &by_name("web")).await.starts_with("running web"));
}

// CL-6, CL-8
#[tokio::test]
async fn a_machine_is_gone_if_the_index_or_virtualbox_says_so() {
    let host = Host::with(&["a", "b", "c"]);
    let provider = host.provider("");
    let (a, b) = (host.vm("a"), host.vm("b"));
    let id = |key: &str| by_id(&format!("cloudlycke://{key}"));
    host.destroy(&a);
    assert_eq!(look_up(&provider, &id(&a.key)).await, "gone");
    host.forget(&b);
    host.calls();
    assert_eq!(look_up(&provider, &id(&b.key)).await, "gone");
    assert_eq!(
        host.calls()[2],
        format!("showvminfo {} --machinereadable", b.uuid),
        "VirtualBox was asked about this very machine"
    );
    assert!(look_up(&provider, &by_name("c")).await.starts_with("running"));
}

// CL-8
#[tokio::test]
async fn a_stopped_machine_that_virtualbox_forgets_is_gone_at_once() {
    let host = Host::with(&["a", "b"]);
    let (provider, vm) = (host.provider(""), host.vm("a"));
    host.set_state(&vm, "poweroff");
    assert!(look_up(&provider, &by_name("a")).await.starts_with("stopped a"));
    host.forget(&vm);
    assert_eq!(look_up(&provider, &by_name("a")).await, "gone");
}

// CL-7
#[tokio::test]
async fn a_machine_that_is_not_created_is_neither_gone_nor_found() {
    let host = Host::with(&["a", "b"]);
    let (provider, path) = (host.provider(""), host.id_path(&host.vm("a")));
    for text in [Some("\n"), None] {
        match text {
            Some(text) => std::fs::write(&path, text).unwrap(),
            None => std::fs::remove_file(&path).unwrap(),
        }
        let answer = look_up(&provider, &by_name("a")).await;
        assert!(answer.starts_with("unavailable") && answer.contains("not created"), "{answer}");
    }
    // Another project has a machine of this name that is created.
    host.add_in("a", &host.path("other"), "virtualbox");
    assert!(look_up(&provider, &by_name("a")).await.starts_with("running a"));
}

#[tokio::test]
async fn a_machine_of_another_provider_is_an_error_and_not_gone() {
    let host = Host::with(&["a"]);
    let other = host.add_in("b", &host.path("project"), "docker");
    let answer = look_up(&host.provider(""), &by_id(&format!("cloudlycke://{}", other.key))).await;
    assert!(answer.starts_with("invalid_config") && answer.contains("provider docker"), "{answer}");
}

// CL-14, CL-31
#[tokio::test]
async fn settings_of_a_machine_take_precedence() {
    let host = Host::with(&["a", "b"]);
    let more = "instances:\n  a: {addresses: [10.1.2.3], memoryMiB: 2048, cpus: 4}\n  c: {id: extra, addresses: [10.1.2.4], state: running}\n  d: {addresses: [10.1.2.5]}\n";
    let provider = host.provider(more);
    let key = host.vm("a").key;
    let expected =
        format!("running a cloudlycke://{key} vbox.vm.2g.4cpu InternalIP=10.1.2.3 ExternalIP=10.1.2.3 Hostname=a");
    assert_eq!(look_up(&provider, &by_name("a")).await, expected);
    let properties = format!("guestproperty enumerate {}", host.vm("a").uuid);
    assert!(!host.calls().contains(&properties), "its addresses are not read");
    let expected = "running c cloudlycke://extra  InternalIP=10.1.2.4 ExternalIP=10.1.2.4 Hostname=c";
    assert_eq!(look_up(&provider, &by_id("cloudlycke://extra")).await, expected);
    assert_eq!(look_up(&provider, &by_name("d")).await, "gone", "settings alone are no machine");
}

#[tokio::test]
async fn the_check_describes_every_machine() {
    let host = Host::with(&["a", "b", "c", "d"]);
    host.set_state(&host.vm("b"), "saved");
    std::fs::remove_file(host.id_path(&host.vm("c"))).unwrap();
    host.forget(&host.vm("d"));
    let checks = host.provider("").diagnose().await;
    let texts: Vec<_> = checks
        .iter()
        .map(|check| {
            format!("{}: {}", check.subject, check.outcome.as_ref().map_or_else(ToString::to_string, Clone::clone))
        })
        .collect();
    assert!(
        texts[0].starts_with("backend vagrant: index: ") && texts[0].ends_with("hypervisor: VirtualBox 7.0.20r163906"),
        "{texts:?}"
    );
    assert_eq!(texts[1], "machines: 4 machines are listed");
    assert!(
        texts[2].starts_with("machine a: running, cloudlycke://") && texts[2].contains("vbox.vm.1g.2cpu"),
        "{texts:?}"
    );
    assert!(texts[3].starts_with("machine b: saved, "), "{texts:?}");
    assert!(texts[4].contains("not created"), "{texts:?}");
    assert!(texts[5].contains("machine d: gone: "), "{texts:?}");
}

#[tokio::test]
async fn start_reports_the_backend() {
    let host = Host::with(&["a"]);
    let facts = host.provider("").start().await.unwrap();
    assert_eq!((facts.region.as_deref(), facts.cluster_id.as_deref()), (Some("virtualbox"), Some("kubernetes-2")));
    assert_eq!(facts.details["hypervisor"], "VirtualBox 7.0.20r163906");
}
