//! Number of processes, caching and limits of commands (CL-9 to CL-12).

use std::time::{Duration, Instant};

use bowline_cloud::{ErrorKind, Instances};
use bowline_core::InstanceRef;
use futures::future::join_all;

use crate::host::{Host, by_id, by_name, find, look_up, text};

fn names(count: usize) -> Vec<String> {
    (1..=count).map(|number| format!("node-{number}")).collect()
}

fn host(count: usize) -> Host {
    Host::with(&names(count).iter().map(String::as_str).collect::<Vec<_>>())
}

fn refs(count: usize) -> Vec<InstanceRef> {
    names(count).iter().map(|name| by_name(name)).collect()
}

// CL-9
#[tokio::test]
async fn twenty_machines_take_two_processes_once_they_are_known() {
    let (host, refs) = (host(20), refs(20));
    let provider = host.provider("");
    assert!(
        provider.find(&refs).await.iter().all(|found| found.as_ref().is_ok_and(|state| state.instance().is_some()))
    );
    let first = host.calls();
    assert_eq!(first[..2], ["list vms", "list runningvms"]);
    let count = |calls: &[String], word: &str| calls.iter().filter(|call| call.starts_with(word)).count();
    assert_eq!((first.len(), count(&first, "showvminfo "), count(&first, "guestproperty enumerate ")), (42, 20, 20));
    provider.find(&refs).await;
    assert_eq!(host.calls(), ["list vms", "list runningvms"]);
}

// CL-10
#[tokio::test]
async fn details_are_read_again_when_a_machine_is_switched_on_or_off_or_in_between() {
    let (host, refs) = (host(3), refs(3));
    let provider = host.provider("");
    provider.find(&refs).await;
    host.calls();
    let vm = host.vm("node-2");
    host.set_state(&vm, "poweroff");
    assert!(look_up(&provider, &refs[1]).await.starts_with("stopped node-2"));
    let info = format!("showvminfo {} --machinereadable", vm.uuid);
    assert_eq!(host.calls(), ["list vms", "list runningvms", info.as_str()]);
    host.set_state(&vm, "running");
    look_up(&provider, &refs[1]).await;
    host.set_state(&vm, "stopping");
    host.calls();
    for _ in 0..2 {
        assert!(look_up(&provider, &refs[1]).await.starts_with("running node-2"));
        assert_eq!(host.calls(), ["list vms", "list runningvms", info.as_str()]);
    }
    host.set_state(&vm, "running");
    host.calls();
    assert!(look_up(&provider, &refs[1]).await.contains(&vm.ip));
    assert_eq!(host.calls().len(), 4);
    look_up(&provider, &refs[1]).await;
    assert_eq!(host.calls().len(), 2);
}

#[tokio::test]
async fn a_machine_without_addresses_is_read_again_until_it_has_one() {
    let host = host(2);
    let (provider, vm) = (host.provider(""), host.vm("node-1"));
    host.write_address(&vm, "192.168.56.1");
    for _ in 0..2 {
        let answer = look_up(&provider, &by_name("node-1")).await;
        assert!(answer.starts_with("unavailable") && answer.contains("guest additions"), "{answer}");
    }
    host.write_address(&vm, &vm.ip);
    assert!(look_up(&provider, &by_name("node-1")).await.contains(&vm.ip));
}

// CL-11
#[tokio::test]
async fn a_read_is_used_for_a_while_but_never_for_a_machine_that_is_gone() {
    let (host, refs) = (host(3), refs(3));
    let provider = host.provider("cacheSeconds: 30\n");
    provider.find(&refs).await;
    host.calls();
    provider.find(&refs).await;
    assert_eq!(host.calls(), [""; 0]);
    host.destroy(&host.vm("node-2"));
    assert_eq!(look_up(&provider, &by_name("nowhere")).await, "gone");
    assert_eq!(host.calls().len(), 2);
    // That read showed that node-2 is gone, too. Its absence is read again all the same.
    assert_eq!(look_up(&provider, &refs[1]).await, "gone");
    assert_eq!(host.calls().len(), 2);
    host.add("node-4");
    assert!(look_up(&provider, &by_name("node-4")).await.starts_with("running"), "a new machine is found at once");
}

