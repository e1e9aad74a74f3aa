//! Output stream of the log, which never blocks for long and never fails.
//!
//! A log reader that hangs or exits must not stop the manager. Lines are written unbuffered, so that none is lost when the process
//! exits. If the stream is full, the first line waits for a short time; the following ones are dropped and counted until the stream
//! accepts writes again, and then the number is logged.

use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tracing::Level;

/// Maximum time that a line waits for the stream: enough for a working reader, and short for the other threads.
const WRITE_TIMEOUT: Duration = Duration::from_millis(100);

/// Maximum time that an error before the end of the process waits for standard error.
const ERROR_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum size of an atomic write to a pipe (`PIPE_BUF`).
const CHUNK: usize = 4096;

/// One stream for all lines, or a separate one for errors.
pub(super) struct Sink {
    all: Stream,
    /// Stream of errors; `all` then gets the other lines.
    errors: Option<(Errors, Stream)>,
}

/// Levels that go to the stream of errors. upstream: the formats differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Errors {
    /// Text format: errors and warnings.
    AndWarnings,
    /// JSON format, which has no warnings: errors.
    Alone,
}

struct Stream(Mutex<State>);

struct State {
    out: Box<dyn Out>,
    /// Number of lines dropped since the last written one.
    dropped: u64,
    /// Whether the last line was written only in part.
    is_torn: bool,
}

/// Target of log lines.
trait Out: Write + Send {
    /// Waits until the target accepts a write; `false` after the timeout.
    fn is_writable(&self, timeout: Duration) -> bool;
}

impl Sink {
    /// Standard error; with a split, standard output for all but errors.
    pub(super) fn standard(split: Option<Errors>) -> Sink {
        let error = Stream::new(standard(io::stderr(), io::stderr()));
        match split {
            None => Sink { all: error, errors: None },
            Some(errors) => {
                Sink { all: Stream::new(standard(io::stdout(), io::stdout())), errors: Some((errors, error)) }
            }
        }
    }

    /// Writes a line, or drops it. `notice` formats the line about dropped lines.
    pub(super) fn write(&self, level: Level, line: &str, notice: impl FnOnce(u64) -> String) {
        let is_selected = |(errors, _): &&(Errors, Stream)| match errors {
            Errors::AndWarnings => level <= Level::WARN,
            Errors::Alone => level == Level::ERROR,
        };
        let stream = self.errors.as_ref().filter(is_selected).map_or(&self.all, |(_, stream)| stream);
        stream.write(line, notice);
    }
}

impl Stream {
    fn new(out: Box<dyn Out>) -> Stream {
        Stream(Mutex::new(State { out, dropped: 0, is_torn: false }))
    }

    fn write(&self, line: &str, notice: impl FnOnce(u64) -> String) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.dropped > 0 {
            let notice = notice(state.dropped);
            if !state.put(&notice) {
                state.dropped += 1;
                return;
            }
            state.dropped = 0;
        }
        if !state.put(line) {
            state.dropped += 1;
        }
    }
}

impl State {
    /// Writes the line, and returns whether it was written completely.
    fn put(&mut self, line: &str) -> bool {
        // The end of a torn line goes into the first chunk, which is written completely or not at all.
        let end = if self.is_torn { "\n" } else { "" };
        let text = format!("{end}{line}");
        let mut chunks = text.as_bytes().chunks(CHUNK).enumerate();
        // Other threads wait for this write, so only the first line waits for the stream.
        let timeout = if self.dropped == 0 { WRITE_TIMEOUT } else { Duration::ZERO };
        let stuck = chunks.find(|(_, chunk)| !self.out.is_writable(timeout) || self.out.write_all(chunk).is_err());
        self.is_torn = stuck.is_some_and(|(index, _)| index > 0 || self.is_torn);
        stuck.is_none()
    }
}

/// Writes to standard error, outside of the log. Fails silently if the stream is closed, or if it stays full for a second: its reader
/// must not keep the process from exiting.
pub(super) fn print_error(text: &str) {
    print_to(&mut *standard(io::stderr(), io::stderr()), text, ERROR_TIMEOUT);
}

/// Writes a text. Only a full stream counts for the timeout, not a process without CPU time.
fn print_to(out: &mut dyn Out, text: &str, timeout: Duration) {
    let mut chunks = text.as_bytes().chunks(CHUNK);
    let _ = chunks.try_for_each(|chunk| match out.is_writable(timeout) {
        true => out.write_all(chunk),
        false => Err(io::ErrorKind::TimedOut.into()),
    });
}

