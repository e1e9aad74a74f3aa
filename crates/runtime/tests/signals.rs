//! Signals request shutdown, and a second one exits at once. The test starts itself as a child process.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use bowline_runtime::Shutdown;

const ROLE: &str = "BOWLINE_TEST_SIGNALS";
const TEST: &str = "the_first_signal_requests_shutdown_and_the_second_exits";

#[test]
fn the_first_signal_requests_shutdown_and_the_second_exits() {
    if std::env::var_os(ROLE).is_some() {
        return run_child();
    }
    for (first, second, code) in [("TERM", "INT", 130), ("INT", "TERM", 143), ("INT", "INT", 130)] {
        let mut process = Process::start();
        process.wait_for("listening");
        process.send(first);
        process.wait_for("shutting down");
        process.send(second);
        assert_eq!(process.child.wait().unwrap().code(), Some(code), "{first}, then {second}");
    }
}

/// Prints the state of the shutdown, and never ends on its own.
fn run_child() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let shutdown = Shutdown::on_signals().unwrap();
        print("listening");
        shutdown.requested().await;
        print("shutting down");
        std::future::pending::<()>().await;
    });
}

fn print(text: &str) {
    let mut out = std::io::stdout();
    writeln!(out, "{text}").and_then(|()| out.flush()).unwrap();
}

struct Process {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Process {
    fn start() -> Process {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", TEST, "--nocapture"]).env(ROLE, "process").stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Process { child, output }
    }

    fn wait_for(&mut self, text: &str) {
        let line = self.output.by_ref().lines().map(Result::unwrap).find(|line| line.ends_with(text));
        assert!(line.is_some(), "the process ended before it printed {text:?}");
    }

    fn send(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("sh").args(["-c", "kill -s \"$0\" \"$1\"", signal, &pid]).status().unwrap();
        assert!(sent.success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails if the process has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
