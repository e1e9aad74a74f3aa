//! The installed kubectl versions, each with its own server.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::support::{Server, finish, skip, workspace};

/// Timeout of one command. Generous: the machine may be busy with other tests.
const TIMEOUT: Duration = Duration::from_secs(40);

/// An installed kubectl.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    /// 29 for version 1.29.
    minor: u32,
}

/// Returns all installed kubectl programs: those in `BOWLINE_KUBECTL` (separated by `:`), the one on the path, and those named
/// `kubectl.1.N` in the same directory; one of each minor version.
pub(crate) fn installed() -> Vec<Program> {
    let named = std::env::var_os("BOWLINE_KUBECTL").unwrap_or_default();
    let mut paths: Vec<PathBuf> = std::env::split_paths(&named).collect();
    if let Some(path) = on_path("kubectl") {
        paths.extend(siblings(&path));
        paths.push(path);
    }
    let mut programs: Vec<_> = paths.into_iter().filter_map(Program::probe).collect();
    programs.sort_by_key(|program| program.minor);
    programs.dedup_by_key(|program| program.minor);
    programs
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&path).map(|directory| directory.join(name)).find(|file| file.is_file())?;
    found.canonicalize().ok()
}

/// `kubectl.1.29`, `kubectl.1.30`, … in the directory of `kubectl`.
fn siblings(kubectl: &Path) -> Vec<PathBuf> {
    let is_sibling = |path: &PathBuf| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("kubectl.1."));
    let entries = kubectl.parent().and_then(|directory| directory.read_dir().ok());
    entries.into_iter().flatten().flatten().map(|entry| entry.path()).filter(is_sibling).collect()
}

impl Program {
    /// Whether it is version 1.`minor` or newer.
    pub(crate) fn since(&self, minor: u32) -> bool {
        self.minor >= minor
    }

    /// Runs a program to get its version; `None` if it is not kubectl.
    fn probe(path: PathBuf) -> Option<Program> {
        let output = Command::new(&path).args(["version", "--client", "--output=json"]).output().ok()?;
        let version: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        let minor = version["clientVersion"]["minor"].as_str()?.trim_end_matches('+').parse().ok()?;
        Some(Program { path, minor })
    }
}

/// Runs a test once for every kubectl, each time with a new server.
pub(crate) fn with_every_kubectl(name: &str, flags: &[&str], test: impl Fn(&Kubectl)) {
    let programs = installed();
    if programs.is_empty() {
        return skip("no kubectl");
    }
    for program in programs {
        test(&Kubectl { server: Server::start(name, flags), program });
    }
}

/// A kubectl and the server it talks to.
pub(crate) struct Kubectl {
    program: Program,
    pub(crate) server: Server,
}

impl Kubectl {
    /// Whether it is version 1.`minor` or newer.
    pub(crate) fn since(&self, minor: u32) -> bool {
        self.program.since(minor)
    }

    /// Runs a command that must succeed. Arguments are separated by white space; none contains any.
    pub(crate) fn run(&self, arguments: &str) -> Answer {
        let answer = self.execute(arguments);
        assert_eq!(answer.code, Some(0), "{answer}");
        answer
    }

    /// Runs a command that must end with exit code 1.
    pub(crate) fn refused(&self, arguments: &str) -> Answer {
        let answer = self.execute(arguments);
        assert_eq!(answer.code, Some(1), "{answer}");
        answer
    }

    /// Runs a command and returns its result.
    pub(crate) fn execute(&self, arguments: &str) -> Answer {
        let output = finish(self.spawn(arguments), TIMEOUT);
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Answer {
            command: format!("kubectl 1.{} {arguments}", self.program.minor),
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// Starts a command that runs until it is stopped.
    pub(crate) fn follow(&self, arguments: &str) -> Following {
        let mut child = self.spawn(arguments);
        let stdout = child.stdout.take().unwrap();
        let (send, lines) = channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(stdout).lines();
            lines.map_while(Result::ok).take_while(|line| send.send(line.clone()).is_ok()).for_each(drop);
        });
        Following { child, lines, command: format!("kubectl 1.{} {arguments}", self.program.minor) }
    }

    fn spawn(&self, arguments: &str) -> Child {
        let mut command = Command::new(&self.program.path);
        command.args(arguments.split_whitespace());
        command
            .current_dir(workspace())
            .env("KUBECONFIG", self.server.kubeconfig())
            // The discovery cache must be per server, or one version would read the cache of another.
            .env("HOME", self.server.scratch.path(""))
            // Most of the hundreds of commands run for less than a second: collecting garbage takes a quarter of their CPU time.
            .env("GOGC", "off")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    /// Writes a manifest to a file for `-f`.
    pub(crate) fn manifest(&self, name: &str, text: &str) -> String {
        self.server.scratch.file(name, text).display().to_string()
    }
}

/// Result of a command.
pub(crate) struct Answer {
    command: String,
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Answer {
    /// Checks that each text was printed, on either stream.
    #[track_caller]
    pub(crate) fn says(&self, texts: &[&str]) -> &Answer {
        for text in texts {
            assert!(self.stdout.contains(text) || self.stderr.contains(text), "{text:?} is missing in {self}");
        }
        self
    }

    /// Checks that a line consists of these words, however they are spaced.
    #[track_caller]
    pub(crate) fn lists(&self, words: &str) -> &Answer {
        let same = |line: &str| line.split_whitespace().eq(words.split_whitespace());
        assert!(self.stdout.lines().any(same), "no line {words:?} in {self}");
        self
    }

    /// Checks the first word of every line.
    #[track_caller]
    pub(crate) fn lists_in_order(&self, names: &[&str]) -> &Answer {
        let first: Vec<_> = self.stdout.lines().filter_map(|line| line.split_whitespace().next()).collect();
        assert_eq!(first, names, "{self}");
        self
    }

    /// Checks the whole of the output.
    #[track_caller]
    pub(crate) fn prints(&self, text: &str) {
        assert_eq!(self.stdout.trim_end(), text, "{self}");
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{} (exit code {:?})", self.command, self.code)?;
        write!(f, "--- stdout\n{}--- stderr\n{}", self.stdout, self.stderr)
    }
}

/// A running command, killed on drop.
pub(crate) struct Following {
    child: Child,
    lines: Receiver<String>,
    command: String,
}

impl Following {
    /// Waits for a line that contains all these texts.
    #[track_caller]
    pub(crate) fn sees(&self, texts: &[&str]) {
        let mut seen = Vec::new();
        while let Ok(line) = self.lines.recv_timeout(TIMEOUT) {
            if texts.iter().all(|text| line.contains(text)) {
                return;
            }
            seen.push(line);
        }
        panic!("{} did not print {texts:?} but\n{}", self.command, seen.join("\n"));
    }

    /// Waits until it exits successfully.
    #[track_caller]
    pub(crate) fn ends(mut self) {
        let status = crate::support::within(TIMEOUT, || self.child.try_wait().unwrap());
        assert!(status.is_some_and(|status| status.success()), "{} ended with {status:?}", self.command);
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
