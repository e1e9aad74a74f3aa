//! Interpretation of command lines, and of published manifests of Go managers.

use std::path::PathBuf;

use bowline_config::{ConfigErrors, ConfigFile};
use bowline_settings::Settings;
use clap::Arg;
use serde_json::Value;

use super::*;

/// A registry with providers that are never built.
fn registry() -> Registry {
    let none = |_: &bowline_cloud::BuildContext<'_>| Err(ConfigErrors::new());
    let kinds = ["local", "openstack"].map(|name| bowline_cloud::Factory::new(name, "for tests", String::new, none));
    let default_flags = &["authentication-skip-lookup=true"];
    let sea = Factory { default_flags, ..Factory::new("sea", "for tests", String::new, none) };
    kinds.into_iter().fold(Registry::default(), Registry::with).with(sea)
}

fn words(arguments: &[&str]) -> Vec<OsString> {
    arguments.iter().map(OsString::from).collect()
}

/// Resolves the manager's flags: settings, warnings, errors.
fn resolved(name: &str, flags: &[String]) -> (Settings, Vec<String>, Vec<String>) {
    let arguments = [name.to_owned()].iter().chain(flags).map(OsString::from).collect();
    let Manager { args, mut warnings, .. } = Manager::read(name.to_owned(), arguments, &registry()).unwrap();
    let mut errors = ConfigErrors::new();
    let settings = Settings::resolve(&args, &mut errors);
    warnings.extend(settings.warnings.clone());
    (settings, warnings, errors.iter().map(ToString::to_string).collect())
}

#[test]
fn a_program_name_or_a_leading_flag_runs_the_manager() {
    type Case<'a> = (&'a [&'a str], Option<(&'a str, usize)>);
    let cases: [Case<'_>; 11] = [
        (&["bowline"], None),
        (&["bowline", "plan", "--v=1"], None),
        (&["bowline", "--v=1"], Some(("bowline", 0))),
        (&["bowline", "-h"], Some(("bowline", 0))),
        (&["cloud-controller-manager"], Some(("cloud-controller-manager", 0))),
        (&["/usr/bin/cloud-controller-manager", "plan"], Some(("cloud-controller-manager", 0))),
        (&["./aws-cloud-controller-manager"], Some(("aws-cloud-controller-manager", 0))),
        (&["my-cloud-controller-manager-2", "plan"], None),
        (&["mycloud-controller-manager"], None),
        (&["bowline", "/bin/openstack-cloud-controller-manager"], Some(("openstack-cloud-controller-manager", 1))),
        (&[], None),
    ];
    for (arguments, expected) in cases {
        let expected = expected.map(|(name, skip)| (name.to_owned(), skip));
        assert_eq!(manager_invocation(&words(arguments)), expected, "{arguments:?}");
    }
}

#[test]
fn the_program_name_sets_the_default_flags_of_its_provider() {
    let skips = |name: &str, flag: &str| resolved(name, &[flag.to_owned()]).0.serving.authentication.skip_lookup;
    let sea = "sea-cloud-controller-manager";
    assert!(skips(sea, "--v=1") && !skips(sea, "--authentication-skip-lookup=false"));
    assert!(!skips("bowline", "--cloud-provider=sea") && !skips("openstack-cloud-controller-manager", "--v=1"));
}

#[test]
fn the_program_name_sets_the_default_cloud_provider() {
    let providers = |name: &str, flags: &[&str]| {
        let flags: Vec<_> = flags.iter().map(ToString::to_string).collect();
        let (settings, _, errors) = resolved(name, &flags);
        let names: Vec<_> = settings.reach.providers.iter().map(|wanted| wanted.name.clone()).collect();
        (names.join(" "), errors.len())
    };
    let openstack = "openstack-cloud-controller-manager";
    assert_eq!(providers(openstack, &["--configure-cloud-routes=false"]), ("openstack".to_owned(), 0));
    assert_eq!(providers(openstack, &["--cloud-provider=local", "--v=1"]), ("local".to_owned(), 0));
    assert_eq!(providers(openstack, &["--cloud_provider", "local"]), ("local".to_owned(), 0));
    assert_eq!(providers(openstack, &["--cloud-provider="]).1, 1, "upstream: it cannot be empty");
    for name in ["cloud-controller-manager", "harbour-cloud-controller-manager", "bowline"] {
        assert_eq!(providers(name, &["--v=1"]), (String::new(), 1), "{name}");
    }
}

