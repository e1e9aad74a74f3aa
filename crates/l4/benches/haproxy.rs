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

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bowline_l4::{DataPlane, Limits, ListenerConfig, LoadBalancerConfig, Target, Transport};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const ROLE: &str = "BOWLINE_L4_BENCH_ROLE";
const HAPROXY: &str = "BOWLINE_HAPROXY";
const BACKEND_IP: [u8; 4] = [127, 77, 0, 1];
const OURS_IP: [u8; 4] = [127, 77, 0, 2];
const THEIRS_IP: [u8; 4] = [127, 77, 0, 3];
const PORT: u16 = 17_077;
/// First byte of a connection: the request to the backend.
const STREAM: u8 = b's';
const ECHO: u8 = b'e';
const ONCE: u8 = b'o';

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match std::env::var(ROLE).as_deref() {
        Ok("backend") => runtime.block_on(backend()),
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

// === The backend ===

async fn backend() -> Result<()> {
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::from((BACKEND_IP, PORT)))?;
    let listener = socket.listen(4096)?;
    ready();
    end_with_parent();
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream));
        }
    }
}

async fn answer(mut stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    match stream.read_u8().await? {
        STREAM => {
            let piece = vec![7; 256 * 1024];
            loop {
                stream.write_all(&piece).await?;
            }
        }
        ECHO => {
            // Allocated at the first request, so that idle connections cost the backend little.
            stream.write_u8(ECHO).await?;
            stream.readable().await?;
            let mut message = [0; 64];
            loop {
                stream.read_exact(&mut message).await?;
                stream.write_all(&message).await?;
            }
        }
        _ => Ok(stream.write_u8(ONCE).await?),
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

fn ready() {
    println!("ready");
}

/// Exits when the client process ends, even if it is killed: that closes the pipe.
fn end_with_parent() {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
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
        let program = std::env::var_os(HAPROXY).map_or_else(|| PathBuf::from("haproxy"), PathBuf::from);
        if Command::new(&program).arg("-v").stdout(Stdio::null()).status().is_err() {
            eprintln!("SKIPPED: HAProxy is neither in PATH nor named by {HAPROXY}");
            return Ok(None);
        }
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

    /// Returns the CPU time used so far, in clock ticks of 10 ms.
    fn ticks(&self) -> Result<u64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let after_name = stat.rsplit_once(')').ok_or("no name")?.1;
        let fields: Vec<&str> = after_name.split_whitespace().collect();
        let field = |at: usize| -> Result<u64> { Ok(fields.get(at).ok_or("short")?.parse()?) };
        Ok(field(11)? + field(12)?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a program with its soft open-files limit, often 1,024, raised to the hard limit.
fn with_open_files(program: PathBuf) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg("ulimit -n $(ulimit -Hn); exec \"$0\" \"$@\"").arg(program);
    command
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
        fast.add(place, throughput(process, settings.time()).await?);
    }
    fast.print(["throughput, 64 connections, MiB/s", "  CPU time, ms/GiB"], median);
    let mut new = Pair::default();
    for (place, process) in rounds("connections") {
        new.add(place, new_connections(process, settings.time()).await?);
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

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

fn lowest(values: Vec<f64>) -> Option<f64> {
    values.into_iter().min_by(f64::total_cmp)
}

async fn request(address: SocketAddr, what: u8) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    stream.write_u8(what).await?;
    Ok(stream)
}

async fn throughput(process: &Process, time: Duration) -> Result<Figure> {
    let before = process.ticks()?;
    let (begun, end) = (Instant::now(), Instant::now() + time);
    let readers: Vec<_> = (0..64).map(|_| tokio::spawn(read_until(process.address, end))).collect();
    let mut bytes = 0;
    for reader in readers {
        bytes += reader.await??;
    }
    let (seconds, ticks) = (begun.elapsed().as_secs_f64(), process.ticks()? - before);
    let mebibytes = bytes as f64 / (1024.0 * 1024.0);
    Ok(Figure { value: mebibytes / seconds, cost: ticks as f64 * 10.0 / (mebibytes / 1024.0) })
}

async fn read_until(address: SocketAddr, end: Instant) -> Result<usize> {
    let mut stream = request(address, STREAM).await?;
    let (mut buffer, mut bytes) = (vec![0; 256 * 1024], 0);
    while Instant::now() < end {
        bytes += stream.read(&mut buffer).await?;
    }
    stream.set_zero_linger()?;
    Ok(bytes)
}

async fn new_connections(process: &Process, time: Duration) -> Result<Figure> {
    let before = process.ticks()?;
    let (begun, end) = (Instant::now(), Instant::now() + time);
    let clients: Vec<_> = (0..64).map(|_| tokio::spawn(connect_until(process.address, end))).collect();
    let mut count = 0;
    for client in clients {
        count += client.await??;
    }
    let (seconds, ticks) = (begun.elapsed().as_secs_f64(), process.ticks()? - before);
    Ok(Figure { value: f64::from(count) / seconds, cost: ticks as f64 * 10_000.0 / f64::from(count) })
}

async fn connect_until(address: SocketAddr, end: Instant) -> Result<u32> {
    let mut count = 0;
    while Instant::now() < end {
        let mut stream = request(address, ONCE).await?;
        let mut answer = Vec::with_capacity(1);
        stream.read_to_end(&mut answer).await?;
        if answer != [ONCE] {
            return Err("a connection got no response".into());
        }
        count += 1;
    }
    Ok(count)
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
