//! `bowline playground` on a terminal: a person presses Enter through the tour, resizes the window, and ends it.

use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::termios::{LocalFlags, Termios, tcgetattr};

use crate::console::Page;
use crate::support::pty::Pty;
use crate::support::{BOWLINE, Scratch, bowline, skip, within, workspace};

/// Generous timeout: the machine may be busy with other tests.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Key that sends SIGINT.
const CTRL_C: &str = "\x03";

/// Key that sends SIGTSTP.
const CTRL_Z: &str = "\x1a";

/// A playground on a pseudo-terminal of its own.
pub(crate) struct Terminal {
    child: Child,
    pty: Pty,
    /// Modes before the start.
    former: Termios,
    scratch: Scratch,
}

impl Terminal {
    /// Starts the playground with these environment variables; `None` where that is impossible.
    pub(crate) fn start(test: &str, environment: &[&str], flags: &[&str]) -> Option<Terminal> {
        // It makes the pseudo-terminal the controlling one, so that keys send signals.
        if Command::new("setsid").arg("--version").stdout(Stdio::null()).status().is_err() {
            skip("no setsid of util-linux for a controlling terminal");
            return None;
        }
        let scratch = Scratch::new(test);
        let pty = Pty::open(80);
        let former = tcgetattr(&pty.slave).unwrap();
        std::fs::create_dir(scratch.path("run")).unwrap();
        let child = Command::new("setsid")
            .args(["--ctty", "env", "-u", "BOWLINE_LOG", "-u", "NO_COLOR", "LC_ALL=C.UTF-8", "TERM=xterm-256color"])
            .arg(format!("XDG_RUNTIME_DIR={}", scratch.path("run").display()))
            .args(environment)
            .args([BOWLINE, "playground", "--kubeconfig=kubeconfig"])
            .args(flags)
            .current_dir(scratch.path(""))
            .stdin(pty.side())
            .stdout(pty.side())
            .stderr(pty.side())
            .spawn()
            .unwrap();
        Some(Terminal { child, pty, former, scratch })
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.pty.press(keys);
    }

    /// Everything that was written to the terminal.
    pub(crate) fn output(&self) -> String {
        self.pty.output()
    }

    /// Waits until the output has this text at least `times` times.
    pub(crate) fn wait_for(&self, text: &str, times: usize) {
        let seen = within(TIMEOUT, || (self.output().matches(text).count() >= times).then_some(()));
        assert!(seen.is_some(), "{text:?} was not printed {times} times: {}", self.output());
    }

    fn modes(&self) -> Termios {
        tcgetattr(&self.pty.slave).unwrap()
    }

