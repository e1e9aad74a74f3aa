//! The processes: chromedriver, which starts chromium, and a session.

use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use crate::http;

/// Several browsers at once are slower than one after the other.
static ONE: Mutex<()> = Mutex::new(());

/// A browser without a window, without requests of its own, and with a profile that exists only for the test.
const ARGUMENTS: &[&str] = &[
    "--headless=new",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--no-default-browser-check",
    "--no-first-run",
    "--no-pings",
    "--window-size=1440,900",
];

pub(crate) struct Driver {
    process: Child,
    address: SocketAddr,
    session: String,
    profile: PathBuf,
    _one: MutexGuard<'static, ()>,
}

impl Driver {
    /// Starts chromedriver and a session, or returns why there is no browser.
    pub(crate) fn start() -> Result<Driver, String> {
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let program = std::env::var("BOWLINE_CHROMEDRIVER").unwrap_or_else(|_| "chromedriver".to_owned());
        let mut command = Command::new(&program);
        command.args(["--port=0"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().map_err(|error| format!("cannot start {program}: {error}"))?;
        let port = port(&mut process).ok_or_else(|| format!("{program} has not printed its port"));
        let profile = std::env::temp_dir().join(format!("bowline-browser-{}-{}", std::process::id(), process.id()));
        let mut driver = Driver {
            address: (Ipv4Addr::LOCALHOST, *port.as_ref().unwrap_or(&0)).into(),
            session: String::new(),
            process,
            profile,
            _one: one,
        };
        port?;
        let session = http::send(driver.address, "POST", "/session", Some(&capabilities(&driver.profile)))?;
        let id = session["sessionId"].as_str().ok_or_else(|| format!("there is no session: {session}"))?;
        driver.session = format!("/session/{id}");
        Ok(driver)
    }

    /// Sends a command to the session, and returns its value.
    pub(crate) fn command(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let answer = http::send(self.address, method, &format!("{}{path}", self.session), body);
        answer.unwrap_or_else(|error| panic!("{method} {path} {}: {error}", body.unwrap_or(&Value::Null)))
    }
}

/// Returns the port that chromedriver prints.
fn port(process: &mut Child) -> Option<u16> {
    let mut lines = BufReader::new(process.stdout.take()?).lines().map_while(Result::ok);
    let line = lines.find(|line| line.contains("started successfully on port"))?;
    // Reads on, so that the driver never waits for the pipe.
    std::thread::spawn(move || lines.for_each(drop));
    line.trim_end_matches('.').rsplit(' ').next()?.parse().ok()
}

fn capabilities(profile: &std::path::Path) -> Value {
    let mut arguments: Vec<_> = ARGUMENTS.iter().map(|argument| (*argument).to_owned()).collect();
    arguments.push(format!("--user-data-dir={}", profile.display()));
    // Chromium refuses to run its sandbox as root.
    if std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0) {
        arguments.push("--no-sandbox".to_owned());
    }
    let mut options = json!({ "args": arguments });
    if let Ok(program) = std::env::var("BOWLINE_CHROMIUM") {
        options["binary"] = json!(program);
    }
    json!({ "capabilities": { "alwaysMatch": {
        "browserName": "chrome",
        "goog:chromeOptions": options,
        "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
        "unhandledPromptBehavior": "ignore",
    } } })
}

impl Drop for Driver {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            // Ends chromium; the driver does not when it is killed.
            let _ended = http::send(self.address, "DELETE", &self.session, None);
        }
        let _killed = self.process.kill();
        let _exited = self.process.wait();
        let _removed = std::fs::remove_dir_all(&self.profile);
    }
}
