//! Processes of a benchmark, and what they cost.

use std::io::Read;
use std::path::PathBuf;
use std::process::Command;

use crate::load::Result;

/// Environment variable with the path of HAProxy.
const HAPROXY: &str = "BOWLINE_HAPROXY";

/// Returns the path of HAProxy; without it, reports the skipped part.
pub(crate) fn haproxy() -> Option<PathBuf> {
    let program = std::env::var_os(HAPROXY).map_or_else(|| PathBuf::from("haproxy"), PathBuf::from);
    let is_there = Command::new(&program).arg("-v").stdout(std::process::Stdio::null()).status().is_ok();
    if !is_there {
        eprintln!("SKIPPED: HAProxy is neither in PATH nor named by {HAPROXY}");
    }
    is_there.then_some(program)
}

/// Reports to the parent process that this one accepts connections.
pub(crate) fn ready() {
    println!("ready");
}

/// Exits when the parent process ends, even if it is killed: that closes the pipe.
pub(crate) fn end_with_parent() {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
}

/// Runs a program with its soft open-files limit, often 1,024, raised to the hard limit.
pub(crate) fn with_open_files(program: PathBuf) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg("ulimit -n $(ulimit -Hn); exec \"$0\" \"$@\"").arg(program);
    command
}

/// Returns the CPU time that a process has used so far, in milliseconds.
pub(crate) fn cpu_time(process: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let after_name = stat.rsplit_once(')').ok_or("no name")?.1;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let field = |at: usize| -> Result<f64> { Ok(fields.get(at).ok_or("short")?.parse()?) };
    // In clock ticks of 10 ms: user and system.
    Ok((field(11)? + field(12)?) * 10.0)
}

pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
