//! The manager as a process, with its resource usage and log.

use std::cell::Cell;
use std::fmt;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

use super::Failure;
use super::world::World;

/// Environment variable with another build of the manager.
const PROGRAM: &str = "BOWLINE_PROGRAM";

/// Temporary directory, removed on drop.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Result<Folder, Failure> {
        let path = std::env::temp_dir().join(format!("bowline-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Folder(path))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A leftover temporary directory is harmless.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A running manager, killed on drop.
pub(crate) struct Manager {
    child: Child,
    log: PathBuf,
    /// Processor time and length of the log at the last reset.
    before: Cell<(Duration, usize)>,
}

impl Drop for Manager {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = (self.child.kill(), self.child.wait());
    }
}

/// Cost of the work since the last reset.
pub(crate) struct Usage {
    busy: Duration,
    /// Peak and current resident memory, in KiB.
    peak: u64,
    resident: u64,
    pub(crate) log: usize,
    pub(crate) longest_line: usize,
}

impl Manager {
    pub(crate) fn start(world: &World) -> Result<Manager, Failure> {
        let built = option_env!("CARGO_BIN_EXE_bowline").map(str::to_owned);
        let program = std::env::var(PROGRAM).ok().or(built).ok_or("BOWLINE_PROGRAM is not set")?;
        let flags = [
            "--cloud-provider=local".to_owned(),
            format!("--cloud-config={}", world.cloud_config()?.display()),
            format!("--kubeconfig={}", world.kubeconfig()?.display()),
            "--leader-elect=false".to_owned(),
            "--secure-port=0".to_owned(),
            "--configure-cloud-routes=false".to_owned(),
        ];
        let log = world.path("log");
        let (stdout, stderr) = (File::create(world.path("stdout"))?, File::create(&log)?);
        let mut command = Command::new(program);
        command.args(flags).env_remove("KUBECONFIG").env_remove("BOWLINE_LOG").stdout(stdout).stderr(stderr);
        Ok(Manager { child: command.spawn()?, log, before: Cell::default() })
    }

    /// Resets the measurements.
    pub(crate) fn reset(&self) -> Result<(), Failure> {
        self.before.set((self.busy()?, self.read_log()?.len()));
        // Resets the peak to the current memory (proc(5)).
        Ok(std::fs::write(self.file("clear_refs"), "5")?)
    }

    pub(crate) fn usage(&self) -> Result<Usage, Failure> {
        let (busy, logged) = self.before.get();
        let text = self.read_log()?;
        let log = text.get(logged..).unwrap_or_default();
        let status = std::fs::read_to_string(self.file("status"))?;
        Ok(Usage {
            busy: self.busy()?.saturating_sub(busy),
            peak: kibibytes(&status, "VmHWM:")?,
            resident: kibibytes(&status, "VmRSS:")?,
            log: log.len(),
            longest_line: log.lines().map(str::len).max().unwrap_or_default(),
        })
    }

    /// Number of warnings and errors in its log.
    pub(crate) fn warnings(&self) -> Result<usize, Failure> {
        let is_warning = |line: &&str| line.contains(" WARN ") || line.contains(" ERROR ");
        Ok(self.read_log()?.lines().filter(is_warning).inspect(|line| println!("  {line}")).count())
    }

    fn read_log(&self) -> Result<String, Failure> {
        Ok(std::fs::read_to_string(&self.log)?)
    }

    pub(crate) fn stop(&mut self) -> Result<(), Failure> {
        let id = self.child.id().to_string();
        Command::new("kill").args(["-TERM", &id]).status()?;
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err(format!("the manager ended with {status}").into()) }
    }

    /// CPU time on all cores, in the kernel's ticks of 10 ms.
    fn busy(&self) -> Result<Duration, Failure> {
        let stat = std::fs::read_to_string(self.file("stat"))?;
        let (_, fields) = stat.rsplit_once(')').ok_or("no command in /proc/PID/stat")?;
        let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>).sum::<Result<u64, _>>()?;
        Ok(Duration::from_millis(ticks * 10))
    }

    fn file(&self, name: &str) -> String {
        format!("/proc/{}/{name}", self.child.id())
    }
}

fn kibibytes(status: &str, name: &str) -> Result<u64, Failure> {
    let line = status.lines().find_map(|line| line.strip_prefix(name)).ok_or_else(|| format!("no {name} in /proc"))?;
    Ok(line.split_whitespace().next().ok_or("an empty field in /proc")?.parse()?)
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [peak, resident] = [self.peak, self.resident].map(|kibibytes| kibibytes as f64 / 1024.0);
        write!(
            f,
            "{:.2} CPU s; peak {peak:.1} MiB, now {resident:.1} MiB; log {:.2} MB, longest line {} B",
            self.busy.as_secs_f64(),
            self.log as f64 / 1e6,
            self.longest_line
        )
    }
}
