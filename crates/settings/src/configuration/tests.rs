//! The document and the flags convert into each other.

use std::collections::BTreeSet;
use std::ffi::OsString;

use clap::{Arg, Args as _};

use super::*;
use crate::cli::ManagerArgs;
use crate::settings::Settings;

/// Temporary file, deleted on drop.
struct TempFile(std::path::PathBuf);

impl TempFile {
    fn new(text: &str) -> TempFile {
        let name = format!("bowline-config-{}-{:x}", std::process::id(), fastrand::u64(..));
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).unwrap();
        TempFile(path)
    }

    fn flag(&self) -> String {
        format!("--config={}", self.0.display())
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Resolves these flags, or returns the errors.
fn resolved(flags: &[String]) -> Result<Settings, String> {
    let arguments = ["bowline".to_owned()].iter().chain(flags).map(OsString::from).collect();
    let args = ManagerArgs::of(arguments);
    let mut errors = ConfigErrors::new();
    let settings = Settings::resolve(&args, &mut errors);
    if errors.is_empty() { Ok(settings) } else { Err(errors.to_string()) }
}

/// The document of `/configz`.
fn shown(settings: &Settings) -> Value {
    configz(&settings.flags, settings.election.as_ref().and_then(|election| election.migration.as_ref()))
}

/// Prints the settings without flags and warnings.
fn printed(settings: Settings) -> String {
    format!("{:#?}", Settings { flags: EffectiveFlags::default(), warnings: Vec::new(), ..settings })
}

fn strings(flags: &[&str]) -> Vec<String> {
    flags.iter().map(ToString::to_string).collect()
}

const HEAD: &str =
    "apiVersion: cloudcontrollermanager.config.k8s.io/v1alpha1\nkind: CloudControllerManagerConfiguration\n";

#[test]
fn every_field_has_an_existing_flag_and_a_unique_path() {
    let definition = ManagerArgs::augment_args(clap::Command::new("manager"));
    let flags: BTreeSet<_> = definition.get_arguments().filter_map(Arg::get_long).collect();
    let unknown: Vec<_> = FIELDS.iter().map(|field| field.flag).filter(|flag| !flags.contains(flag)).collect();
    assert_eq!(unknown, [""; 0]);
    let paths: BTreeSet<_> = FIELDS.iter().map(|field| field.path).collect();
    assert_eq!(paths.len(), FIELDS.len());
}

/// The document equals that of a Go manager for the same flags, where defaults agree.
#[test]
fn configz_equals_the_document_of_the_go_managers() {
    let flags = ["--cloud-provider=local", "--kubeconfig=admin.kc", "--configure-cloud-routes=false"];
    let same = [
        "--kube-api-qps=20",
        "--kube-api-burst=30",
        "--concurrent-node-syncs=1",
        "--concurrent-node-lifecycle-syncs=1",
        "--concurrent-service-syncs=1",
        "--allow-untagged-cloud",
    ];
    let settings = resolved(&strings(&[&flags[..], &same[..]].concat())).unwrap();
    let expected: Value = serde_json::from_str(include_str!("go_configz.json")).unwrap();
    assert_eq!(shown(&settings), expected);
}

#[test]
fn reading_the_configz_document_results_in_the_same_settings() {
    let mut random = fastrand::Rng::with_seed(4);
    for _ in 0..60 {
        let flags = some_flags(&mut random);
        let settings = resolved(&flags).unwrap_or_else(|error| panic!("{flags:?}: {error}"));
        let document = shown(&settings);
        let settings = printed(settings);
        for text in [document.to_string(), document[GROUP].to_string()] {
            let file = TempFile::new(&text);
            let again = resolved(&[file.flag()]).unwrap_or_else(|error| panic!("{flags:?}: {error}\n{text}"));
            assert_eq!(shown(&again), document, "{flags:?}");
            assert_eq!(printed(again), settings, "{flags:?}");
        }
    }
}

#[test]
fn configz_contains_the_leader_migration_and_config_reads_it() {
    let with = |flags: &[&str]| resolved(&strings(&[&["--cloud-provider=local"], flags].concat()));
    let migration = |settings: &Settings| shown(settings)[GROUP]["Generic"]["LeaderMigration"].clone();
    assert_eq!(migration(&with(&[]).unwrap())["leaderName"], "");
    let by_default = migration(&with(&["--enable-leader-migration"]).unwrap());
    assert_eq!(by_default["leaderName"], "cloud-provider-extraction-migration");
    assert_eq!(by_default["controllerLeaders"][0], json!({"name": "route-controller", "component": "*"}));
    let file = TempFile::new(
        "apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\nleaderName: shared\n\
         controllerLeaders: [{name: service, component: kube-controller-manager}]\n",
    );
    let named = format!("--leader-migration-config={}", file.0.display());
    let settings = with(&["--enable-leader-migration", &named]).unwrap();
    assert!(settings.manager.service.is_none(), "another manager runs it");
    let leader = json!({"name": "service", "component": "kube-controller-manager"});
    let expected = json!({"leaderName": "shared", "resourceLock": "leases", "controllerLeaders": [leader]});
    assert_eq!(migration(&settings), expected);
    let again = TempFile::new(&shown(&settings).to_string());
    let again = resolved(&[again.flag()]).unwrap();
    assert_eq!((migration(&again), again.manager.service.is_none()), (expected, true));
    let broken = TempFile::new(&format!("{HEAD}Generic: {{LeaderMigration: {{controllerLeaders: [{{name: x}}]}}}}\n"));
    let error = with(&[&broken.flag()]).unwrap_err();
    assert!(error.contains("LeaderMigration.controllerLeaders[0]: name or component is missing"), "{error}");
}

/// Random valid values for about half of the fields.
fn some_flags(random: &mut fastrand::Rng) -> Vec<String> {
    // Flags that depend on each other keep their values.
    let fixed = ["cloud-provider", "cluster-cidr", "cidr-allocator-type", "allocate-node-cidrs", "cloud-config"];
    let mut flags = vec!["--cloud-provider=local".to_owned(), "--cluster-cidr=10.244.0.0/16".to_owned()];
    let free = FIELDS.iter().filter(|field| !fixed.contains(&field.flag) && !field.flag.starts_with("leader-"));
    for field in free {
        if random.bool() {
            continue;
        }
        let value = match field.kind {
            Kind::Text => ["harbour", "a/b.c", "x y", "ünïcode"][random.usize(..4)].to_owned(),
            Kind::Switch => random.bool().to_string(),
            Kind::Number => random.u32(1..100).to_string(),
            Kind::Duration => ["1s", "90s", "1h30m", "300ms", "1m0.5s"][random.usize(..5)].to_owned(),
            Kind::List => ["", "a", "*,-b", "a,b,c"][random.usize(..4)].to_owned(),
            Kind::Controllers => {
                ["", "*", "*,-route", "cloud-node,service-lb-controller"][random.usize(..4)].to_owned()
            }
        };
        flags.push(format!("--{}={value}", field.flag));
    }
    flags
}

#[test]
fn a_flag_overrides_the_file() {
    let text = "KubeCloudShared:\n  CloudProvider: {Name: moon}\n  ClusterName: harbour\nGeneric:\n  Controllers: [cloud-node]\n";
    let file = TempFile::new(&format!("{HEAD}{text}"));
    let settings = resolved(&[file.flag(), "--cloud_provider".to_owned(), "local".to_owned()]).unwrap();
    assert_eq!((settings.reach.providers[0].name.as_str(), settings.reach.cluster.as_str()), ("local", "harbour"));
    assert!(settings.manager.service.is_none(), "the file's list applies");
    let settings = resolved(&strings(&[&file.flag(), "--controllers=*", "--cloud-provider=local"])).unwrap();
    assert!(settings.manager.service.is_some(), "the flag's list replaces the file's");
}

#[test]
fn an_invalid_file_is_rejected_with_line_and_fix() {
    let cases = [
        ("", "kind: missing key; add kind: CloudControllerManagerConfiguration"),
        ("kind: Pod\napiVersion: v1\n", "kind: unsupported value \"Pod\""),
        (&format!("{HEAD}Generik: {{}}\n"), ":3: Generik: unknown key; did you mean Generic?"),
        (
            &format!("{HEAD}KubeCloudShared:\n  clusterName: x\n"),
            ":4: clusterName: unknown key; did you mean ClusterName?",
        ),
        (&format!("{HEAD}Generic:\n  Controllers: [a]\n  Controllers: [b]\n"), "Controllers: duplicate key"),
        (
            &format!("{HEAD}NodeController:\n  ConcurrentNodeSyncs: many\n"),
            ":4: ConcurrentNodeSyncs: expected a whole number",
        ),
        (&format!("{HEAD}Generic: {{Port: 10253}}\n"), "Port: insecure serving is not supported"),
        (&format!("{HEAD}NodeStatusUpdateFrequency: 1d\n"), "--node-status-update-frequency: invalid value \"1d\""),
    ];
    for (text, expected) in cases {
        let file = TempFile::new(text);
        let error = resolved(&strings(&[&file.flag(), "--cloud-provider=local"])).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
    let missing = resolved(&strings(&["--config=/nonexistent/config.yaml", "--cloud-provider=local"])).unwrap_err();
    assert!(missing.contains("/nonexistent/config.yaml: no such file"), "{missing}");
}

#[test]
fn an_empty_list_in_the_file_differs_from_a_missing_one() {
    let runs = |text: &str| {
        let file = TempFile::new(&format!("{HEAD}{text}"));
        let settings = resolved(&strings(&[&file.flag(), "--cloud-provider=local"])).unwrap();
        settings.manager.node.is_some()
    };
    assert!(runs("Generic: {}\n"), "all controllers run by default");
    assert!(!runs("Generic: {Controllers: []}\n") && !runs("Generic: {Controllers: null}\n"));
}
