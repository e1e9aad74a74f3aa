//! The binary's interface for scripts: exit codes, files, the ready line, signals.

use std::fs;
use std::net::TcpListener;

use crate::support::{self, Scratch, Server, refused};

#[test]
fn invalid_flags_exit_with_2_and_name_a_valid_value() {
    refused(&[], 2, &["Usage"]);
    refused(&["sail"], 2, &["sail"]);
    refused(&["apiserver"], 2, &["--kubeconfig"]);
    refused(&["apiserver", "--kubeconfig=kc", "--knots=8"], 2, &["--knots"]);
    refused(&["apiserver", "--kubeconfig=kc", "--listen=6443"], 2, &["--listen", "6443", "127.0.0.1:6443"]);
    refused(&["apiserver", "--kubeconfig=kc", "--built-in-controllers=si"], 2, &["true or false"]);
    refused(&["apiserver", "--kubeconfig=kc", "--authorization-mode=rbac"], 2, &["AlwaysAllow, RBAC"]);
}

#[test]
fn an_admission_server_needs_a_cloud_with_webhooks() {
    let start = "failed to start admission server: ";
    refused(&["admission-server"], 2, &[start, "--cloud-provider cannot be empty"]);
    refused(&["admission-server", "--cloud-provider=local", "--knots=8"], 2, &[start, "--knots: unknown flag"]);
    refused(&["admission-server", "--cloud-provider", "local", "-v=2"], 2, &[start, "local has no admission webhooks"]);
}

#[test]
fn non_loopback_addresses_need_rbac_or_an_explicit_flag() {
    let scratch = Scratch::new("remote");
    let kubeconfig = format!("--kubeconfig={}", scratch.path("kc").display());
    for command in ["apiserver", "playground"] {
        for listen in ["--listen=0.0.0.0:0", "--listen=[::]:0", "--listen=192.0.2.1:0"] {
            refused(&[command, &kubeconfig, listen], 2, &["AlwaysAllow", "loopback", "--allow-remote-clients"]);
        }
    }
}

