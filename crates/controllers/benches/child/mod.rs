//! The manager in a process of its own, so that its memory and its work are its own: a benchmark starts itself again in
//! another role.

use std::path::PathBuf;
use std::process::{Child as Process, Command, Stdio};
use std::time::Duration;

use bowline_apiserver::ApiServer;
use bowline_controllers::manager::{self, ManagerOptions, Surroundings};
use bowline_kube::ClientOptions;
use bowline_runtime::{Clock, Shutdown};

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

const ROLE: &str = "BOWLINE_BENCH_ROLE";
const KUBECONFIG: &str = "BOWLINE_BENCH_KUBECONFIG";

/// How children find the API server. The file goes when this is dropped.
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
        // A left-over file in the folder for such files is only untidy.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A child in some role. It ends when its standard input is closed.
pub(crate) struct Child(Process);

/// The role of this process; empty in the one that was started by hand.
pub(crate) fn role() -> String {
    std::env::var(ROLE).unwrap_or_default()
}

impl Child {
    /// Starts one; `settings` are environment variables for it.
    pub(crate) fn spawn(role: &str, kubeconfig: &Kubeconfig, settings: &[(&str, String)]) -> Result<Child, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.env(ROLE, role).env(KUBECONFIG, &kubeconfig.0).envs(settings.iter().cloned());
        Ok(Child(command.stdin(Stdio::piped()).spawn()?))
    }

    /// Ends it, and waits for that.
    pub(crate) async fn end(mut self) -> Result<(), Failure> {
        drop(self.0.stdin.take());
        let status = tokio::task::spawn_blocking(move || self.0.wait()).await??;
        if status.success() { Ok(()) } else { Err(format!("the child ended with {status}").into()) }
    }

    /// Its memory in MiB: `VmRSS` is what it holds now, `VmHWM` the most that it ever held.
    pub(crate) fn memory(&self, field: &str) -> Result<f64, Failure> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id()))?;
        let line = status.lines().find(|line| line.starts_with(field)).ok_or("no such field in /proc/PID/status")?;
        let kibibytes: f64 = line.split_whitespace().nth(1).ok_or("an empty field in /proc/PID/status")?.parse()?;
        Ok(kibibytes / 1024.0)
    }

    /// How long it was busy, on all processors, by the kernel's hundredths of a second.
    pub(crate) fn processor_time(&self) -> Result<Duration, Failure> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id()))?;
        let (_, fields) = stat.rsplit_once(')').ok_or("no command in /proc/PID/stat")?;
        let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>).sum::<Result<u64, _>>()?;
        Ok(Duration::from_millis(ticks * 10))
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
    let desired = shutdown.clone();
    std::thread::spawn(move || {
        let _ = std::io::read_to_string(std::io::stdin());
        desired.request();
    });
    let surroundings = Surroundings::new(client().await?, clouds, Clock::system(), metrics);
    Ok(manager::run(surroundings, options, shutdown).await?)
}
