//! Failures of the host are errors and never "gone" (CL-2 to CL-5, CL-8).

use std::fs;
use std::time::Duration;

use crate::host::{Host, by_id, by_name, look_up, provider};

/// Verifies that neither an existing nor a missing machine is gone or found.
async fn verify_error(host: &Host, kind: &str, part: &str) {
    let provider = host.provider("commandTimeout: 2s\n");
    for asked in [by_name("a"), by_name("nowhere"), by_id("cloudlycke://nowhere")] {
        let answer = look_up(&provider, &asked).await;
        assert!(answer.starts_with(kind) && answer.contains(part), "{answer}");
    }
}

// CL-2
#[tokio::test]
async fn a_missing_home_is_an_error() {
    let host = Host::with(&["a"]);
    fs::rename(host.path("home"), host.path("elsewhere")).unwrap();
    verify_error(&host, "unavailable", "is not a Vagrant home").await;
    // The empty mount point of a volume.
    fs::create_dir(host.path("home")).unwrap();
    verify_error(&host, "unavailable", "is not a Vagrant home").await;
}

// CL-2
#[tokio::test]
async fn a_home_without_an_index_has_no_machines_until_it_had_one() {
    let host = Host::with(&["a"]);
    let (index, aside) = (host.index(), host.path("aside"));
    fs::rename(&index, &aside).unwrap();
    let provider = host.provider("");
    assert_eq!(look_up(&provider, &by_name("a")).await, "gone");
    fs::rename(&aside, &index).unwrap();
    assert!(look_up(&provider, &by_name("a")).await.starts_with("running"));
    fs::remove_file(&index).unwrap();
    let answer = look_up(&provider, &by_name("a")).await;
    assert!(answer.contains("has disappeared"), "{answer}");
}

// CL-4, CL-5
#[tokio::test]
async fn a_corrupt_index_is_an_error() {
    let host = Host::with(&["a"]);
    let good = fs::read_to_string(host.index()).unwrap();
    for text in ["", "{}", &good.replace("\"version\":1", "\"version\":2"), &good[..good.len() - 7]] {
        fs::write(host.index(), text).unwrap();
        verify_error(&host, "unexpected", "corrupt").await;
    }
}

// CL-5: Vagrant rewrites the file in place.
#[tokio::test(flavor = "multi_thread")]
async fn a_half_written_index_is_read_again() {
    let host = Host::with(&["a"]);
    let (provider, index) = (host.provider(""), host.index());
    let good = fs::read_to_string(&index).unwrap();
    // The reader gives up after half a second. On a busy machine, the writer may take longer.
    let mut answer = String::new();
    for _ in 0..20 {
        fs::write(&index, &good[..40]).unwrap();
        let (index, good) = (index.clone(), good.clone());
        let writer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            fs::write(index, good).unwrap();
        });
        answer = look_up(&provider, &by_name("a")).await;
        writer.join().unwrap();
        if answer.starts_with("running") {
            return;
        }
    }
    panic!("{answer}");
}

// CL-5: `vagrant up` holds the lock for a moment; one that holds it for long does not stop the manager.
#[tokio::test(flavor = "multi_thread")]
async fn a_locked_index_is_read() {
    let host = Host::with(&["a"]);
    let lock = fs::File::create(host.path("home/data/machine-index/index.lock")).unwrap();
    lock.lock().unwrap();
    assert!(look_up(&host.provider(""), &by_name("a")).await.starts_with("running"));
}

// CL-8
#[tokio::test]
async fn virtualbox_that_knows_no_machine_at_all_is_an_error() {
    let host = Host::with(&["a", "b"]);
    host.fault("empty");
    verify_error(&host, "unexpected", "lists no machine at all, and 2 of Vagrant's machines have an ID").await;
}

#[tokio::test]
async fn failing_commands_are_errors_with_command_code_and_first_line() {
    let host = Host::with(&["a"]);
    host.fault("broken");
    verify_error(
        &host,
        "unavailable",
        "VBoxManage list vms: exit code 1: VBoxManage: error: Failed to create the VirtualBox object!; fix: ",
    )
    .await;
    host.fault("denied");
    verify_error(&host, "permission_denied", "fix: run Bowline as the user that owns the machines").await;
    host.fault("garbled");
    verify_error(&host, "unexpected", "is not \"NAME\" {UUID}").await;
}

#[tokio::test]
async fn a_missing_command_is_an_error() {
    let host = Host::with(&["a"]);
    let home = host.path("home");
    let provider = provider(&format!(
        "backend: vagrant\nvagrantHome: {}\nvboxmanageCommand: /nonexistent/VBoxManage\n",
        home.display()
    ));
    let answer = look_up(&provider, &by_name("a")).await;
    assert!(answer.starts_with("invalid_config") && answer.contains("set vboxmanageCommand to its path"), "{answer}");
}
