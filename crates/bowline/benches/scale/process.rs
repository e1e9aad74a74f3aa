//! The manager as a process, and what the kernel and its log say of it.

use std::cell::Cell;
use std::fmt;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

use super::Failure;
use super::world::World;

/// Names another build of the manager.
const PROGRAM: &str = "BOWLINE_PROGRAM";

/// A folder for files, removed with the value.
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
        // A folder that is left among temporary ones is only untidy.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Ended with the value.
pub(crate) struct Manager {
    child: Child,
    log: PathBuf,
    /// Processor time and length of the log at the last reset.
    before: Cell<(Duration, usize)>,
}

impl Drop for Manager {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = (self.child.kill(), self.child.wait());
    }
}

/// Cost of the work since the last reset.
pub(crate) struct Usage {
    busy: Duration,
    /// Largest resident memory, in KiB, and that now.
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

    /// Counts from here on.
    pub(crate) fn reset(&self) -> Result<(), Failure> {
        self.before.set((self.busy()?, self.said()?.len()));
        // Makes the current memory the largest so far (proc(5)).
        Ok(std::fs::write(self.file("clear_refs"), "5")?)
    }

    pub(crate) fn usage(&self) -> Result<Usage, Failure> {
        let (busy, logged) = self.before.get();
        let said = self.said()?;
        let log = said.get(logged..).unwrap_or_default();
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
        Ok(self.said()?.lines().filter(is_warning).inspect(|line| println!("  {line}")).count())
    }

    fn said(&self) -> Result<String, Failure> {
        Ok(std::fs::read_to_string(&self.log)?)
    }

    pub(crate) fn stop(&mut self) -> Result<(), Failure> {
        let id = self.child.id().to_string();
        Command::new("kill").args(["-TERM", &id]).status()?;
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err(format!("the manager ended with {status}").into()) }
    }

    /// How long it was busy, on all processors, by the kernel's hundredths of a second.
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