#[test]
fn the_program_name_of_an_admission_server_runs_it_for_that_cloud() {
    let rewritten = |arguments: &[&str]| admission_server_arguments(&words(arguments));
    let server = "openstack-cloud-controller-manager-admission-server";
    let expected = words(&["bowline", "admission-server", "openstack-cloud-controller-manager", "-v=2"]);
    assert_eq!(rewritten(&[&format!("/bin/{server}"), "-v=2"]), Some(expected.clone()));
    assert_eq!(rewritten(&["bowline", &format!("/bin/{server}"), "-v=2"]), Some(expected.clone()));
    for arguments in [&["bowline", "admission-server"][..], &["x-admission-server"], &["bowline", "--v=2", server], &[]]
    {
        assert_eq!(rewritten(arguments), None, "{arguments:?}");
    }
    let Ok(Invocation::Command(Task(cli::Command::AdmissionServer(args)))) = command(expected, &registry()) else {
        panic!("another command")
    };
    let mut errors = ConfigErrors::new();
    let settings = bowline_settings::AdmissionServer::resolve(&args, &mut errors);
    let names: Vec<_> = settings.reach.providers.iter().map(|provider| provider.name.as_str()).collect();
    assert!(errors.is_empty() && names == ["openstack"], "{names:?} {errors}");
}