#[test]
fn a_kubeconfig_of_other_clusters_is_never_replaced() {
    let scratch = Scratch::new("foreign-kubeconfig");
    let text = "apiVersion: v1\nkind: Config\nclusters:\n- name: prod\n  cluster: {server: https://prod.example}\n";
    let path = scratch.file("config", text);
    let flag = format!("--kubeconfig={}", path.display());
    for command in [&["apiserver", "--listen=127.0.0.1:0"][..], &["playground"]] {
        refused(
            &[command, &[&flag]].concat(),
            2,
            &["--kubeconfig", "contains the clusters prod", "specify another file"],
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
    // The file of an earlier run is replaced.
    let server = Server::start("own-kubeconfig", &[]);
    fs::copy(server.kubeconfig(), &path).unwrap();
    drop(server);
    let mut again = support::Program::start("own-kubeconfig", &["apiserver", "--listen=127.0.0.1:0", &flag]);
    again.wait_for("API server ready at ");
}

#[cfg(target_os = "linux")]
#[test]
fn a_failed_write_to_standard_output_is_an_error() {
    let cases: [&[&str]; 5] = [
        &["--version"],
        &["--help"],
        &["apiserver", "--help"],
        &["manifests", "--cloud-provider=local", "--configure-cloud-routes=false"],
        &["check", "--cloud-provider=local", "--master=http://127.0.0.1:1"],
    ];
    for arguments in cases {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = std::process::Command::new(support::BOWLINE);
        let output = command.args(arguments).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Runs the binary under another program name.
#[cfg(unix)]
fn called(name: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
    let scratch = Scratch::new("called");
    let link = scratch.path(name);
    std::os::unix::fs::symlink(support::BOWLINE, &link).unwrap();
    let mut command = std::process::Command::new(&link);
    let output = command.args(arguments).env_remove("KUBECONFIG").env_remove("BOWLINE_LOG").output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[cfg(unix)]
#[test]
fn under_the_name_of_a_go_manager_it_is_only_the_manager() {
    let cases: [(&str, &[&str], &str); 6] = [
        ("cloud-controller-manager", &[], "\n--cloud-provider cannot be empty"),
        (
            "cloud-controller-manager",
            &["plan"],
            "\"cloud-controller-manager\" does not take any arguments, got [\"plan\"]",
        ),
        (
            "openstack-cloud-controller-manager",
            &["--leader-elect", "false", "on"],
            "\"openstack-cloud-controller-manager\" does not take any arguments, got [\"false\" \"on\"]",
        ),
        ("cloud-controller-manager", &["--clod-provider=local"], "did you mean --cloud-provider?"),
        // Arguments of a manifest for an image without an entry point.
        ("bowline", &["/bin/harbour-cloud-controller-manager", "--v=1"], "--cloud-provider cannot be empty"),
        // The program name sets the cloud provider.
        ("bowline", &["/bin/openstack-cloud-controller-manager", "--v=1"], "OpenStack needs a configuration"),
    ];
    for (name, arguments, expected) in cases {
        let (code, stdout, stderr) = called(name, arguments);
        assert_eq!((code, stdout.as_str()), (Some(1), ""), "{name} {arguments:?}: {stderr}");
        assert!(stderr.contains(expected), "{name} {arguments:?}: {stderr}");
    }
}

#[cfg(unix)]
#[test]
fn under_the_name_of_a_go_admission_server_it_serves_the_webhooks_of_that_cloud() {
    for (name, arguments) in [
        ("openstack-cloud-controller-manager-admission-server", &["-v", "2"][..]),
        ("bowline", &["/bin/openstack-cloud-controller-manager-admission-server", "-v=2"]),
    ] {
        let (code, _, stderr) = called(name, arguments);
        let is_expected = stderr.contains("failed to start admission server: ") && stderr.contains("OpenStack needs");
        assert!(code == Some(2) && is_expected, "{name} {arguments:?}: {code:?} {stderr}");
    }
}

#[cfg(unix)]
#[test]
fn help_and_version_are_printed_with_exit_code_0() {
    let version = format!("bowline {}\n", env!("CARGO_PKG_VERSION"));
    for (name, flag) in [
        ("bowline", "--version"),
        ("cloud-controller-manager", "--version"),
        ("cloud-controller-manager", "--version=true"),
        ("cloud-controller-manager", "--version=T"),
    ] {
        assert_eq!(called(name, &[flag]), (Some(0), version.clone(), String::new()), "{name} {flag}");
    }
    let (code, raw, _) = called("cloud-controller-manager", &["--version=raw"]);
    assert!(code == Some(0) && raw.contains("platform:"), "{raw}");
    let (code, _, stderr) = called("cloud-controller-manager", &["--version=false"]);
    assert!(code == Some(1) && stderr.contains("--cloud-provider cannot be empty"), "{stderr}");
    let (code, _, stderr) = called("cloud-controller-manager", &["--version=v1.37.0"]);
    assert!(code == Some(1) && stderr.contains("--version=v1.37.0 has no effect"), "{stderr}");
    for flag in ["-h", "--help"] {
        let (code, help, _) = called("cloud-controller-manager", &[flag]);
        assert_eq!(code, Some(0));
        for group in ["Secure serving:", "Authentication:", "Authorization:", "Webhooks:", "Logging:", "Debugging:"] {
            assert!(help.contains(group), "{flag}: {group} is missing");
        }
        assert!(help.starts_with("A cloud controller manager for Kubernetes.\n"), "{help}");
        assert!(!help.contains("apiserver\n") && help.contains("Usage: cloud-controller-manager"), "{help}");
    }
}

#[cfg(unix)]
#[test]
fn without_arguments_it_is_the_manager_in_a_pod_and_otherwise_an_invalid_command_line() {
    let text = refused(&[], 2, &["Usage", "bowline playground", "bowline check", "bowline plan", "docs/README.md"]);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let mut command = std::process::Command::new(support::BOWLINE);
    let output = command.env("KUBERNETES_SERVICE_HOST", "10.96.0.1").env_remove("BOWLINE_LOG").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && output.stdout.is_empty(), "{text}");
    assert!(text.contains("\n--cloud-provider cannot be empty"), "{text}");
}

#[cfg(target_os = "linux")]
#[test]
fn without_arguments_it_prints_one_screen_on_a_terminal() {
    // util-linux runs a command on a terminal of its own.
    let mut command = std::process::Command::new("script");
    command.args(["-qec", support::BOWLINE, "/dev/null"]).env_remove("KUBERNETES_SERVICE_HOST").env("TERM", "xterm");
    let Ok(output) = command.env_remove("NO_COLOR").stdin(std::process::Stdio::null()).output() else {
        return support::skip("script is not installed");
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("\u{1b}[1mRun the manager:\u{1b}[0m") && text.lines().count() <= 24, "{text}");
}

#[test]
fn every_command_has_help_and_a_version() {
    let version = format!("bowline {}\n", env!("CARGO_PKG_VERSION"));
    let commands: [&[&str]; 14] = [
        &[],
        &["plan"],
        &["explain"],
        &["orphans"],
        &["check"],
        &["manifests"],
        &["admission-server"],
        &["apiserver"],
        &["playground"],
        &["cloud"],
        &["cloud", "add"],
        &["cloud", "list"],
        &["completion"],
        &["--v=2", "plan"],
    ];
    let printed = |words: &[&str], flag: &str| {
        let output = support::bowline(&[words, &[flag]].concat());
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && output.stderr.is_empty(), "{words:?} {flag}: {output:?}");
        text
    };
    for words in commands {
        assert_eq!(
            (printed(words, "-V"), printed(words, "--version")),
            (version.clone(), version.clone()),
            "{words:?}"
        );
        let (summary, all) = (printed(words, "--help"), printed(words, "--help-all"));
        assert_eq!(printed(words, "-h"), summary, "{words:?}");
        let flags = all.split("\nCloud providers: ").next().unwrap_or_default();
        assert!(summary.contains("Usage: bowline") && summary.lines().count() <= 90, "{words:?}: {summary}");
        assert!(all.lines().count() > summary.lines().count() && !flags.contains("Default: "), "{words:?}: {all}");
        for line in summary.lines().chain(all.lines()) {
            assert!(line.chars().count() <= 80 || !line.trim().contains(' '), "{words:?}: {line}");
        }
    }
    let (summary, all) = (printed(&[], "--help"), printed(&[], "--help-all"));
    assert!(!summary.contains("--leader-elect-lease-duration") && all.contains("--leader-elect-lease-duration"));
    assert_eq!(printed(&["help"], "plan"), printed(&["plan"], "--help"));
    let raw = printed(&["plan"], "--version=raw");
    assert!(raw.contains("platform:"), "{raw}");
}

#[test]
fn flags_before_a_command_are_its_flags() {
    let expected = refused(&["plan", "--knots=8"], 2, &["--knots: unknown flag"]);
    assert_eq!(refused(&["--knots=8", "plan"], 2, &[]), expected);
    refused(
        &["--leader-elect", "false", "plan"],
        1,
        &["\"bowline\" does not take any arguments, got [\"false\" \"plan\"]"],
    );
    refused(&["--v=2", "playground"], 2, &["unexpected argument '--v'"]);
    refused(&["--endpoint=http://127.0.0.1:1", "cloud", "list"], 1, &["127.0.0.1:1"]);
}

#[test]
fn every_command_has_the_documented_exit_code_for_an_invalid_command_line() {
    let object = "node/a";
    for words in [
        &["plan", "--knots=8"][..],
        &["plan", "-o", "xml"],
        &["explain", object, "--knots=8"],
        &["explain", "sail"],
        &["orphans", "--knots=8"],
        &["check", "-o", "xml"],
        &["manifests", "--kind=Sail"],
        &["admission-server", "--knots=8"],
        &["apiserver", "--knots=8"],
        &["playground", "--knots=8"],
        &["cloud", "--knots=8"],
        &["cloud", "list", "--knots=8"],
        &["completion", "tcsh"],
        &["sail"],
    ] {
        refused(words, 2, &[]);
    }
    // upstream: the manager's.
    refused(&["--knots=8"], 1, &["--knots: unknown flag"]);
}

#[test]
fn every_cause_is_printed_once() {
    let unreachable = "--master=http://127.0.0.1:1";
    let scratch = Scratch::new("causes");
    let missing = scratch.path("missing/file").display().to_string();
    let flag = |name: &str| format!("--{name}={missing}");
    let (kubeconfig, certificate, config, cloud_config) =
        (flag("kubeconfig"), flag("tls-cert-file"), flag("config"), flag("cloud-config"));
    let local = ["--cloud-provider=local", "--configure-cloud-routes=false"];
    let cases: [&[&str]; 11] = [
        &["plan", unreachable],
        &["explain", "node/a", unreachable],
        &["orphans", "--cluster-name=c", unreachable],
        &["check", unreachable],
        &["plan", &kubeconfig],
        &["check", &kubeconfig],
        &[&kubeconfig],
        &[&config, unreachable],
        &[&certificate, unreachable],
        &[&cloud_config, unreachable],
        &["--secure-port=1", "--bind-address=192.0.2.1", unreachable],
    ];
    let others: [&[&str]; 2] = [&["cloud", "list", "--endpoint=http://127.0.0.1:1"], &["apiserver", &kubeconfig]];
    let cases = cases.iter().map(|words| [words, &local[..]].concat()).chain(others.iter().map(|words| words.to_vec()));
    for words in cases {
        let output = support::bowline(&words);
        assert!(!output.status.success(), "{words:?}");
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        for line in text.lines() {
            let parts: Vec<_> = line.split(": ").map(|part| part.trim_matches([')', '(', ' '])).collect();
            let twice = parts.iter().enumerate().find(|(index, part)| part.len() > 8 && parts[..*index].contains(part));
            assert_eq!(twice, None, "{words:?}: {line}");
            assert!(line.matches("os error").count() <= 2, "{words:?}: {line}");
        }
    }
}

#[test]
fn an_invalid_log_filter_is_rejected() {
    let mut command = std::process::Command::new(support::BOWLINE);
    let output = command.arg("--cloud-provider=local").env("BOWLINE_LOG", "bowline=loud").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("BOWLINE_LOG: invalid filter \"bowline=loud\"") && text.contains("such as debug"), "{text}");
}

#[test]
fn an_unwritable_kubeconfig_is_rejected_before_the_start() {
    let scratch = Scratch::new("refused");
    let path = scratch.path("missing/kubeconfig");
    refused(&["apiserver", "--kubeconfig", path.to_str().unwrap()], 2, &["missing", "does not exist", "create it"]);
}

#[test]
fn an_address_in_use_is_an_error_with_the_address() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let scratch = Scratch::new("taken");
    let kubeconfig = scratch.path("kubeconfig");
    refused(&["apiserver", "--listen", &address, "--kubeconfig", kubeconfig.to_str().unwrap()], 1, &[&address]);
    assert!(!kubeconfig.exists(), "no kubeconfig for a server that did not start");
    for flags in [["apiserver", "--listen"], ["playground", "--listen"], ["cloud", "--listen"]] {
        let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
        let more = if flags[0] == "cloud" { Vec::new() } else { vec![kubeconfig.as_str()] };
        let output = support::bowline(&[&flags[..], &[&address], &more].concat());
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(text.matches("in use").count(), 1, "the cause is printed once: {text}");
    }
}

#[test]
fn the_ready_line_is_printed_and_both_signals_stop_it_cleanly() {
    for signal in ["-INT", "-TERM"] {
        let mut server = Server::start("signals", &[]);
        let expected = format!("API server ready at {} (kubeconfig {})\n", server.url(), server.kubeconfig().display());
        assert_eq!(server.ready, expected);
        assert!(server.stop(signal).success(), "after {signal}");
    }
}

#[cfg(unix)]
#[test]
fn the_kubeconfig_exists_when_the_server_is_ready_and_is_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let server = Server::start("private", &[]);
    let text = fs::read_to_string(server.kubeconfig()).unwrap();
    assert!(text.contains(server.url()), "{text}");
    assert_eq!(fs::metadata(server.kubeconfig()).unwrap().permissions().mode() & 0o777, 0o600);
}
