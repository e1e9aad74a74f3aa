//! The program of the release profile without the playground: tests of what optimisation, unwinding and a smaller set of features
//! could break. `BOWLINE_RELEASE` is the path of the program; without it these tests are skipped.

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::support::{Program, Server, finish, skip, within};

/// Environment variable with the program to test.
const RELEASE: &str = "BOWLINE_RELEASE";

/// Configuration of an unreachable cloud: the manager runs and retries.
const CLOUD_CONF: &str =
    "[Global]\nauth-url=http://127.0.0.1:1/v3\nusername=u\npassword=p\ntenant-name=t\ndomain-name=Default\n";

/// Returns the program, if there is one to test.
fn release() -> Option<String> {
    let program = std::env::var(RELEASE).ok();
    if program.is_none() {
        skip(&format!("no release build, {RELEASE} is not set"));
    }
    program
}

fn command(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).env_remove("KUBECONFIG").env_remove("BOWLINE_LOG").stdin(Stdio::null());
    command
}

fn run(program: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
    let child = command(program, arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let Output { status, stdout, stderr } = finish(child, Duration::from_secs(20));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (status.code(), text(&stdout), text(&stderr))
}

/// Starts an idle manager.
fn manager(program: &str, server: &Server, variables: &[(&str, &str)]) -> Program {
    let config = format!("--cloud-config={}", server.scratch.file("cloud.conf", CLOUD_CONF).display());
    let kubeconfig = format!("--kubeconfig={}", server.kubeconfig().display());
    let fixed =
        ["--cloud-provider=openstack", "--leader-elect=false", "--secure-port=0", "--configure-cloud-routes=false"];
    let arguments: Vec<&str> = fixed.into_iter().chain([config.as_str(), kubeconfig.as_str()]).collect();
    Program::start_command("release", command(program, &arguments).envs(variables.iter().copied()))
}

#[test]
fn the_raw_version_names_the_release_build() {
    let Some(program) = release() else { return };
    let version = format!("bowline {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(run(&program, &["--version"]), (Some(0), version, String::new()));
    let (code, raw, _) = run(&program, &["--version=raw"]);
    assert!(code == Some(0) && raw.contains("build: \"release\""), "{raw}");
}

#[test]
fn invalid_flags_have_the_exit_codes_of_other_builds() {
    let Some(program) = release() else { return };
    let cases: [(&[&str], i32, &str); 6] = [
        (&["sail"], 2, "unrecognized subcommand 'sail'"),
        (&["manifests", "--kind=Sail"], 2, "Sail"),
        (&["--knots=8"], 1, "--knots"),
        (&["--cloud-provider=harbour"], 1, "unknown cloud provider \"harbour\""),
        (
            &["playground", "--nodes=2"],
            2,
            "the command playground is not part of this build: it needs the feature `playground`",
        ),
        (&["lb-agent", "status"], 2, "the command lb-agent is not part of this build: it needs the feature `lb-agent`"),
    ];
    for (arguments, expected, message) in cases {
        let (code, stdout, stderr) = run(&program, arguments);
        assert_eq!((code, stdout.as_str()), (Some(expected), ""), "{arguments:?}: {stderr}");
        assert!(stderr.contains(message), "{arguments:?}: missing {message:?}: {stderr}");
    }
}

#[test]
fn a_closed_pipe_does_not_panic() {
    let Some(program) = release() else { return };
    for arguments in [&["--help"] as &[_], &["--version"], &["manifests", "--cloud-provider=openstack"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        // Rust programs ignore SIGPIPE, so the write fails.
        drop(reader);
        let child = command(&program, arguments).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        let output = finish(child, Duration::from_secs(20));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(0 | 1)), "{arguments:?}: {}, {stderr}", output.status);
        assert!(!stderr.contains("panicked"), "{arguments:?}: {stderr}");
    }
}

#[test]
fn either_signal_stops_the_manager_cleanly() {
    let Some(program) = release() else { return };
    for signal in ["-TERM", "-INT"] {
        let server = Server::start("release-signals", &[]);
        let mut manager = manager(&program, &server, &[]);
        manager.wait_for("starting");
        let status = manager.stop(signal);
        assert_eq!(status.code(), Some(0), "{signal}: {}", manager.output());
        assert!(manager.output().contains("stopped"), "{signal}: {}", manager.output());
    }
}

#[test]
fn a_task_that_panics_ends_the_manager_with_its_name_and_message() {
    let Some(program) = release() else { return };
    let server = Server::start("release-panic", &[]);
    let mut manager = manager(&program, &server, &[("BOWLINE_TEST_PANIC", "rope")]);
    let status = within(Duration::from_secs(30), || manager.ended()).expect("a panic ends the process");
    let printed = manager.output();
    assert_eq!(status.code(), Some(255), "{printed}");
    assert!(printed.contains("Error: the task panic panicked: rope"), "{printed}");
    assert!(printed.contains("panicked at crates/daemon/src/lib.rs"), "{printed}");
}
