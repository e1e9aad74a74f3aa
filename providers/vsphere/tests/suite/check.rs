//! Start, health check and `bowline check`.

use std::time::Duration;

use bowline_cloud::{BuildInputs, CloudProvider as _, ErrorKind};
use bowline_config::ConfigFile;
use bowline_core::ClusterName;
use bowline_vsphere_simulator::vcenter::{Machine, Options, PASSWORD, USER};
use bowline_vsphere_simulator::{Fault, FaultSpec};

use tokio::time::Instant;

use crate::pair::{LABELS, Pair};

// ---- TLS settings

/// Upstream reads the file at each login, so only that vCenter fails.
#[tokio::test]
async fn vs_44_a_ca_file_that_cannot_be_used_is_an_error_of_its_vcenter_alone() {
    let empty = std::env::temp_dir().join(format!("bowline-vsphere-{}.pem", std::process::id()));
    std::fs::write(&empty, "no certificate").unwrap();
    let invalid = format!("invalid certificate '{}', cannot be used as a trusted CA certificate", empty.display());
    for (path, text) in [(empty.as_path(), invalid.as_str()), ("/no/such/file".as_ref(), "/no/such/file")] {
        let entry = |server| format!("[VirtualCenter \"{server}\"]\nuser = \"u\"\npassword = \"p\"\nport = 1\n");
        let config = format!("{}{}ca-file = \"{}\"\n", entry("127.0.0.1"), entry("127.0.0.2"), path.display());
        let (file, cluster) = (ConfigFile::from_text("vsphere.conf", config), ClusterName::from("kubernetes"));
        let built = (bowline_vsphere::factory().build)(&BuildInputs::default().context(Some(&file), &cluster));
        let results = built.map_err(|errors| errors.to_string()).unwrap().diagnose().await;
        let error =
            |subject| results.iter().find(|result| result.subject == subject).unwrap().outcome.clone().unwrap_err();
        let (good, bad) = (error("vCenter 127.0.0.1"), error("vCenter 127.0.0.2"));
        assert_eq!((good.kind(), bad.kind()), (ErrorKind::Unavailable, ErrorKind::InvalidConfig), "{good} {bad}");
        assert!(bad.message().contains(text) && bad.message().contains("caFile"), "{bad}");
    }
    std::fs::remove_file(empty).unwrap();
}

// ---- start

#[tokio::test(start_paused = true)]
async fn the_facts_name_the_product_of_each_vcenter() {
    let pair = Pair::new("");
    let facts = pair.provider.start().await.unwrap();
    assert_eq!(facts.cluster_id.as_deref(), Some("vsphere"));
    let products = &facts.details["vCenters"];
    assert!(products.contains("vc-1: VMware vCenter Server") && products.contains("; vc-2: "), "{products}");
    assert!(products.contains("(API 8.0.2.0)"), "{products}");
    assert_eq!(pair.provider.start().await.unwrap(), facts);
    assert_eq!(pair.count("Login"), [0, 0], "a standby starts as well");
}