/// Returns program and arguments of the manifest's first container.
fn container(path: &Path) -> Vec<String> {
    let manifest: Value = ConfigFile::read(path).unwrap().yaml().unwrap();
    let container = manifest.pointer("/spec/template/spec/containers/0").unwrap();
    let words = |key: &str| {
        let items = container[key].as_array().into_iter().flatten();
        items.map(|item| item.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let command = words("command");
    // Without a command the image's entry point runs.
    let program = if command.is_empty() { vec!["/bowline".to_owned()] } else { command };
    [program, words("args")].concat()
}

fn manifests() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/manifests");
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> = paths.filter(|path| path.extension().is_some_and(|ending| ending == "yaml")).collect();
    paths.sort();
    assert!(paths.len() >= 9, "{paths:?}");
    paths
}

#[test]
fn published_manifests_of_go_managers_are_accepted() {
    for path in manifests() {
        let arguments = container(&path);
        let (name, skip) = manager_invocation(&arguments.iter().map(OsString::from).collect::<Vec<_>>()).unwrap();
        let (settings, _, errors) = resolved(&name, &arguments[skip + 1..]);
        assert_eq!(errors, [""; 0], "{}", path.display());
        assert_eq!(settings.reach.providers.len(), 1, "{}", path.display());
    }
}

/// Resolves the manager's flags of a command: settings without the flags themselves, and errors.
fn of_command(command: &str, arguments: &[String]) -> (String, Vec<String>) {
    let object = (command == "explain").then(|| "node/a".to_owned());
    let words = ["bowline".to_owned(), command.to_owned()].into_iter().chain(arguments.iter().cloned()).chain(object);
    let words = words.map(OsString::from).collect();
    let Ok(Invocation::Command(Task(mut command))) = super::command(words, &registry()) else {
        panic!("{command} {arguments:?}")
    };
    let mut errors = ConfigErrors::new();
    let settings = Settings::resolve(command.manager_args().unwrap(), &mut errors);
    (without_flags(settings), errors.iter().map(ToString::to_string).collect())
}

fn without_flags(settings: Settings) -> String {
    format!("{:#?}", Settings { flags: EffectiveFlags::default(), warnings: Vec::new(), ..settings })
}

#[test]
fn commands_that_read_a_cluster_accept_the_arguments_of_a_manifest() {
    for path in manifests() {
        let arguments = container(&path);
        let (name, skip) = manager_invocation(&arguments.iter().map(OsString::from).collect::<Vec<_>>()).unwrap();
        let (settings, _, _) = resolved(&name, &arguments[skip + 1..]);
        let expected = (without_flags(settings), Vec::new());
        let from = if arguments[skip].starts_with("/bowline") { skip + 1 } else { skip };
        for command in WITH_MANAGER_FLAGS {
            assert_eq!(of_command(command, &arguments[from..]), expected, "{command}: {}", path.display());
        }
    }
}

#[test]
fn commands_that_read_a_cluster_accept_every_flag_in_every_spelling() {
    let definition = definition("bowline", &[], &registry());
    let flags: Vec<_> = definition.get_arguments().filter_map(Arg::get_long).collect();
    for command in WITH_MANAGER_FLAGS {
        let taken = definition.find_subcommand(command).unwrap();
        let taken: Vec<_> = taken.get_arguments().filter_map(Arg::get_long).collect();
        let missing: Vec<_> = flags.iter().filter(|flag| !taken.contains(flag)).collect();
        assert_eq!(missing, [&""; 0], "{command}");
        let given = ["--cloud_provider", "local", "-v4", "--leader-elect", "--cluster_cidr=10.0.0.0/8"];
        let (settings, errors) = of_command(command, &given.map(str::to_owned));
        assert_eq!(errors, [""; 0], "{command}");
        assert!(settings.contains("10.0.0.0/8"), "{command}: {settings}");
        let words = ["--cloud-provder=local", "sail", "away"].map(str::to_owned);
        let (_, errors) = of_command(command, &words);
        assert!(errors[0].ends_with("did you mean --cloud-provider?") && errors.len() == 3, "{errors:#?}");
    }
}

#[test]
fn a_command_reads_the_file_of_the_config_flag() {
    let missing = of_command("plan", &["--config=/nonexistent/file".to_owned(), "--cloud-provider=local".to_owned()]);
    assert!(missing.1.len() == 1 && missing.1[0].contains("/nonexistent/file"), "{:?}", missing.1);
}

/// Values that are valid for some flag, or for none.
const ODD: [&str; 24] = [
    "",
    "true",
    "FALSE",
    "-1",
    "0",
    "99999999999999999999",
    "1e400",
    "NaN",
    "1m30s",
    "-5s",
    "9999999999h",
    "a=b,c=d",
    "=,=",
    "*,-route",
    "[::]:0",
    "10.0.0.0/8,fd00::/8",
    "/dev/null",
    "\u{fc}n\u{202e}",
    "\n\t\u{1b}",
    "{}",
    "--v=4",
    "\"",
    "a,b;c:d",
    ",",
];

/// Every command line is accepted or reported with all its errors: nothing panics, and clap never exits at the first error.
#[test]
fn random_command_lines_do_not_panic() {
    let mut definition = definition("cloud-controller-manager", &[], &registry());
    definition.build();
    let exits = ["help", "help-all", "version"];
    let flags: Vec<_> =
        definition.get_arguments().filter_map(Arg::get_long).filter(|flag| !exits.contains(flag)).collect();
    let mut random = fastrand::Rng::with_seed(6);
    for round in 0..400 {
        let arguments: Vec<String> = (0..random.usize(..10))
            .map(|_| {
                let (flag, value) = (flags[random.usize(..flags.len())], ODD[random.usize(..ODD.len())]);
                match random.u32(..8) {
                    0 => value.to_owned(),
                    1 => format!("--{flag}"),
                    2 => format!("-v{value}"),
                    3 => ["--", "-", "--=", "---", "-=", "--\u{fc}"][random.usize(..6)].to_owned(),
                    _ => format!("--{flag}={value}"),
                }
            })
            .collect();
        let name = if round % 2 == 0 { "bowline" } else { "cloud-controller-manager" };
        let words = [name.to_owned()].iter().chain(&arguments).map(OsString::from).collect();
        let manager = Manager::read(name.to_owned(), words, &registry());
        let Manager { args, .. } = manager.unwrap_or_else(|error| panic!("{arguments:?}: {error}"));
        let mut errors = ConfigErrors::new();
        let settings = Settings::resolve(&args, &mut errors);
        let _ = (configuration::configz(&settings.flags, None), errors.to_string());
    }
}

#[test]
fn every_flag_without_effect_has_one_warning() {
    let manifest = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/manifests").join(name);
    let cases: [(&str, &[&str]); 4] = [
        ("generic.yaml", &["--logtostderr", "--stderrthreshold", "--alsologtostderr", "--log-dir"]),
        ("alibaba-v1.yaml", &["--address", "the feature gate ServiceNodeExclusion", "--allow-untagged-cloud is dep"]),
        ("alibaba-v2.yaml", &["--metrics-bind-addr"]),
        ("aws.yaml", &[]),
    ];
    for (name, expected) in cases {
        let arguments = container(&manifest(name));
        let (_, warnings, _) = resolved("cloud-controller-manager", &arguments[1..]);
        let found: Vec<_> =
            warnings.iter().filter(|warning| warning.contains("has no effect") || warning.contains("is dep")).collect();
        assert_eq!(found.len(), expected.len(), "{name}: {warnings:#?}");
        for part in expected {
            assert_eq!(
                found.iter().filter(|warning| warning.starts_with(part)).count(),
                1,
                "{name}: {part}: {warnings:#?}"
            );
        }
    }
}

#[test]
fn the_flags_of_a_manifest_reach_the_settings() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/manifests/alibaba-routes.yaml");
    let (settings, _, _) = resolved("cloud-controller-manager", &container(&path)[1..]);
    assert!(settings.own_credentials && !settings.reach.layers.requires_cluster_id);
    assert!(settings.manager.route.is_some() && settings.manager.node_ipam.is_some());
    assert_eq!(settings.serving.https.unwrap().bind_address.to_string(), "127.0.0.1");
    assert_eq!(
        settings.reach.client.kubeconfig.unwrap().display().to_string(),
        "/etc/kubernetes/cloud-controller-manager.conf"
    );
}

