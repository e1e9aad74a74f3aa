//! Status line of long work: what the command waits for, and for how long. One line on standard error, only if that is a terminal.
//!
//! ```text
//!  show("listing Nodes") ──► Waiting ──┐
//!  painter, a thread ──────────────────┼──► one line, replaced in place; erased when the work ends, and before other output
//!  output::print, say, the log ────────┘
//! ```
//!
//! There is one standard error, so there is one line, in a static.

use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use bowline_cloud::Clouds;

use crate::CLOSE_TIMEOUT;

/// Interval at which the line is painted.
const INTERVAL: Duration = Duration::from_millis(100);

/// Time before the first line, so that quick commands show none.
const DELAY: Duration = Duration::from_millis(300);

/// Width of a terminal that does not report its size.
const DEFAULT_COLUMNS: usize = 80;

/// Returns to the start of the line and erases it.
const ERASE: &str = "\r\x1b[K";

static LINE: Mutex<Line> = Mutex::new(Line { works: Vec::new(), last: 0, since: None, visible: String::new() });

/// The line and what it is about.
struct Line {
    /// Work in progress; the line shows the latest.
    works: Vec<Work>,
    /// Number of the latest work.
    last: u64,
    /// Start of the first work of this process.
    since: Option<Instant>,
    /// Text on the screen; empty if there is none.
    visible: String,
}

struct Work {
    number: u64,
    text: String,
    since: Instant,
}

/// Work that is shown until this is dropped.
#[must_use = "the line is erased when this is dropped"]
pub(crate) struct Waiting(u64);

/// Shows this text, such as `listing Nodes`, with the time since now.
pub(crate) fn show(text: impl Into<String>) -> Waiting {
    start_painter();
    let mut line = line();
    let (since, number) = (Instant::now(), line.last + 1);
    line.last = number;
    line.since.get_or_insert(since);
    line.works.push(Work { number, text: text.into(), since });
    Waiting(number)
}

/// Shows this text while the future runs.
pub(crate) async fn during<T>(text: impl Into<String>, future: impl Future<Output = T>) -> T {
    let _waiting = show(text);
    future.await
}

/// Shows that this happens in a cloud while the future runs.
pub(crate) async fn in_cloud<T>(cloud: &str, what: impl Display, future: impl Future<Output = T>) -> T {
    during(format!("cloud {cloud}: {what}"), future).await
}

/// Starts the clouds.
pub(crate) async fn start(clouds: &Clouds) {
    in_cloud(&names(clouds), "starting", clouds.start()).await;
}

/// Ends the sessions in the clouds.
pub(crate) async fn close(clouds: &Clouds) {
    in_cloud(&names(clouds), "ending the session", clouds.close(CLOSE_TIMEOUT)).await;
}

fn names(clouds: &Clouds) -> String {
    clouds.iter().map(|cloud| cloud.name().to_string()).collect::<Vec<_>>().join(", ")
}

/// Writes other output in place of the line, which is painted again afterwards.
pub(crate) fn above<T>(write: impl FnOnce() -> T) -> T {
    // Locked until the output is written, so that the painter does not come between.
    let mut line = line();
    line.erase(&mut io::stderr());
    write()
}

/// Returns standard error for the log, whose lines do not mix with the status line.
pub fn stderr() -> impl Write {
    StandardError
}

impl Waiting {
    /// Replaces the text. The time starts again if the text differs.
    #[cfg(feature = "playground")]
    pub(crate) fn change(&self, text: String) {
        let mut line = line();
        let found = line.works.iter_mut().find(|work| work.number == self.0);
        if let Some(work) = found.filter(|work| work.text != text) {
            (work.text, work.since) = (text, Instant::now());
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut line = line();
        line.works.retain(|work| work.number != self.0);
        if line.works.is_empty() {
            line.erase(&mut io::stderr());
        }
    }
}

fn line() -> MutexGuard<'static, Line> {
    LINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the thread that paints, if there is a terminal. It ends with the process.
fn start_painter() {
    static START: Once = Once::new();
    START.call_once(|| {
        let Some(style) = Style::of_stderr() else { return };
        let paint = move || {
            loop {
                std::thread::sleep(INTERVAL);
                line().paint(style, columns(), Instant::now(), &mut io::stderr());
            }
        };
        // Without a thread the command works as well.
        let _ = std::thread::Builder::new().name("progress".to_owned()).spawn(paint);
    });
}

impl Line {
    /// Paints the latest work, unless it is on the screen already. A terminal that is gone is not an error of the command.
    fn paint(&mut self, style: Style, columns: usize, now: Instant, out: &mut impl Write) {
        let is_early = self.since.is_none_or(|since| now.saturating_duration_since(since) < DELAY);
        let Some(work) = self.works.last().filter(|_| !is_early) else { return };
        let text = style.text(work, columns, now);
        if text != self.visible {
            let _ = write!(out, "{ERASE}{}", style.paint(&text)).and_then(|()| out.flush());
            self.visible = text;
        }
    }

