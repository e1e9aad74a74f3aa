//! Compares this data plane with HAProxy on loopback: throughput, new connections, added latency, memory. Prints figures and
//! asserts nothing.
//!
//! ```text
//! cargo bench -p bowline-l4 --bench haproxy [-- --seconds 3 --rounds 5 --threads 1 --idle 10000 --only latency]
//! ```
//!
//! There are four processes: this one is the client, and starts the backend, this data plane and HAProxy (from `PATH` or
//! `BOWLINE_HAPROXY`; without it, its column shows SKIPPED). Client and backend have one thread each and do the same work for both
//! load balancers. Rounds alternate between the two, so that other load on the machine affects both. The output has the median; for
//! latencies the minimum, because other load can only increase them. The CPU time of the load balancer is printed as well: it is
//! more meaningful than wall-clock time where client, backend and load balancer share few CPUs.

mod load;
mod process;

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use bowline_l4::{DataPlane, Limits, ListenerConfig, LoadBalancerConfig, Target, Transport};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use load::{ECHO, Result, Work, request};
use process::{cpu_time, end_with_parent, median, ready, with_open_files};

const ROLE: &str = "BOWLINE_L4_BENCH_ROLE";
const BACKEND_IP: [u8; 4] = [127, 77, 0, 1];
const OURS_IP: [u8; 4] = [127, 77, 0, 2];
const THEIRS_IP: [u8; 4] = [127, 77, 0, 3];
const PORT: u16 = 17_077;

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match std::env::var(ROLE).as_deref() {
        Ok("backend") => {
            end_with_parent();
            runtime.block_on(load::backend(SocketAddr::from((BACKEND_IP, PORT)), ready))
        }
        Ok("load balancer") => runtime.block_on(load_balancer(Settings::from_arguments())),
        _ => runtime.block_on(measure(&Settings::from_arguments())),
    }
}

struct Settings {
    seconds: u64,
    rounds: usize,
    threads: usize,
    idle: usize,
    only: Option<String>,
}

impl Settings {
    fn from_arguments() -> Settings {
        let arguments: Vec<String> = std::env::args().collect();
        let text = |name: &str| {
            let at = arguments.iter().position(|argument| argument == name);
            at.and_then(|at| arguments.get(at + 1)).cloned()
        };
        let value = |name: &str, default: usize| text(name).and_then(|value| value.parse().ok()).unwrap_or(default);
        let seconds = u64::try_from(value("--seconds", 3)).unwrap_or(3);
        let (rounds, threads, idle) = (value("--rounds", 5), value("--threads", 1), value("--idle", 10_000));
        Settings { seconds, rounds, threads, idle, only: text("--only") }
    }

    /// Returns the number of rounds of a measurement.
    fn rounds(&self, what: &str) -> usize {
        if self.only.as_deref().is_none_or(|only| only == what) { self.rounds } else { 0 }
    }