#[test]
fn version_accepts_the_values_of_go_programs() {
    let request = |value| match version_request(value) {
        Ok(VersionRequest::Nothing) => "nothing".to_owned(),
        Ok(VersionRequest::Print(text)) => text,
        Ok(VersionRequest::Warn(text)) => text,
        Err(error) => error.to_string(),
    };
    assert_eq!((request(None), request(Some("false"))), ("nothing".to_owned(), "nothing".to_owned()));
    assert_eq!(request(Some("true")), format!("bowline {}", env!("CARGO_PKG_VERSION")));
    assert!(request(Some("raw")).contains("platform"));
    assert!(request(Some("v1.2.3")).contains("no effect"));
    assert!(request(Some("maybe")).contains("--version"));
}

#[test]
fn every_flag_of_the_go_managers_is_defined() {
    let mut definition = definition("cloud-controller-manager", &[], &registry());
    definition.build();
    let known: Vec<_> = definition.get_arguments().filter_map(Arg::get_long).collect();
    let missing: Vec<_> =
        include_str!("go_flags.txt").split_whitespace().filter(|flag| !known.contains(flag)).collect();
    assert_eq!(missing, [""; 0]);
}

#[test]
fn the_help_changes_no_flag_of_a_provider() {
    const TAGS: bowline_cloud::ProviderFlag = bowline_cloud::ProviderFlag {
        name: "sea-tags",
        value: "TAGS",
        default: "",
        summary: "Tags. Default: none.",
        syntax: bowline_cloud::FlagSyntax::Single,
    };
    let none = |_: &bowline_cloud::BuildContext<'_>| Err(ConfigErrors::new());
    let sea = Factory { flags: &[TAGS], ..Factory::new("sea", "for tests", String::new, none) };
    let registry = Registry::default().with(sea);
    for name in ["bowline", "sea-cloud-controller-manager"] {
        let Manager { args, .. } = Manager::read(name.to_owned(), words(&[name, "--sea-tags=a"]), &registry).unwrap();
        assert!(args.effective.get("sea-tags").unwrap().is_of_provider, "{name}");
    }
}

#[test]
fn the_same_flags_are_booleans_as_in_go() {
    let mut definition = definition("cloud-controller-manager", &[], &registry());
    definition.build();
    let switches = definition.get_arguments().filter(|flag| flag.is_require_equals_set()).filter_map(Arg::get_long);
    let switches: Vec<_> = switches.collect();
    for flag in ["leader-elect", "profiling", "allow-untagged-cloud", "authentication-skip-lookup", "version"] {
        assert!(switches.contains(&flag), "{flag}");
    }
    for flag in ["v", "secure-port", "cert-dir", "webhooks", "tls-cipher-suites"] {
        assert!(!switches.contains(&flag), "{flag}");
    }
}