    fn erase(&mut self, out: &mut impl Write) {
        if !std::mem::take(&mut self.visible).is_empty() {
            let _ = out.write_all(ERASE.as_bytes()).and_then(|()| out.flush());
        }
    }
}

/// Properties of the terminal.
#[derive(Debug, Clone, Copy)]
struct Style {
    colours: bool,
    unicode: bool,
}

impl Style {
    /// Returns the style of standard error; `None` if it is no terminal, or one that cannot replace a line.
    fn of_stderr() -> Option<Style> {
        io::stderr().is_terminal().then(|| Style::new(|name| std::env::var(name).ok())).flatten()
    }

    fn new(variable: impl Fn(&str) -> Option<String>) -> Option<Style> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(|name| variable(name)).unwrap_or_default();
        let locale = locale.to_ascii_lowercase();
        variable("TERM").filter(|terminal| terminal != "dumb").map(|_| Style {
            colours: variable("NO_COLOR").is_none(),
            unicode: locale.contains("utf-8") || locale.contains("utf8"),
        })
    }

    /// Returns the text of the line: at most as wide as the terminal, without control characters.
    fn text(self, work: &Work, columns: usize, now: Instant) -> String {
        let dots = if self.unicode { "…" } else { "..." };
        let seconds = match now.saturating_duration_since(work.since).as_secs() {
            0 => dots.to_owned(),
            seconds => format!("{dots} {seconds} s"),
        };
        // One column for the space, and the last one stays free: some terminals wrap as soon as it is used.
        let width = columns.saturating_sub(seconds.chars().count() + 2);
        let text = work.text.chars().map(|c| if c.is_control() { ' ' } else { c });
        format!("{} {seconds}", text.take(width).collect::<String>().trim_end())
    }

    fn paint(self, text: &str) -> String {
        if self.colours { format!("\x1b[2m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Returns the width of the terminal.
fn columns() -> usize {
    let size = terminal_size::terminal_size_of(io::stderr());
    size.map(|(width, _)| usize::from(width.0)).filter(|columns| *columns > 0).unwrap_or(DEFAULT_COLUMNS)
}

/// Standard error below the status line.
struct StandardError;

impl Write for StandardError {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        above(|| io::stderr().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Style = Style { colours: false, unicode: true };

    fn work(text: &str, since: Instant) -> Work {
        Work { number: 1, text: text.to_owned(), since }
    }

    #[test]
    fn the_line_has_the_time_and_fits_on_the_terminal() {
        let now = Instant::now();
        let text = |style: Style, columns, seconds| {
            style.text(&work("listing\nload balancers", now), columns, now + Duration::from_secs(seconds))
        };
        assert_eq!(text(PLAIN, 80, 0), "listing load balancers …");
        assert_eq!(text(PLAIN, 80, 3), "listing load balancers … 3 s");
        assert_eq!(text(Style { unicode: false, ..PLAIN }, 80, 3), "listing load balancers ... 3 s");
        assert_eq!(text(PLAIN, 20, 3), "listing load … 3 s");
        assert!(text(PLAIN, 20, 3).chars().count() < 20);
        assert_eq!(text(PLAIN, 1, 0), " …");
    }

    #[test]
    fn the_environment_determines_whether_there_is_a_line_and_its_colours() {
        let style = |variables: &[(&str, &str)]| {
            Style::new(|name| variables.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned()))
        };
        assert!(style(&[]).is_none() && style(&[("TERM", "dumb")]).is_none());
        let [colours, plain] = [&[("TERM", "xterm")][..], &[("TERM", "xterm"), ("NO_COLOR", "1")]].map(style);
        assert_eq!(colours.unwrap().paint("a"), "\x1b[2ma\x1b[0m");
        assert_eq!(plain.unwrap().paint("a"), "a");
        assert!(style(&[("TERM", "xterm"), ("LANG", "C.UTF-8")]).unwrap().unicode);
    }

    #[test]
    fn the_line_is_replaced_and_erased() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut line = Line { works: vec![work("a", start)], last: 1, since: Some(start), visible: String::new() };
        let painted = |line: &mut Line, millis| {
            let mut out = Vec::new();
            line.paint(PLAIN, 80, at(millis), &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(painted(&mut line, 100), "", "a quick command shows no line");
        assert_eq!(painted(&mut line, 300), "\r\x1b[Ka …");
        assert_eq!(painted(&mut line, 400), "", "nothing has changed");
        line.works.push(work("b", at(500)));
        assert_eq!(painted(&mut line, 500), "\r\x1b[Kb …", "the latest work is shown");
        line.works.pop();
        assert_eq!(painted(&mut line, 1_000), "\r\x1b[Ka … 1 s");
        let mut out = Vec::new();
        line.erase(&mut out);
        line.erase(&mut out);
        assert_eq!(out, ERASE.as_bytes(), "the line is erased once");
        assert_eq!(painted(&mut line, 1_100), "\r\x1b[Ka … 1 s");
        line.works.clear();
        assert_eq!(painted(&mut line, 1_200), "");
    }
}
