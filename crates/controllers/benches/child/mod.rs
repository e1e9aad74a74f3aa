//! The manager in a process of its own, so that its memory and its work are its own: a benchmark starts itself again in
//! another role.

use std::path::Path;
use std::process::{Child as Process, Command, Stdio};

use bowline_controllers::manager::{self, ManagerOptions};
use bowline_kube::ClientOptions;
use bowline_runtime::{Clock, Shutdown};

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

const ROLE: &str = "BOWLINE_BENCH_ROLE";
const KUBECONFIG: &str = "BOWLINE_BENCH_KUBECONFIG";

/// A child in some role. It ends when its standard input is closed.
pub(crate) struct Child(Process);

/// The role of this process; empty in the one that was started by hand.
pub(crate) fn role() -> String {
    std::env::var(ROLE).unwrap_or_default()
}

impl Child {
    /// Starts one; `settings` are environment variables for it.
    pub(crate) fn spawn(role: &str, kubeconfig: &Path, settings: &[(&str, String)]) -> Result<Child, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.env(ROLE, role).env(KUBECONFIG, kubeconfig).envs(settings.iter().cloned());
        Ok(Child(command.stdin(Stdio::piped()).spawn()?))
    }

    /// Ends it, and waits for that.
    pub(crate) async fn end(mut self) -> Result<(), Failure> {
        drop(self.0.stdin.take());
        let status = tokio::task::spawn_blocking(move || self.0.wait()).await??;
        if status.success() { Ok(()) } else { Err(format!("the child ended with {status}").into()) }
    }

    /// What it holds now, in MiB.
    pub(crate) fn memory(&self) -> Result<f64, Failure> {
        self.status("VmRSS")
    }

    /// A size in its status, in MiB.
    fn status(&self, field: &str) -> Result<f64, Failure> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id()))?;
        let line = status.lines().find(|line| line.starts_with(field)).ok_or("no such field in /proc/PID/status")?;
        let kibibytes: f64 = line.split_whitespace().nth(1).ok_or("an empty field in /proc/PID/status")?.parse()?;
        Ok(kibibytes / 1024.0)
    }
}

/// In the child: the client that its parent meant.
pub(crate) async fn client() -> Result<kube::Client, Failure> {
    let kubeconfig = std::env::var_os(KUBECONFIG).ok_or("no kubeconfig given")?.into();
    let options = ClientOptions { kubeconfig: Some(kubeconfig), user: "bench".to_owned(), ..ClientOptions::default() };
    Ok(bowline_kube::connect(&options).await?)
}

/// In the child: runs the manager until the standard input is closed.
pub(crate) async fn manage(
    clouds: bowline_cloud::Clouds,
    options: ManagerOptions,
    metrics: prometheus::Registry,
) -> Result<(), Failure> {
    let shutdown = Shutdown::new();
    let wish = shutdown.clone();
    std::thread::spawn(move || {
        let _ = std::io::read_to_string(std::io::stdin());
        wish.request();
    });
    Ok(manager::run(client().await?, clouds, options, Clock::system(), metrics, shutdown).await?)
}