/// Unbuffered standard stream of the process.
#[cfg(unix)]
fn standard(stream: impl std::os::fd::AsFd, otherwise: impl Write + Send + 'static) -> Box<dyn Out> {
    match stream.as_fd().try_clone_to_owned() {
        Ok(descriptor) => Box::new(std::fs::File::from(descriptor)),
        Err(_) => Box::new(Blocking(otherwise)),
    }
}

#[cfg(not(unix))]
fn standard(_: impl Write, stream: impl Write + Send + 'static) -> Box<dyn Out> {
    Box::new(Blocking(stream))
}

#[cfg(unix)]
impl Out for std::fs::File {
    fn is_writable(&self, timeout: Duration) -> bool {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        use std::os::fd::AsFd as _;
        let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::ZERO);
        let mut descriptors = [PollFd::new(self.as_fd(), PollFlags::POLLOUT)];
        // An interrupted or failed poll does not drop the line.
        !matches!(poll(&mut descriptors, timeout), Ok(0))
    }
}

/// Stream that cannot be polled.
struct Blocking<W>(W);

impl<W: Write> Write for Blocking<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl<W: Write + Send> Out for Blocking<W> {
    fn is_writable(&self, _: Duration) -> bool {
        true
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs::File;
    use std::io::Read as _;
    use std::os::fd::OwnedFd;
    use std::sync::Arc;

    use super::*;

    struct Memory(Arc<Mutex<Vec<u8>>>);

    impl Write for Memory {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Sink {
        /// Writes all lines to a buffer.
        pub(in super::super) fn to_memory(buffer: Arc<Mutex<Vec<u8>>>) -> Sink {
            Sink { all: Stream::new(Box::new(Blocking(Memory(buffer)))), errors: None }
        }
    }

    fn notice(dropped: u64) -> String {
        format!("{dropped} dropped\n")
    }

    #[test]
    fn a_blocked_reader_causes_dropped_lines_but_no_delay() {
        let (mut reader, writer) = io::pipe().unwrap();
        let stream = Stream::new(Box::new(File::from(OwnedFd::from(writer))));
        let line = format!("{}\n", "x".repeat(9_999));
        // More than the capacity of a pipe: this returns only if no write blocks.
        (0..1_000).for_each(|_| stream.write(&line, notice));
        let dropped = stream.0.lock().unwrap().dropped;
        assert!((1..1_000).contains(&dropped), "{dropped}");
        let drained = std::thread::spawn(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).map(|_| text)
        });
        // Lines may be dropped until the other thread has read from the pipe.
        while stream.0.lock().unwrap().dropped > 0 {
            stream.write("back\n", notice);
            std::thread::yield_now();
        }
        drop(stream);
        let text = drained.join().unwrap().unwrap();
        assert!(text.ends_with(" dropped\nback\n"), "{:?}", text.get(text.len() - 100..));
        // A slow reader can block the line after a notice as well, which causes a second notice.
        let is_whole = |line: &&str| line.len() == 9_999 || line.ends_with(" dropped") || *line == "back";
        let partial = text.lines().filter(|line| !is_whole(line)).count();
        assert!(partial <= 1, "only the line that met the full pipe is partial: {partial}");
    }

    #[test]
    fn an_error_is_printed_completely_unless_the_stream_stays_full() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut out = File::from(OwnedFd::from(writer));
        let text = "x".repeat(3 * CHUNK + 1);
        print_to(&mut out, &text, Duration::ZERO);
        // More than the capacity of a pipe: this returns only if no write blocks.
        print_to(&mut out, &"y".repeat(2 << 20), Duration::ZERO);
        drop(out);
        let mut found = String::new();
        reader.read_to_string(&mut found).unwrap();
        assert!(found.starts_with(&text) && found.len() < 2 << 20, "{}", found.len());
    }

    #[test]
    fn a_closed_reader_causes_no_error() {
        let (reader, writer) = io::pipe().unwrap();
        let stream = Stream::new(Box::new(File::from(OwnedFd::from(writer))));
        drop(reader);
        (0..10).for_each(|_| stream.write("line\n", notice));
    }

    #[test]
    fn a_split_stream_separates_errors_as_each_format_does() {
        let levels = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG];
        for (errors, expected) in [(Errors::AndWarnings, "ERROR WARN "), (Errors::Alone, "ERROR ")] {
            let (all, apart) = (Arc::default(), Arc::new(Mutex::new(Vec::new())));
            let stream = Stream::new(Box::new(Blocking(Memory(apart.clone()))));
            let sink = Sink { errors: Some((errors, stream)), ..Sink::to_memory(all) };
            levels.iter().for_each(|level| sink.write(*level, &format!("{level} "), notice));
            assert_eq!(apart.lock().unwrap().as_slice(), expected.as_bytes(), "{errors:?}");
        }
    }
}