    /// Waits for the end, and checks the state that it leaves behind.
    pub(crate) fn check_end(&mut self) -> ExitStatus {
        let status = within(TIMEOUT, || self.child.try_wait().unwrap());
        let status = status.unwrap_or_else(|| panic!("the playground does not end: {}", self.output()));
        assert_eq!(self.modes(), self.former, "the modes of the terminal are restored");
        let end = "The playground has stopped. It leaves only the file kubeconfig.\r\n";
        let ended = within(TIMEOUT, || self.output().ends_with(end).then_some(()));
        assert!(ended.is_some(), "the prompt of the shell follows on a line of its own: {}", self.output());
        assert_eq!(files(&self.scratch, ""), ["kubeconfig", "run"]);
        assert!(files(&self.scratch, "run").is_empty());
        status
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn files(scratch: &Scratch, folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(scratch.path(folder)).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

/// Returns the text without escape sequences; each carriage return starts a line.
pub(crate) fn plain(output: &str) -> String {
    let mut parts = output.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    let rest = parts.map(|part| part.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';').chars().skip(1));
    rest.fold(first, |text, part| text + &part.collect::<String>()).replace('\r', "\n")
}

/// Checks that every line that the page quotes from the tour was printed.
fn check_quotes(page: &str, printed: &str) {
    let text = std::fs::read_to_string(workspace().join(page)).unwrap();
    let blocks = text.split("```text\n").skip(1).filter_map(|rest| rest.split("```").next());
    let of_the_tour = blocks.filter(|block| block.contains("/15] "));
    let differs =
        |line: &str| ["export ", "alias ", "127.", "Passed after", "log ("].iter().any(|part| line.contains(part));
    let lines: Vec<_> =
        of_the_tour.flat_map(str::lines).filter(|line| line.trim() != "..." && !differs(line)).collect();
    assert!(lines.len() > 5, "{page} quotes nothing of the tour");
    for line in lines {
        assert!(printed.lines().any(|other| other == line), "{page} quotes {line:?}, which was not printed: {printed}");
    }
}

#[test]
fn enter_leads_through_the_tour_without_kubectl() {
    // Steps that the test performs with the command of the tour, and on the page, not with Enter.
    const STOP: usize = 9;
    const DELETE: usize = 12;
    let Some(mut terminal) = Terminal::start("enter", &["PATH=/nonexistent"], &[]) else { return };
    terminal.wait_for("Console ready at ", 1);
    terminal.wait_for("[1/15] ", 1);
    let output = plain(&terminal.output());
    let second = output.lines().filter(|line| !line.is_empty()).nth(1).unwrap();
    let mut page = Page::open(second.strip_prefix("Console ready at ").expect("the second line has the URL"));
    for number in 1..=15 {
        let step = format!("step/{number:02}");
        terminal.wait_for(&format!("[{number}/15] "), 1);
        if number > 1 {
            page.wait_for(&step, "/state", |state| state == "waiting");
        }
        match number {
            1 => {}
            DELETE => drop(page.act("deleteMachine", "m-3").unwrap()),
            STOP => {
                let output = plain(&terminal.output());
                let (_, url) = output.split_once("export BOWLINE_CLOUD_ENDPOINT=").unwrap();
                let endpoint = format!("--endpoint={}", url.lines().next().unwrap());
                let token = terminal.scratch.path("run/bowline").join(&files(&terminal.scratch, "run/bowline")[0]);
                let token = format!("--owner-token-file={}", token.display());
                let stopped = bowline(&["cloud", "stop", "m-3", &endpoint, &token]);
                assert!(stopped.status.success(), "{}", String::from_utf8_lossy(&stopped.stderr));
            }
            _ => terminal.press("\n"),
        }
        terminal.wait_for("Passed after ", number);
        page.wait_for(&step, "/state", |state| state == "passed");
        terminal.press("\n");
    }
    terminal.wait_for("That was the tour.", 1);
    let printed = plain(&terminal.output());
    for page in ["README.md", "docs/tutorials/playground.md"] {
        check_quotes(page, &printed);
    }
    assert!(printed.contains("kubectl is not installed"), "{printed}");
    assert!(printed.contains("curl -sS http://127."), "addresses are known, not looked up: {printed}");
    terminal.press("q");
    assert_eq!(terminal.check_end().code(), Some(0));
}

#[test]
fn ctrl_c_and_ctrl_z_restore_the_terminal() {
    let Some(mut terminal) = Terminal::start("ctrl-c", &[], &[]) else { return };
    terminal.wait_for("Passed after ", 1);
    assert!(!terminal.modes().local_flags.intersects(LocalFlags::ECHO | LocalFlags::ICANON), "keys arrive one by one");
    terminal.press("\n");
    terminal.wait_for("[2/15] ", 1);
    terminal.press(CTRL_Z);
    let stat = format!("/proc/{}/stat", terminal.child.id());
    let is_stopped = || std::fs::read_to_string(&stat).ok()?.contains(") T ").then_some(());
    if cfg!(target_os = "linux") {
        assert!(within(TIMEOUT, is_stopped).is_some(), "Ctrl-Z stops the playground");
        assert_eq!(terminal.modes(), terminal.former);
        let resumed = Command::new("kill").args(["-CONT", &terminal.child.id().to_string()]).status().unwrap();
        assert!(resumed.success());
        terminal.wait_for("[2/15] ", 2);
    }
    terminal.press("\n");
    terminal.wait_for("Checking", 1);
    terminal.press(CTRL_C);
    assert_eq!(terminal.check_end().code(), Some(0));
}

#[test]
fn the_pages_follow_the_size_of_the_terminal_and_need_no_colours() {
    let Some(mut terminal) = Terminal::start("resize", &["NO_COLOR=1"], &[]) else { return };
    terminal.wait_for("Passed after ", 1);
    let before = terminal.output();
    assert!(plain(&before).contains("\n  ✓  there are 3 Nodes\n"), "{before}");
    let resized = Command::new("stty").args(["cols", "60"]).stdin(terminal.pty.side()).status();
    if !resized.is_ok_and(|status| status.success()) {
        return skip("no stty to resize a terminal");
    }
    terminal.wait_for("\x1b[H\x1b[2J", 1);
    terminal.wait_for("Enter: next step", 2);
    terminal.press("l");
    terminal.wait_for("  INFO ", 1);
    terminal.press("l");
    let output = terminal.output();
    let narrow = &output[before.len()..];
    let (page, _) = narrow.split_once("Enter: next step").unwrap();
    let is_text = |line: &&str| !line.contains("kubectl") && !line.contains("bowline");
    for line in plain(page).lines().filter(is_text) {
        assert!(line.chars().count() <= 60, "{line}");
    }
    let colours = ["\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[36m"];
    assert!(!colours.iter().any(|colour| output.contains(colour)), "{output:?}");
    terminal.press(CTRL_C);
    assert_eq!(terminal.check_end().code(), Some(0));
}

#[test]
fn a_dumb_terminal_gets_plain_lines() {
    let Some(mut terminal) = Terminal::start("dumb", &["TERM=dumb"], &[]) else { return };
    terminal.wait_for("Passed after ", 1);
    terminal.wait_for("Enter: next step", 1);
    terminal.press("\n");
    terminal.wait_for("Enter: start this step", 1);
    assert!(!terminal.output().contains('\x1b'), "{:?}", terminal.output());
    terminal.press("q");
    assert_eq!(terminal.check_end().code(), Some(0));
}
