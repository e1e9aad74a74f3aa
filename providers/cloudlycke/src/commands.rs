//! Runs commands of the host: no shell, arguments as a vector, no input, the locale `C`, and limits of time and output.
//!
//! Every run is a call of the call layer, so that rate limit, retries and metrics apply to it. Callers pass fixed subcommands and
//! validated IDs only; no text of a Node ever becomes an argument.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use bowline_cloud::{Call, Calls, Effect, Error, ErrorKind, Result, Retry};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// Maximum size of the standard output. `list vms` has some 80 bytes for each machine.
const MAX_OUTPUT: u64 = 4 * 1024 * 1024;

/// Maximum size of the standard error that is read.
const MAX_ERRORS: u64 = 64 * 1024;

/// A command of the host.
#[derive(Debug, Clone)]
pub(crate) struct Tool {
    calls: Calls,
    /// Name of the service in the call layer.
    service: &'static str,
    program: PathBuf,
    /// Key of the configuration that names the command.
    key: &'static str,
    /// Arguments before the subcommand.
    leading: Vec<String>,
    /// Kind of an error by the text of the command.
    classify: fn(&str) -> Option<ErrorKind>,
    timeout: Duration,
}

/// Result of a command that ended by itself.
struct Ended {
    code: Option<i32>,
    output: Vec<u8>,
    errors: Vec<u8>,
}

impl Tool {
    pub(crate) fn new(calls: &Calls, service: &'static str, key: &'static str, program: &str) -> Tool {
        let (calls, program) = (calls.clone(), program.into());
        let (leading, classify) = (Vec::new(), (|_: &str| None) as fn(&str) -> Option<ErrorKind>);
        Tool { calls, service, program, key, leading, classify, timeout: Duration::from_secs(20) }
    }

    /// Sets arguments that precede every subcommand.
    pub(crate) fn leading(self, leading: Vec<String>) -> Tool {
        Tool { leading, ..self }
    }

    /// Sets a function that returns the kind of an error from the standard error of the command.
    pub(crate) fn classify(self, classify: fn(&str) -> Option<ErrorKind>) -> Tool {
        Tool { classify, ..self }
    }

    /// Sets the timeout of one run.
    pub(crate) fn timeout(self, timeout: Duration) -> Tool {
        Tool { timeout, ..self }
    }

    /// Runs a subcommand and returns its standard output. `call` is the name in metrics.
    pub(crate) async fn read(&self, call: &'static str, arguments: &[&str]) -> Result<String> {
        let call = Call { service: self.service, name: call, effect: Effect::Read, limited: false };
        // The call layer has a timeout, too. That of the command comes first, because its error names the command. One more attempt is
        // enough: other lookups wait meanwhile.
        let calls = self.calls.with_timeout(self.timeout.saturating_mul(2)).with_max_attempts(2);
        calls.make(call, || self.run(arguments)).await
    }

    async fn run(&self, arguments: &[&str]) -> Result<String> {
        let ended = match timeout(self.timeout, self.complete(arguments)).await {
            Ok(ended) => ended?,
            // The future owned the process, which is killed when it is dropped.
            Err(_) => {
                let message = format!("no answer within {} s, stopped; run it by hand", self.timeout.as_secs_f32());
                return Err(self.error(ErrorKind::Unavailable, arguments, message));
            }
        };
        if ended.code != Some(0) {
            return Err(self.failed(arguments, &ended));
        }
        String::from_utf8(ended.output).map_err(|_| {
            self.error(ErrorKind::Unexpected, arguments, "its output is not UTF-8; run it by hand with LC_ALL=C")
        })
    }

    /// Runs the process to its end.
    async fn complete(&self, arguments: &[&str]) -> Result<Ended> {
        let mut child = self.spawn(arguments)?;
        let (output, errors) = (child.stdout.take(), child.stderr.take());
        let (output, errors) = tokio::join!(limited(output, MAX_OUTPUT), limited(errors, MAX_ERRORS));
        let failed = |error: std::io::Error| {
            self.error(ErrorKind::Unavailable, arguments, format!("its output cannot be read: {error}"))
        };
        let (output, errors) = (output.map_err(failed)?, errors.map_err(failed)?);
        if output.len() as u64 > MAX_OUTPUT {
            let message = format!("its output is larger than {} MiB", MAX_OUTPUT / 1024 / 1024);
            return Err(self.error(ErrorKind::Unexpected, arguments, message).too_large());
        }
        let status = child.wait().await.map_err(failed)?;
        Ok(Ended { code: status.code(), output, errors })
    }

    fn spawn(&self, arguments: &[&str]) -> Result<Child> {
        let mut command = Command::new(&self.program);
        command.args(&self.leading).args(arguments).env("LC_ALL", "C").stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command.spawn().map_err(|error| {
            let key = self.key;
            let (kind, fix) = match error.kind() {
                std::io::ErrorKind::NotFound => {
                    (ErrorKind::InvalidConfig, format!("install it on this host, or set {key} to its path"))
                }
                std::io::ErrorKind::PermissionDenied => {
                    (ErrorKind::PermissionDenied, format!("make the file executable, or set {key}"))
                }
                _ => (ErrorKind::Unavailable, "check the limits of this process".to_owned()),
            };
            self.error(kind, arguments, format!("cannot be started: {error}; fix: {fix}"))
        })
    }

    fn failed(&self, arguments: &[&str], ended: &Ended) -> Error {
        let errors = String::from_utf8_lossy(&ended.errors);
        let first = errors.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no message");
        let kind = (self.classify)(&errors).unwrap_or(ErrorKind::Unavailable);
        let code = ended.code.map_or_else(|| "was killed by a signal".to_owned(), |code| format!("exit code {code}"));
        let fix = match kind {
            ErrorKind::PermissionDenied | ErrorKind::Unauthenticated => {
                "run Bowline as the user that owns the machines"
            }
            _ => "run the command by hand as the same user",
        };
        self.error(kind, arguments, format!("{code}: {first}; fix: {fix}"))
    }

    /// Creates an error that names the command. The host changes without a notification, so each error is retried.
    fn error(&self, kind: ErrorKind, arguments: &[&str], message: impl std::fmt::Display) -> Error {
        let leading = self.leading.iter().map(String::as_str);
        let words: Vec<_> = leading.chain(arguments.iter().copied()).collect();
        let command = format!("{} {}", self.program.display(), words.join(" "));
        Error::new(kind, "run a command", format!("{command}: {message}")).retry(Retry::Backoff)
    }
}

/// Reads at most one byte more than the limit. A process that writes more gets a broken pipe.
async fn limited(pipe: Option<impl AsyncRead + Unpin>, limit: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(limit + 1).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}