/// VS-40
#[tokio::test(start_paused = true)]
async fn a_vcenter_that_fails_neither_prevents_nor_delays_the_start() {
    for fault in [Fault::Lost, Fault::Hanging, Fault::Answer(503, "busy".to_owned())] {
        let pair = Pair::new("");
        pair.vcenters[0].inject(FaultSpec::always(fault.clone()));
        let begun = Instant::now();
        let facts = pair.provider.start().await.unwrap();
        let products = &facts.details["vCenters"];
        assert!(products.starts_with("vc-2: "), "{fault:?}: {products}");
        assert!(begun.elapsed() <= Duration::from_secs(3), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_without_any_working_vcenter_names_the_error_of_each() {
    let pair = Pair::with(Options::default(), USER, "wrong", "");
    pair.provider.check().await.unwrap_err();
    let error = pair.provider.start().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated);
    let text = error.to_string();
    assert!(
        text.contains("vCenter vc-1: ") && text.contains("vCenter vc-2: ") && text.contains("no vCenter is ready"),
        "{text}"
    );
    assert!(!text.contains("wrong"), "{text}");
}

/// VS-39: an account is locked after five failed logins in three minutes.
#[tokio::test(start_paused = true)]
async fn rejected_credentials_are_not_sent_again_at_once() {
    let pair = Pair::with(Options::default(), USER, "wrong", "");
    for _ in 0..10 {
        assert!(pair.provider.check().await.is_err());
        assert!(pair.provider.start().await.is_err());
        pair.provider.diagnose().await;
    }
    assert_eq!(pair.count("Login"), [1, 1]);
}

// ---- health

#[tokio::test(start_paused = true)]
async fn the_check_names_the_vcenter_that_fails_and_that_the_other_is_ready() {
    let pair = Pair::new("");
    pair.provider.check().await.unwrap();
    let fault = pair.vcenters[1].inject(FaultSpec::always(Fault::Lost));
    let error = pair.provider.check().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = error.to_string();
    assert!(
        text.contains("vCenter vc-2: ") && !text.contains("vCenter vc-1: ") && text.contains("the other one is ready"),
        "{text}"
    );
    pair.vcenters[1].repair(fault);
    tokio::time::advance(Duration::from_secs(60)).await;
    pair.provider.check().await.unwrap();
    assert_eq!(pair.count("Login"), [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn the_check_fails_without_permissions_and_without_a_configured_datacenter() {
    let pair = Pair::new("");
    for vcenter in &pair.vcenters {
        let root = vcenter.root();
        vcenter.hide(&root, true);
    }
    let error = pair.provider.check().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    let pair = Pair::new("[VirtualCenter \"vc-2\"]\ndatacenters = \"DC0,DC9\"\n");
    let error = pair.provider.check().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    assert!(error.to_string().contains("datacenter 'DC9' not found"), "{error}");
}

// ---- bowline check

type Results = Vec<(String, Result<String, String>)>;

async fn diagnosed(pair: &Pair) -> Results {
    let results = pair.provider.diagnose().await.into_iter();
    results.map(|result| (result.subject, result.outcome.map_err(|error| error.to_string()))).collect()
}

fn outcome<'a>(results: &'a Results, subject: &str) -> &'a Result<String, String> {
    let found = results.iter().find(|(known, _)| known == subject);
    assert!(found.is_some(), "no result for {subject}: {results:?}");
    &found.unwrap().1
}

/// Asserts that this is the only failure, and that it contains the text.
fn assert_only_failure(results: &Results, subject: &str, text: &str) {
    let failed: Vec<_> = results.iter().filter(|(_, outcome)| outcome.is_err()).map(|(subject, _)| subject).collect();
    assert_eq!(failed, [subject], "{results:?}");
    let error = outcome(results, subject).as_ref().unwrap_err();
    assert!(error.contains(text), "{error}");
}

fn assert_contains(results: &Results, subject: &str, text: &str) {
    let found = outcome(results, subject).as_ref().unwrap();
    assert!(found.contains(text), "{found}");
}

#[tokio::test(start_paused = true)]
async fn working_vcenters_pass_every_check() {
    let pair = Pair::new(LABELS);
    let results = diagnosed(&pair).await;
    assert!(results.iter().all(|(_, outcome)| outcome.is_ok()), "{results:?}");
    let subjects = |name: &str| {
        [
            "vCenter",
            "login to vCenter",
            "datacenters in vCenter",
            "virtual machines in vCenter",
            "UUIDs of disks in vCenter",
            "tag categories in vCenter",
            "zones in vCenter",
        ]
        .map(|subject| format!("{subject} {name}"))
    };
    let expected = [subjects("vc-1"), subjects("vc-2")].concat();
    let expected = [expected, vec!["UUIDs of virtual machines".to_owned()]].concat();
    assert_eq!(results.iter().map(|(subject, _)| subject.clone()).collect::<Vec<_>>(), expected);
    assert_contains(&results, "login to vCenter vc-1", USER);
    assert_contains(&results, "datacenters in vCenter vc-1", "all: /DC0, /F0/DC1");
    assert_contains(&results, "zones in vCenter vc-2", "all 1 checked machines have zone and region");
    assert_contains(&results, "UUIDs of disks in vCenter vc-1", "disk.EnableUUID is set for all 1 checked machines");
    assert!(pair.vcenters[1].change_machine("node-1", |machine| machine.disk_uuids = false));
    let lacking = "disk.EnableUUID is not set for 1 of 1 checked machines (node-1)";
    assert_contains(&diagnosed(&pair).await, "UUIDs of disks in vCenter vc-2", lacking);
    assert!(!format!("{results:?}").contains(PASSWORD), "{results:?}");
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_vcenter_or_a_rejected_login_is_reported_once() {
    let pair = Pair::new("");
    pair.vcenters[0].inject(FaultSpec::always(Fault::Lost));
    let results = diagnosed(&pair).await;
    assert!(outcome(&results, "vCenter vc-1").is_err());
    assert_eq!(results.iter().filter(|(subject, _)| subject.ends_with("vc-1")).count(), 1, "{results:?}");
    assert_contains(&results, "virtual machines in vCenter vc-2", "1 are readable");

    let pair = Pair::with(Options::default(), USER, "wrong", "");
    let results = diagnosed(&pair).await;
    assert_contains(&results, "vCenter vc-1", "API 8.0.2.0");
    let error = outcome(&results, "login to vCenter vc-1").as_ref().unwrap_err();
    assert!(error.contains("rejected the login"), "{error}");
    assert_eq!(results.len(), 4, "{results:?}");
}

#[tokio::test(start_paused = true)]
async fn each_problem_of_a_vcenter_is_named() {
    let pair = Pair::new("[VirtualCenter \"vc-1\"]\ndatacenters = \"DC9\"\n");
    let results = diagnosed(&pair).await;
    let error = outcome(&results, "datacenters in vCenter vc-1").as_ref().unwrap_err();
    assert!(error.contains("datacenter 'DC9' not found") && error.contains("correct datacenters"), "{error}");

    let pair = Pair::new("[Labels]\nzone = \"k8s-zone\"\nregion = \"no-such\"\n");
    let results = diagnosed(&pair).await;
    let error = outcome(&results, "tag categories in vCenter vc-2").as_ref().unwrap_err();
    assert!(error.contains("sees no category \"no-such\"") && !error.contains("k8s-zone"), "{error}");
    assert!(outcome(&results, "zones in vCenter vc-2").as_ref().unwrap_err().contains("no-such"), "{results:?}");

    let pair = Pair::new("");
    let machine = pair.vcenters[0].find("VirtualMachine", "node-0").unwrap();
    pair.vcenters[0].add_machine(Machine::named("other", "10.10.1.99")).unwrap();
    pair.vcenters[0].hide(&machine, true);
    let results = diagnosed(&pair).await;
    assert_only_failure(
        &results,
        "virtual machines in vCenter vc-1",
        &format!("1 of 2 cannot be read ({})", machine.id),
    );

    let pair = Pair::new("");
    pair.vcenters[1].delete_machine("node-1");
    assert_only_failure(&diagnosed(&pair).await, "virtual machines in vCenter vc-2", "there is none");

    let pair = Pair::new("datacenters = \"DC0, F0/DC1\"\n");
    let reason = "vCenter shows no VMs in datacenter /F0/DC1";
    assert_only_failure(&diagnosed(&pair).await, "virtual machines in vCenter vc-2", reason);
}

#[tokio::test(start_paused = true)]
async fn shared_uuids_old_versions_and_machines_without_zones_are_only_mentioned() {
    let pair = Pair::with(Options { api_version: "6.7.2".to_owned(), ..Options::default() }, USER, PASSWORD, LABELS);
    let uuid = pair.vcenters[0].machine("node-0").unwrap().uuid;
    pair.vcenters[1].add_machine(Machine { uuid, ..Machine::named("copy", "10.10.1.98") }).unwrap();
    let host = pair.vcenters[1].find("HostSystem", "DC1_C0_H0").unwrap().id;
    pair.vcenters[1].add_machine(Machine { host, ..Machine::named("untagged", "10.10.1.97") }).unwrap();
    let results = diagnosed(&pair).await;
    assert!(results.iter().all(|(_, outcome)| outcome.is_ok()), "{results:?}");
    assert_contains(&results, "vCenter vc-1", "older than 6.7 Update 3");
    assert_contains(&results, "UUIDs of virtual machines", "1 are shared");
    assert_contains(&results, "UUIDs of virtual machines", "node-0 in vCenter vc-1, copy in vCenter vc-2");
    assert_contains(
        &results,
        "zones in vCenter vc-2",
        "2 of 3 checked machines have zone and region; a Node on untagged",
    );
}

/// Two entries may have different credentials for the same server.
#[tokio::test(start_paused = true)]
async fn a_server_with_two_entries_shares_no_uuids_with_itself() {
    let pair = Pair::new("[VirtualCenter \"again\"]\nserver = \"vc-1\"\n");
    let results = diagnosed(&pair).await;
    assert_contains(&results, "virtual machines in vCenter again", "1 are readable");
    assert_contains(&results, "UUIDs of virtual machines", "no two machines");
}
