//! Where lines go: never for long, and never with an error.
//!
//! The manager must not stand still because whoever reads its log does, and must not end because nobody does. A line is
//! written at once, so that none is lost when the process ends. If there is no room for it, the first one waits for a moment;
//! those after it are dropped and counted until there is room again, and then the number is told.

use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tracing::Level;

/// How long a line may wait for room: enough for a reader that works, and little for everybody else.
const PATIENCE: Duration = Duration::from_millis(100);

/// What can be written to a pipe in one piece, once there is room at all.
const PIECE: usize = 4096;

/// One stream for all, or one for errors.
pub(super) struct Sink {
    all: Stream,
    /// With a split, `all` gets the rest.
    errors: Option<(Errors, Stream)>,
}

/// What goes to the stream for errors. upstream: the formats differ in that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Errors {
    /// In text also warnings.
    AndWarnings,
    /// In JSON, which has no warnings, errors.
    Alone,
}

struct Stream(Mutex<State>);

struct State {
    out: Box<dyn Out>,
    /// Lines that were dropped since the last one that was written.
    dropped: u64,
    /// The end of the last line was dropped.
    is_torn: bool,
}

/// What lines are written to.
trait Out: Write + Send {
    /// Whether there is room, at the latest after this long.
    fn has_room(&self, patience: Duration) -> bool;
}

impl Sink {
    /// Standard error; with a split, standard output for what is no error.
    pub(super) fn standard(split: Option<Errors>) -> Sink {
        let error = Stream::new(standard(io::stderr(), io::stderr()));
        match split {
            None => Sink { all: error, errors: None },
            Some(errors) => {
                Sink { all: Stream::new(standard(io::stdout(), io::stdout())), errors: Some((errors, error)) }
            }
        }
    }

    /// Writes a line, or drops it. `remark` makes a line of the number of those that were dropped before.
    pub(super) fn write(&self, level: Level, line: &str, remark: impl FnOnce(u64) -> String) {
        let goes_there = |(errors, _): &&(Errors, Stream)| match errors {
            Errors::AndWarnings => level <= Level::WARN,
            Errors::Alone => level == Level::ERROR,
        };
        let stream = self.errors.as_ref().filter(goes_there).map_or(&self.all, |(_, stream)| stream);
        stream.write(line, remark);
    }
}

impl Stream {
    fn new(out: Box<dyn Out>) -> Stream {
        Stream(Mutex::new(State { out, dropped: 0, is_torn: false }))
    }

    fn write(&self, line: &str, remark: impl FnOnce(u64) -> String) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.dropped > 0 {
            let remark = remark(state.dropped);
            if !state.put(&remark) {
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
    /// Whether all of the line was written. A stream that has failed takes everything: nobody reads it.
    fn put(&mut self, line: &str) -> bool {
        let end = if self.is_torn { "\n" } else { "" };
        let mut pieces = end.as_bytes().chunks(PIECE).chain(line.as_bytes().chunks(PIECE)).enumerate();
        // Everybody else waits for this one, so nobody waits twice.
        let patience = if self.dropped == 0 { PATIENCE } else { Duration::ZERO };
        let stuck = pieces.find(|(_, piece)| !self.out.has_room(patience) || self.out.write_all(piece).is_err());
        self.is_torn = stuck.is_some_and(|(index, _)| index > 0 || self.is_torn);
        stuck.is_none()
    }
}

/// A stream of the process without a buffer in front of it.
#[cfg(unix)]
fn standard(stream: impl std::os::fd::AsFd, otherwise: impl Write + Send + 'static) -> Box<dyn Out> {
    match stream.as_fd().try_clone_to_owned() {
        Ok(descriptor) => Box::new(std::fs::File::from(descriptor)),
        Err(_) => Box::new(Patient(otherwise)),
    }
}

#[cfg(not(unix))]
fn standard(_: impl Write, stream: impl Write + Send + 'static) -> Box<dyn Out> {
    Box::new(Patient(stream))
}

#[cfg(unix)]
impl Out for std::fs::File {
    fn has_room(&self, patience: Duration) -> bool {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        use std::os::fd::AsFd as _;
        let timeout = PollTimeout::try_from(patience).unwrap_or(PollTimeout::ZERO);
        let mut places = [PollFd::new(self.as_fd(), PollFlags::POLLOUT)];
        // An interrupted or failed question is no reason to drop anything.
        !matches!(poll(&mut places, timeout), Ok(0))
    }
}

/// A stream that cannot be asked.
struct Patient<W>(W);

impl<W: Write> Write for Patient<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl<W: Write + Send> Out for Patient<W> {
    fn has_room(&self, _: Duration) -> bool {
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
        /// Everything goes to a buffer.
        pub(in super::super) fn to_memory(buffer: Arc<Mutex<Vec<u8>>>) -> Sink {
            Sink { all: Stream::new(Box::new(Patient(Memory(buffer)))), errors: None }
        }
    }

    fn remark(dropped: u64) -> String {
        format!("{dropped} dropped\n")
    }

    #[test]
    fn a_reader_that_stands_still_costs_lines_and_no_time() {
        let (mut reader, writer) = io::pipe().unwrap();
        let stream = Stream::new(Box::new(File::from(OwnedFd::from(writer))));
        let line = format!("{}\n", "x".repeat(9_999));
        // More than any pipe holds: this ends only if nothing waits for the reader.
        (0..1_000).for_each(|_| stream.write(&line, remark));
        let dropped = stream.0.lock().unwrap().dropped;
        assert!((1..1_000).contains(&dropped), "{dropped}");
        let drained = std::thread::spawn(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).map(|_| text)
        });
        // Until the other thread has made room, it may be dropped, too.
        while stream.0.lock().unwrap().dropped > 0 {
            stream.write("back\n", remark);
            std::thread::yield_now();
        }
        drop(stream);
        let text = drained.join().unwrap().unwrap();
        assert!(text.ends_with(" dropped\nback\n"), "{:?}", text.get(text.len() - 100..));
        let lines: Vec<_> = text.lines().collect();
        let whole = lines.iter().filter(|line| line.len() == 9_999).count();
        assert!(lines.len() - whole <= 3, "one torn line, the remark, and what came after: {}", lines.len() - whole);
    }

    #[test]
    fn a_reader_that_is_gone_disturbs_nobody() {
        let (reader, writer) = io::pipe().unwrap();
        let stream = Stream::new(Box::new(File::from(OwnedFd::from(writer))));
        drop(reader);
        (0..10).for_each(|_| stream.write("line\n", remark));
    }

    #[test]
    fn a_split_puts_errors_apart_as_each_format_does() {
        let levels = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG];
        for (errors, wanted) in [(Errors::AndWarnings, "ERROR WARN "), (Errors::Alone, "ERROR ")] {
            let (all, apart) = (Arc::default(), Arc::new(Mutex::new(Vec::new())));
            let stream = Stream::new(Box::new(Patient(Memory(apart.clone()))));
            let sink = Sink { errors: Some((errors, stream)), ..Sink::to_memory(all) };
            levels.iter().for_each(|level| sink.write(*level, &format!("{level} "), remark));
            assert_eq!(apart.lock().unwrap().as_slice(), wanted.as_bytes(), "{errors:?}");
        }
    }
}