    fn time(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

// === This data plane ===

async fn load_balancer(settings: Settings) -> Result<()> {
    let plane = DataPlane::new(Limits { threads: settings.threads, ..Limits::default() });
    let target = Target::new(SocketAddr::from((BACKEND_IP, PORT)));
    let config = LoadBalancerConfig {
        addresses: vec![IpAddr::from(OURS_IP)],
        listeners: vec![ListenerConfig::new(Transport::Tcp, PORT, vec![target])],
        allow: Vec::new(),
        drain: Duration::ZERO,
    };
    let status = plane.set("bench", config).await?;
    if let Some(error) = status.listeners.iter().find_map(|listener| listener.error.clone()) {
        return Err(error.into());
    }
    ready();
    end_with_parent();
    std::future::pending().await
}

// === Starting them ===

struct Process {
    child: Child,
    address: SocketAddr,
}

impl Process {
    /// Starts this program in another role, with the open-files limit raised.
    fn start(role: &str, ip: [u8; 4]) -> Result<Process> {
        let mut child = with_open_files(std::env::current_exe()?)
            .args(std::env::args().skip(1))
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        if line.trim() != "ready" {
            return Err(format!("the {role} did not start").into());
        }
        Ok(Process { child, address: SocketAddr::from((ip, PORT)) })
    }

    async fn haproxy(settings: &Settings) -> Result<Option<Process>> {
        let Some(program) = process::haproxy() else { return Ok(None) };
        let file = std::env::temp_dir().join(format!("bowline-l4-bench-{}.cfg", std::process::id()));
        std::fs::File::create(&file)?.write_all(haproxy_config(settings).as_bytes())?;
        let child = with_open_files(program).arg("-db").arg("-f").arg(&file).stderr(Stdio::null()).spawn()?;
        let process = Process { child, address: SocketAddr::from((THEIRS_IP, PORT)) };
        let begun = Instant::now();
        while TcpStream::connect(process.address).await.is_err() {
            if begun.elapsed() > Duration::from_secs(10) {
                return Err("HAProxy did not start".into());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let _ = std::fs::remove_file(file);
        Ok(Some(process))
    }

    /// Returns the resident memory in KiB.
    fn memory(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
        Ok(line.trim().trim_end_matches(" kB").parse()?)
    }

    /// Runs a measurement, and returns the work per second, and the CPU time of the load balancer for a unit of work.
    async fn rate(&self, work: impl Future<Output = Result<Work>>, unit: f64) -> Result<Figure> {
        let before = cpu_time(self.child.id())?;
        let Work { amount, seconds } = work.await?;
        let cost = (cpu_time(self.child.id())? - before) / amount * unit;
        Ok(Figure { value: amount / seconds, cost })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn haproxy_config(settings: &Settings) -> String {
    let (listen, target) = (SocketAddr::from((THEIRS_IP, PORT)), SocketAddr::from((BACKEND_IP, PORT)));
    format!(
        "global\n  nbthread {}\n  maxconn {}\ndefaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1h\n  \
         timeout server 1h\n  backlog 4096\nlisten bench\n  bind {listen}\n  server one {target}\n",
        settings.threads,
        max_connections().min(20_000),
    )
}

/// Returns the number of connections that the open-files limit allows: two files each.
fn max_connections() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let hard =
        limits.lines().find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().nth(1)?.parse().ok());
    hard.map_or(20_000, |hard: usize| hard.saturating_sub(100) / 2)
}

// === Measuring ===

/// One measurement of one load balancer.
#[derive(Clone, Copy, Default)]
struct Figure {
    value: f64,
    /// CPU time of the load balancer for the same work.
    cost: f64,
}

async fn measure(settings: &Settings) -> Result<()> {
    if std::env::var_os("BOWLINE_L4_BENCH_FILES").is_none() {
        return again_with_open_files();
    }
    let backend = Process::start("backend", BACKEND_IP)?;
    let ours = Process::start("load balancer", OURS_IP)?;
    let theirs = Process::haproxy(settings).await?;
    let idle = settings.idle.min(max_connections());
    println!("{} thread(s) each, median of {} rounds of {} s", settings.threads, settings.rounds, settings.seconds);
    println!("{:<44}{:>12}{:>12}{:>9}", "", "this", "HAProxy", "ratio");
    let both = || [(0, Some(&ours)), (1, theirs.as_ref())].into_iter().filter_map(|(place, one)| Some((place, one?)));
    let rounds = |what: &str| (0..settings.rounds(what)).flat_map(|_| both());
    let mut fast = Pair::default();
    for (place, process) in rounds("throughput") {
        fast.add(place, process.rate(load::throughput(process.address, settings.time()), 1024.0).await?);
    }
    fast.print(["throughput, 64 connections, MiB/s", "  CPU time, ms/GiB"], median);
    let mut new = Pair::default();
    for (place, process) in rounds("connections") {
        new.add(place, process.rate(load::new_connections(process.address, settings.time()), 1000.0).await?);
    }
    new.print(["new connections, 1/s", "  CPU time, us each"], median);
    let mut late = Pair::default();
    for (place, process) in rounds("latency") {
        late.add(place, added_latency(process, backend.address, settings.time()).await?);
    }
    late.print(["added latency, p99, us", "  added latency, median, us"], lowest);
    let mut memory = Pair::default();
    for (place, process) in both().filter(|_| settings.rounds("memory") > 0) {
        memory.add(place, memory_of_idle(process, idle).await?);
    }
    memory.print([&format!("memory per idle connection of {idle}, KiB"), "  connections held"], median);
    if idle < settings.idle {
        println!("(the hard open-files limit does not allow {} connections)", settings.idle);
    }
    Ok(())
}

/// Starts this program again with the open-files limit raised: the client needs open files, too.
fn again_with_open_files() -> Result<()> {
    let mut again = with_open_files(std::env::current_exe()?);
    let status = again.args(std::env::args().skip(1)).env("BOWLINE_L4_BENCH_FILES", "raised").status()?;
    if status.success() { Ok(()) } else { Err("the benchmark process failed".into()) }
}

/// Measurements of this data plane and of HAProxy.
#[derive(Default)]
struct Pair([Vec<Figure>; 2]);

impl Pair {
    fn add(&mut self, place: usize, figure: Figure) {
        if let Some(figures) = self.0.get_mut(place) {
            figures.push(figure);
        }
    }

    fn print(&self, [value, cost]: [&str; 2], of_rounds: fn(Vec<f64>) -> Option<f64>) {
        self.print_one(value, |figure| figure.value, of_rounds);
        self.print_one(cost, |figure| figure.cost, of_rounds);
    }

    fn print_one(&self, name: &str, of: fn(&Figure) -> f64, of_rounds: fn(Vec<f64>) -> Option<f64>) {
        let [ours, theirs] = self.0.each_ref().map(|figures| of_rounds(figures.iter().map(of).collect()));
        match (ours, theirs) {
            (Some(ours), Some(theirs)) => println!("{name:<44}{ours:>12.1}{theirs:>12.1}{:>9.2}", ours / theirs),
            (Some(ours), None) => println!("{name:<44}{ours:>12.1}{:>12}", "SKIPPED"),
            (None, _) => {}
        }
    }
}

fn lowest(values: Vec<f64>) -> Option<f64> {
    values.into_iter().min_by(f64::total_cmp)
}

/// Measures the latency relative to direct connections to the backend: each client sends to both in turn.
async fn added_latency(process: &Process, backend: SocketAddr, time: Duration) -> Result<Figure> {
    let end = Instant::now() + time;
    let clients: Vec<_> = (0..8).map(|_| tokio::spawn(echo_both_until(process.address, backend, end))).collect();
    let mut added = Vec::new();
    for client in clients {
        added.extend(client.await??);
    }
    added.sort_by(f64::total_cmp);
    Ok(Figure { value: percentile(&added, 0.99), cost: percentile(&added, 0.5) })
}

async fn echo_both_until(load_balancer: SocketAddr, backend: SocketAddr, end: Instant) -> Result<Vec<f64>> {
    let (mut through, mut direct) = (request(load_balancer, ECHO).await?, request(backend, ECHO).await?);
    through.read_u8().await?;
    direct.read_u8().await?;
    let mut added = Vec::new();
    while Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(2)).await;
        let (long, short) = (round_trip(&mut through).await?, round_trip(&mut direct).await?);
        added.push((long.as_secs_f64() - short.as_secs_f64()) * 1e6);
    }
    Ok(added)
}

async fn round_trip(stream: &mut TcpStream) -> Result<Duration> {
    let (mut message, begun) = ([1; 64], Instant::now());
    stream.write_all(&message).await?;
    stream.read_exact(&mut message).await?;
    Ok(begun.elapsed())
}

fn percentile(sorted: &[f64], share: f64) -> f64 {
    let at = (sorted.len() as f64 * share) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

async fn memory_of_idle(process: &Process, count: usize) -> Result<Figure> {
    let before = process.memory()?;
    let mut open = Vec::new();
    for _ in 0..count {
        let mut stream = request(process.address, ECHO).await?;
        // The backend has answered, so the connection is established end to end.
        stream.read_u8().await?;
        open.push(stream);
    }
    let grown = process.memory()?.saturating_sub(before);
    let mut held = 0;
    for stream in &mut open {
        stream.write_all(&[2; 64]).await?;
        stream.read_exact(&mut [0; 64]).await?;
        held += 1;
    }
    Ok(Figure { value: grown as f64 / count as f64, cost: f64::from(held) })
}
