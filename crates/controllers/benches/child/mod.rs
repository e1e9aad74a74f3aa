//! Child processes: a benchmark starts itself again in another role, so that memory and CPU time of the manager are measured
//! separately.

use std::path::PathBuf;
use std::process::{Child as Process, Command, Stdio};
use std::time::Duration;

use bowline_apiserver::ApiServer;
use bowline_controllers::manager::{self, Dependencies, ManagerOptions};
use bowline_kube::ClientOptions;
use bowline_runtime::{Clock, Shutdown};

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

const ROLE: &str = "BOWLINE_BENCH_ROLE";
const KUBECONFIG: &str = "BOWLINE_BENCH_KUBECONFIG";

/// Kubeconfig file for child processes; deleted on drop.
pub(crate) struct Kubeconfig(PathBuf);

impl Kubeconfig {
    pub(crate) fn of(server: &ApiServer) -> Result<Kubeconfig, Failure> {
        let path = std::env::temp_dir().join(format!("bowline-bench-{}.kubeconfig", std::process::id()));
        std::fs::write(&path, server.kubeconfig())?;
        Ok(Kubeconfig(path))
    }
}

impl Drop for Kubeconfig {
    fn drop(&mut self) {
        // A left-over temporary file is harmless.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Child process with a role. It ends when its standard input is closed.
pub(crate) struct Child(Process);

/// Role of this process; empty in the parent.
pub(crate) fn role() -> String {
    std::env::var(ROLE).unwrap_or_default()
}

impl Child {
    /// Starts a child with `settings` as environment variables.
    pub(crate) fn spawn(role: &str, kubeconfig: &Kubeconfig, settings: &[(&str, String)]) -> Result<Child, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.env(ROLE, role).env(KUBECONFIG, &kubeconfig.0).envs(settings.iter().cloned());
        Ok(Child(command.stdin(Stdio::piped()).spawn()?))
    }

    /// Ends the child and waits for it.
    pub(crate) async fn end(mut self) -> Result<(), Failure> {
        drop(self.0.stdin.take());
        let status = tokio::task::spawn_blocking(move || self.0.wait()).await??;
        if status.success() { Ok(()) } else { Err(format!("the child ended with {status}").into()) }
    }

    /// Memory in MiB: `VmRSS` is the current value, `VmHWM` the maximum.
    pub(crate) fn memory(&self, field: &str) -> Result<f64, Failure> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id()))?;
        let line = status.lines().find(|line| line.starts_with(field)).ok_or("no such field in /proc/PID/status")?;
        let kibibytes: f64 = line.split_whitespace().nth(1).ok_or("an empty field in /proc/PID/status")?.parse()?;
        Ok(kibibytes / 1024.0)
    }

    /// CPU time on all processors, in the kernel's hundredths of a second.
    pub(crate) fn processor_time(&self) -> Result<Duration, Failure> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id()))?;
        let (_, fields) = stat.rsplit_once(')').ok_or("no command in /proc/PID/stat")?;
        let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>).sum::<Result<u64, _>>()?;
        Ok(Duration::from_millis(ticks * 10))
    }
}

/// In the child: client for the parent's API server.
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
    let desired = shutdown.clone();
    std::thread::spawn(move || {
        let _ = std::io::read_to_string(std::io::stdin());
        desired.request();
    });
    let dependencies = Dependencies::new(client().await?, clouds, Clock::system(), metrics);
    Ok(manager::run(dependencies, options, shutdown).await?)
}