// CL-11
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_lookups_share_a_read() {
    let (host, refs) = (host(5), refs(5));
    let provider = host.provider("");
    provider.find(&refs).await;
    host.calls();
    host.fault("slow 0.1");
    let lookups = (0..20).map(|number| look_up(&provider, &refs[number % 5]));
    assert!(join_all(lookups).await.iter().all(|answer| answer.starts_with("running")));
    assert!(host.calls().len() <= 4, "the first lookup reads, and all others share the next read");
}

// CL-12
#[tokio::test]
async fn a_command_that_hangs_is_stopped() {
    let host = host(1);
    host.fault("hang");
    for (timeout, seconds) in [("300ms", "0.3"), ("3s", "3"), ("10s", "10")] {
        let provider = host.provider(&format!("commandTimeout: {timeout}\n"));
        let error = find(&provider, &by_name("node-1")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let expected = format!("VBoxManage list vms: no answer within {seconds} s");
        assert!(error.to_string().contains(&expected), "{error}");
        // On a busy machine, the command may have been stopped before it wrote its process ID.
        let pid = std::fs::read_to_string(host.path("bin/pid")).unwrap_or_default();
        if !pid.trim().is_empty() {
            return ends(pid.trim()).await;
        }
    }
    panic!("the command did not start");
}

/// Waits until a process does not exist.
async fn ends(pid: &str) {
    let begun = Instant::now();
    while std::path::Path::new(&format!("/proc/{pid}")).exists() {
        assert!(begun.elapsed() < Duration::from_secs(20), "the process {pid} still runs");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

// CL-12
#[tokio::test]
async fn endless_output_is_an_error() {
    let host = host(1);
    let provider = host.provider("");
    host.fault("flood");
    let error = find(&provider, &by_name("node-1")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unexpected);
    assert!(error.to_string().contains("its output is larger than 4 MiB"), "{error}");
}

// CL-12: no text of a Node becomes an argument.
#[tokio::test]
async fn only_fixed_subcommands_and_uuids_are_arguments() {
    let host = host(1);
    let provider = host.provider("");
    let hostile = ["--help", "$(reboot)", "`id`", "x; rm -rf /", "startvm", "unregistervm --delete"];
    for text in hostile {
        look_up(&provider, &by_name(text)).await;
        look_up(&provider, &by_id(&format!("cloudlycke://{text}"))).await;
    }
    // The id file is the user's own, and it is validated all the same.
    let vm = host.vm("node-1");
    std::fs::write(host.id_path(&vm), "--help\n").unwrap();
    let answer = look_up(&provider, &by_name("node-1")).await;
    assert!(answer.contains("does not contain a valid ID"), "{answer}");
    let uuid = &vm.uuid;
    let allowed = [
        "list vms".to_owned(),
        "list runningvms".to_owned(),
        format!("showvminfo {uuid} --machinereadable"),
        format!("guestproperty enumerate {uuid}"),
    ];
    let calls = host.calls();
    assert!(calls.iter().all(|call| allowed.contains(call)), "{calls:?}");
}

#[tokio::test]
async fn one_broken_machine_does_not_affect_others() {
    let host = host(3);
    let provider = host.provider("");
    host.fault(&format!("show {}", host.vm("node-2").uuid));
    let found = provider.find(&refs(3)).await;
    let words: Vec<_> =
        found.iter().map(|one| one.as_ref().map_or_else(|error| error.kind().as_str().to_owned(), text)).collect();
    assert!(words[0].starts_with("running") && words[2].starts_with("running"), "{words:?}");
    assert_eq!(words[1], "permission_denied");
}
