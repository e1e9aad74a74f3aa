//! The log during the tour: the recent lines in memory, and all lines in a file if one is named.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Number of lines that are kept in memory.
const CAPACITY: usize = 500;

/// The log of this process. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct FoldedLog(Arc<Mutex<Lines>>);

#[derive(Debug, Default)]
struct Lines {
    file: Option<File>,
    recent: VecDeque<String>,
    /// Number of lines so far, with those that are not in memory any more.
    total: usize,
    /// Start of a line.
    partial: Vec<u8>,
}

impl Lines {
    fn push(&mut self, line: &[u8]) {
        if self.recent.len() == CAPACITY {
            self.recent.pop_front();
        }
        self.recent.push_back(String::from_utf8_lossy(line).trim_end().to_owned());
        self.total += 1;
    }
}

impl FoldedLog {
    /// Creates an empty log. Lines are also appended to the file.
    pub(super) fn new(file: Option<&Path>) -> io::Result<FoldedLog> {
        let file = file.map(|path| File::options().create(true).append(true).open(path)).transpose()?;
        Ok(FoldedLog(Arc::new(Mutex::new(Lines { file, ..Lines::default() }))))
    }

    /// Returns the number of lines so far.
    pub(super) fn total(&self) -> usize {
        self.lines().total
    }

    /// Returns the most recent message.
    pub(super) fn headline(&self) -> Option<String> {
        self.lines().recent.back().map(|line| headline(line).to_owned())
    }

    /// Returns the lines after the first `count` ones, as far as they are in memory.
    pub(super) fn after(&self, count: usize) -> Vec<String> {
        let lines = self.lines();
        let skipped = (count + lines.recent.len()).saturating_sub(lines.total);
        lines.recent.iter().skip(skipped).cloned().collect()
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writers do not mix their lines: the log writes each of them at once.
impl Write for FoldedLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut lines = self.lines();
        if let Some(file) = &mut lines.file {
            file.write_all(bytes)?;
        }
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let mut line = std::mem::take(&mut lines.partial);
            line.extend_from_slice(part);
            if line.ends_with(b"\n") { lines.push(&line) } else { lines.partial = line }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the message of a line, without time, spans and module.
fn headline(line: &str) -> &str {
    let is_module = |word: &str| word.contains("::") && word.ends_with(':') && !word.contains('{');
    let module = line.split_whitespace().find(|word| is_module(word));
    let message = module.and_then(|module| line.split_once(module)).map_or(line, |(_, message)| message.trim_start());
    // An Event is recorded with its object and reason, and says what happened in its note.
    message.split_once(" note=\"").map_or(message, |(_, note)| note.trim_end_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_of_a_line_is_shown() {
        let line = r#"2026-01-02T03:04:05.000006Z  INFO sync{controller="route" key=node-3}: bowline_controllers::route::sync: created a route node=node-3"#;
        assert_eq!(headline(line), "created a route node=node-3");
        let event = r#"2026-01-02T03:04:05Z  INFO bowline_kube::events: Event occurred kind="Node" key=node-3 reason="Synced" note="Node synced successfully""#;
        assert_eq!(headline(event), "Node synced successfully");
        assert_eq!(headline("no module: at all"), "no module: at all");
    }

    #[test]
    fn recent_lines_are_kept_and_counted() {
        let mut log = FoldedLog::default();
        assert_eq!((log.total(), log.headline(), log.after(0).len()), (0, None, 0));
        for number in 0..CAPACITY + 3 {
            writeln!(log, "line {number}").unwrap();
        }
        let last = CAPACITY + 2;
        assert_eq!((log.total(), log.headline()), (CAPACITY + 3, Some(format!("line {last}"))));
        assert_eq!(log.after(log.total() - 1), [format!("line {last}")]);
        assert_eq!(log.after(0).len(), CAPACITY);
        assert!(log.after(log.total()).is_empty());
    }
}
