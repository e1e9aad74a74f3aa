//! Who is meant by a command line, and that the manifests people have are understood.

use std::path::PathBuf;

use bowline_config::{ConfigErrors, ConfigFile};
use bowline_settings::Settings;
use clap::Arg;
use serde_json::Value;

use super::*;

/// A program with two kinds of providers; nothing here builds them.
fn registry() -> Registry {
    let none = |_: &bowline_cloud::BuildContext<'_>| Err(ConfigErrors::new());
    let kinds = ["local", "openstack"].map(|name| bowline_cloud::Factory::new(name, "for tests", String::new, none));
    kinds.into_iter().fold(Registry::default(), Registry::with)
}

fn words(arguments: &[&str]) -> Vec<OsString> {
    arguments.iter().map(OsString::from).collect()
}

/// What the manager makes of its flags: settings, what was remarked, what is wrong.
fn resolved(name: &str, flags: &[String]) -> (Settings, Vec<String>, Vec<String>) {
    let arguments = [name.to_owned()].iter().chain(flags).map(OsString::from).collect();
    let Manager { args, mut remarks, .. } = Manager::read(name.to_owned(), arguments, &registry()).unwrap();
    let mut errors = ConfigErrors::new();
    let settings = Settings::resolve(&args, &mut errors);
    remarks.extend(settings.remarks.clone());
    (settings, remarks, errors.iter().map(ToString::to_string).collect())
}

#[test]
fn the_name_or_a_flag_makes_it_the_manager() {
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
        assert_eq!(managed(&words(arguments)), expected, "{arguments:?}");
    }
}

#[test]
fn the_name_says_which_cloud_unless_a_flag_does() {
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
    for nobody in ["cloud-controller-manager", "harbour-cloud-controller-manager", "bowline"] {
        assert_eq!(providers(nobody, &["--v=1"]), (String::new(), 1), "{nobody}");
    }
}

/// The program and its arguments, as a container of the manifest has them.
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
fn the_manifests_that_people_have_are_understood() {
    for path in manifests() {
        let arguments = container(&path);
        let (name, skip) = managed(&arguments.iter().map(OsString::from).collect::<Vec<_>>()).unwrap();
        let (settings, _, errors) = resolved(&name, &arguments[skip + 1..]);
        assert_eq!(errors, [""; 0], "{}", path.display());
        assert_eq!(settings.reach.providers.len(), 1, "{}", path.display());
    }
}

/// The manager's flags as the command has them, resolved: settings without what is about the flags themselves, and problems.
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
    format!("{:#?}", Settings { flags: EffectiveFlags::default(), remarks: Vec::new(), ..settings })
}

#[test]
fn commands_that_read_a_cluster_take_the_arguments_of_a_manifest() {
    for path in manifests() {
        let arguments = container(&path);
        let (name, skip) = managed(&arguments.iter().map(OsString::from).collect::<Vec<_>>()).unwrap();
        let (settings, _, _) = resolved(&name, &arguments[skip + 1..]);
        let expected = (without_flags(settings), Vec::new());
        let from = if arguments[skip].starts_with("/bowline") { skip + 1 } else { skip };
        for command in WITH_MANAGER_FLAGS {
            assert_eq!(of_command(command, &arguments[from..]), expected, "{command}: {}", path.display());
        }
    }
}

#[test]
fn commands_that_read_a_cluster_take_every_flag_in_every_spelling() {
    let definition = definition("bowline", &registry());
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
fn a_command_reads_the_file_that_config_names() {
    let missing = of_command("plan", &["--config=/nonexistent/file".to_owned(), "--cloud-provider=local".to_owned()]);
    assert!(missing.1.len() == 1 && missing.1[0].contains("/nonexistent/file"), "{:?}", missing.1);
}

/// Values that are right for some flag, or for none.
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

/// Whatever is written there is understood, or told with all the rest: nothing panics, and nothing is left for clap to end the
/// program with at its first problem.
#[test]
fn no_command_line_is_too_odd() {
    let mut definition = definition("cloud-controller-manager", &registry());
    definition.build();
    let ends_it = ["help", "version"];
    let flags: Vec<_> =
        definition.get_arguments().filter_map(Arg::get_long).filter(|flag| !ends_it.contains(flag)).collect();
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
fn what_has_no_effect_in_a_manifest_is_told_once_each() {
    let manifest = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/manifests").join(name);
    let cases: [(&str, &[&str]); 4] = [
        ("generic.yaml", &["--logtostderr", "--stderrthreshold", "--alsologtostderr", "--log-dir"]),
        ("alibaba-v1.yaml", &["--address", "the feature gate ServiceNodeExclusion", "--allow-untagged-cloud is dep"]),
        ("alibaba-v2.yaml", &["--metrics-bind-addr"]),
        ("aws.yaml", &[]),
    ];
    for (name, expected) in cases {
        let arguments = container(&manifest(name));
        let (_, remarks, _) = resolved("cloud-controller-manager", &arguments[1..]);
        let told: Vec<_> =
            remarks.iter().filter(|remark| remark.contains("has no effect") || remark.contains("is dep")).collect();
        assert_eq!(told.len(), expected.len(), "{name}: {remarks:#?}");
        for part in expected {
            assert_eq!(
                told.iter().filter(|remark| remark.starts_with(part)).count(),
                1,
                "{name}: {part}: {remarks:#?}"
            );
        }
    }
}

#[test]
fn what_a_manifest_says_reaches_its_place() {
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
fn the_version_is_asked_for_as_go_programs_are_asked() {
    let asked = |value| match asked_version(value) {
        Ok(Asked::Nothing) => "nothing".to_owned(),
        Ok(Asked::Print(text)) => text,
        Ok(Asked::Remark(text)) => text,
        Err(problem) => problem.to_string(),
    };
    assert_eq!((asked(None), asked(Some("false"))), ("nothing".to_owned(), "nothing".to_owned()));
    assert_eq!(asked(Some("true")), format!("bowline {}", env!("CARGO_PKG_VERSION")));
    assert!(asked(Some("raw")).contains("platform"));
    assert!(asked(Some("v1.2.3")).contains("no effect"));
    assert!(asked(Some("maybe")).contains("--version"));
}

#[test]
fn every_flag_of_the_go_managers_is_declared() {
    let mut definition = definition("cloud-controller-manager", &registry());
    definition.build();
    let known: Vec<_> = definition.get_arguments().filter_map(Arg::get_long).collect();
    let missing: Vec<_> =
        include_str!("go_flags.txt").split_whitespace().filter(|flag| !known.contains(flag)).collect();
    assert_eq!(missing, [""; 0]);
}

#[test]
fn go_and_bowline_agree_on_which_flags_are_switches() {
    let mut definition = definition("cloud-controller-manager", &registry());
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
