//! Shared code of the black-box tests: running the binary, temporary directories, skipping.
#![allow(dead_code, reason = "every test binary compiles this module and uses a part of it")]

pub(crate) mod cluster;
pub(crate) mod exposition;
pub(crate) mod pty;
pub(crate) mod report;
pub(crate) mod simulated;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Program under test.
pub(crate) const BOWLINE: &str = env!("CARGO_BIN_EXE_bowline");

/// Root of the workspace.
pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// Reports that a test was skipped, bypassing the test runner's capture, in the format that the CI gate counts.
pub(crate) fn skip(why: &str) {
    // Not `eprintln!`, which the runner captures.
    let line = format!("\nSKIPPED: {why}\n1 skipped\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

/// Temporary directory, removed on drop.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(test: &str) -> Scratch {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("bowline-{test}-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Creates a file in the directory.
    pub(crate) fn file(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        fs::write(self.path(name), text).unwrap();
        self.path(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A running `bowline apiserver` (or `playground`), killed on drop.
pub(crate) struct Server {
    child: Child,
    pub(crate) scratch: Scratch,
    /// The ready line.
    pub(crate) ready: String,
}

impl Server {
    /// Starts the API server on a free port and waits for the ready line.
    pub(crate) fn start(test: &str, flags: &[&str]) -> Server {
        let flags: Vec<_> = ["--listen=127.0.0.1:0"].iter().chain(flags).copied().collect();
        Server::start_command(test, "apiserver", &flags)
    }

    pub(crate) fn start_command(test: &str, command: &str, flags: &[&str]) -> Server {
        let scratch = Scratch::new(test);
        let mut child = Command::new(BOWLINE)
            .arg(command)
            .arg("--kubeconfig")
            .arg(scratch.path("kubeconfig"))
            .args(flags)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        // `by_ref` keeps the pipe open: the server may print more.
        let stdout = child.stdout.as_mut().unwrap();
        BufReader::with_capacity(1, stdout.by_ref()).read_line(&mut ready).unwrap();
        let server = Server { child, scratch, ready };
        assert!(server.ready.starts_with("API server ready at "), "the server did not start: {:?}", server.ready);
        server
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.scratch.path("kubeconfig")
    }

    /// CA certificate, as mounted into Pods.
    pub(crate) fn authority(&self) -> Vec<u8> {
        let mut kubeconfig = kube::config::Kubeconfig::read_from(self.kubeconfig()).unwrap();
        let authority = kubeconfig.clusters.remove(0).cluster.unwrap().certificate_authority_data.unwrap();
        base64::Engine::decode(&base64::prelude::BASE64_STANDARD, authority).unwrap()
    }

    /// Address from the ready line.
    pub(crate) fn url(&self) -> &str {
        self.ready.split_whitespace().find(|word| word.starts_with("https://")).unwrap()
    }

    /// Sends a signal and waits until the process exits.
    pub(crate) fn stop(&mut self, signal: &str) -> ExitStatus {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let status = within(Duration::from_secs(20), || self.child.try_wait().unwrap());
        status.expect("the server should stop on a signal")
    }

    /// Reads the output up to a line with this prefix, or to its end.
    pub(crate) fn read_until(&mut self, last: &str) -> String {
        let mut text = String::new();
        // One byte at a time: data read ahead would be lost to the next reader.
        let mut lines = BufReader::with_capacity(1, self.child.stdout.as_mut().unwrap());
        loop {
            let mut line = String::new();
            let ended = lines.read_line(&mut line).unwrap() == 0;
            text += &line;
            if ended || line.starts_with(last) {
                return text;
            }
        }
    }

    /// Reads all output after the ready line, until the process ends.
    pub(crate) fn rest_of_output(&mut self) -> String {
        let mut text = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        text
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A running program, killed on drop.
pub(crate) struct Program {
    child: Child,
    pub(crate) scratch: Scratch,
}

impl Program {
    /// Starts the binary with its output redirected to files, so that it never blocks on a full pipe.
    pub(crate) fn start(test: &str, arguments: &[&str]) -> Program {
        let mut command = Command::new(BOWLINE);
        Program::start_command(test, command.args(arguments).env_remove("KUBECONFIG").env_remove("BOWLINE_LOG"))
    }

    /// Starts any command in the same way.
    pub(crate) fn start_command(test: &str, command: &mut Command) -> Program {
        let scratch = Scratch::new(test);
        let file = |name: &str| fs::File::create(scratch.path(name)).unwrap();
        let child = command.stdout(file("stdout")).stderr(file("stderr")).spawn().unwrap();
        Program { child, scratch }
    }

    /// Process ID.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Output so far, standard output and standard error.
    pub(crate) fn output(&self) -> String {
        ["stdout", "stderr"].map(|name| fs::read_to_string(self.scratch.path(name)).unwrap()).join("")
    }

    /// Waits for a line that contains `mark`, and returns the text after it.
    pub(crate) fn wait_for(&mut self, mark: &str) -> String {
        let find = |printed: String| Some(printed.lines().find_map(|line| line.split_once(mark))?.1.to_owned());
        let found = within(Duration::from_secs(20), || find(self.output()));
        found.unwrap_or_else(|| panic!("missing {mark:?} in the output: {}", self.output()))
    }

    /// Exit status, if the process has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success(), "the process has already ended: {}", self.output());
    }

    /// Sends a signal and waits until the process exits.
    pub(crate) fn stop(&mut self, signal: &str) -> ExitStatus {
        self.signal(signal);
        let status = within(Duration::from_secs(30), || self.child.try_wait().unwrap());
        status.unwrap_or_else(|| panic!("the process did not stop: {}", self.output()))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the binary to completion.
pub(crate) fn bowline(arguments: &[&str]) -> Output {
    let mut command = Command::new(BOWLINE);
    command.args(arguments).env_remove("KUBECONFIG").env_remove("BOWLINE_LOG").env_remove("KUBERNETES_SERVICE_HOST");
    finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap(), Duration::from_secs(20))
}

/// Runs the binary and checks that it fails with this exit code and these parts of the message.
pub(crate) fn refused(arguments: &[&str], code: i32, expected: &[&str]) -> String {
    let output = bowline(arguments);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
    for part in expected {
        assert!(text.contains(part), "{arguments:?}: missing {part:?}: {text}");
    }
    assert!(output.stdout.is_empty(), "{arguments:?}: unexpected standard output");
    text
}

/// Waits for a program with little output, and kills it after the timeout.
pub(crate) fn finish(mut child: Child, timeout: Duration) -> Output {
    if within(timeout, || child.try_wait().unwrap()).is_none() {
        child.kill().unwrap();
    }
    child.wait_with_output().unwrap()
}

/// Polls until there is a result, or the timeout expires.
pub(crate) fn within<T>(timeout: Duration, mut poll: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(result) = poll() {
            return Some(result);
        }
        if Instant::now() > deadline {
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
