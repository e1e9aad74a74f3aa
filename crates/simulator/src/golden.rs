//! Golden journals: the calls of a test, compared with a committed file.
//!
//! A [`Golden`] belongs to one cloud of one test and compares when it is dropped. The file has a section for each cloud of each
//! test: all writes in order, with path, headers and body, and the number of reads of each kind. IDs are replaced by numbers in
//! order of appearance, so that a section does not depend on how the cloud generates them. `BOWLINE_WRITE_JOURNALS=1` rewrites the
//! sections of all tests that run.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::journal::Entry;
use crate::service::Operation;

/// Environment variable that rewrites the files instead of comparing with them.
const REWRITE: &str = "BOWLINE_WRITE_JOURNALS";

/// Headers that are left out, because every call has them.
const USUAL_HEADERS: [&str; 7] =
    ["accept", "connection", "content-length", "content-type", "host", "user-agent", "x-amz-date"];

/// Part of a journal that is the same in every run of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Everything: all writes in order, and the number of reads.
    Exact,
    /// Only the kinds of writes, because order, number and contents depend on time: method, path without IDs, and the fields of the
    /// object that is sent.
    Kinds,
}

/// Compares the calls made to a cloud with a section of a file when it is dropped.
pub struct Golden {
    calls: Box<dyn Fn() -> Vec<Entry> + Send>,
    file: PathBuf,
    section: (String, usize),
    detail: Detail,
}

thread_local! {
    /// Number of clouds that each test on this thread has created.
    static CLOUDS: RefCell<BTreeMap<String, usize>> = const { RefCell::new(BTreeMap::new()) };
}

/// Serializes tests that rewrite a file.
static WRITING: Mutex<()> = Mutex::new(());

impl Golden {
    /// Compares these calls with the section of the current test in `file`. The test harness names the thread of each test
    /// after the test.
    pub(crate) fn new(file: PathBuf, detail: Detail, calls: Box<dyn Fn() -> Vec<Entry> + Send>) -> Golden {
        let test = std::thread::current().name().unwrap_or("unnamed").to_owned();
        let number = CLOUDS.with_borrow_mut(|clouds| {
            let number = clouds.entry(test.clone()).or_default();
            *number += 1;
            *number
        });
        Golden { calls, file, section: (test, number), detail }
    }

    fn check(&self) {
        let entries = (self.calls)();
        let actual = match self.detail {
            Detail::Exact => exact(&entries),
            Detail::Kinds => kinds(&entries),
        };
        if std::env::var_os(REWRITE).is_some() {
            return self.rewrite(actual);
        }
        let (file, (test, number)) = (self.file.display(), &self.section);
        let expected = sections(&self.file).remove(&self.section);
        assert!(expected.is_some(), "{file} has no section {test} {number}; {REWRITE}=1 writes it");
        let expected = expected.unwrap_or_default();
        let difference = difference(&expected, &actual);
        assert!(
            expected == actual,
            "{file}: the calls of {test} {number} differ (- expected, + actual):\n{difference}"
        );
    }

    fn rewrite(&self, actual: Vec<String>) {
        let _one_at_a_time = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sections = sections(&self.file);
        sections.insert(self.section.clone(), actual);
        assert!(std::fs::write(&self.file, text(&sections)).is_ok(), "cannot write {}", self.file.display());
    }
}

impl Drop for Golden {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.check();
        }
    }
}

/// Lines of each section, by test and number.
type Sections = BTreeMap<(String, usize), Vec<String>>;

/// Sections of a file; empty if the file does not exist.
fn sections(file: &Path) -> Sections {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let mut sections = Sections::new();
    let mut before: Vec<String> = Vec::new();
    for section in text.split("== ").skip(1) {
        let mut lines = section.lines();
        let Some((test, number)) = lines.next().and_then(|head| head.rsplit_once(' ')) else { continue };
        let full = |line: &str| match line.strip_prefix('^').and_then(|at| before.get(at.parse::<usize>().ok()?)) {
            Some(repeated) => repeated.clone(),
            None => line.to_owned(),
        };
        let lines: Vec<String> = lines.map(full).collect();
        before.clone_from(&lines);
        sections.insert((test.to_owned(), number.parse().unwrap_or_default()), lines);
    }
    sections
}

/// File with these sections. A line that the previous section has is written as its index there: a test that crashes at every call
/// has a hundred nearly equal sections.
fn text(sections: &Sections) -> String {
    let mut text = String::new();
    let mut before: &[String] = &[];
    for ((test, number), lines) in sections {
        let _ = writeln!(text, "== {test} {number}");
        for line in lines {
            let _ = match before.iter().position(|earlier| earlier == line) {
                Some(at) if line.len() > 40 => writeln!(text, "^{at}"),
                _ => writeln!(text, "{line}"),
            };
        }
        before = lines;
    }
    text
}

/// All writes in order, then the number of reads of each kind.
fn exact(entries: &[Entry]) -> Vec<String> {
    let mut ids = Vec::new();
    let writes = entries.iter().filter(|entry| entry.is_write).map(|entry| numbered(&write(entry), &mut ids));
    let mut lines: Vec<String> = writes.collect();
    let mut reads: BTreeMap<String, u64> = BTreeMap::new();
    for entry in entries.iter().filter(|entry| !entry.is_write) {
        *reads.entry(read(entry)).or_default() += 1;
    }
    lines.extend(reads.into_iter().map(|(read, count)| format!("{count} {read}")));
    lines
}

/// Each kind of write once, sorted.
fn kinds(entries: &[Entry]) -> Vec<String> {
    let writes = entries.iter().filter(|entry| entry.is_write);
    let mut lines: Vec<String> = writes.map(kind).collect();
    lines.sort();
    lines.dedup();
    lines
}

/// `PUT network/ports/{id} port: security_groups`; a field without fields of its own is only its name.
fn kind(entry: &Entry) -> String {
    let mut line = format!("{} {}", entry.method, Operation::place(entry.part, &entry.template));
    for (name, object) in entry.body.as_object().into_iter().flatten() {
        let mut fields: Vec<&str> = object.as_object().into_iter().flatten().map(|(field, _)| field.as_str()).collect();
        fields.sort_unstable();
        let separator = if fields.is_empty() { "" } else { ": " };
        let _ = write!(line, " {name}{separator}{}", fields.join(", "));
    }
    line
}

/// `PUT network/ports/1234 if-match=revision_number=3 {"port": …}`.
fn write(entry: &Entry) -> String {
    let mut line = format!("{} {}", entry.method, Operation::place(entry.part, &entry.path));
    for (key, value) in &entry.query {
        let _ = write!(line, " ?{key}={value}");
    }
    for (name, value) in entry.headers.iter().filter(|(name, _)| !USUAL_HEADERS.contains(&name.as_str())) {
        let _ = write!(line, " {name}={value}");
    }
    if !entry.body.is_null() {
        let _ = write!(line, " {}", sorted(&entry.body));
    }
    line
}

/// `GET network/ports?device_id&limit`.
fn read(entry: &Entry) -> String {
    let mut keys: Vec<&str> = entry.query.iter().map(|(key, _)| key.as_str()).collect();
    keys.sort_unstable();
    keys.dedup();
    let query = if keys.is_empty() { String::new() } else { format!("?{}", keys.join("&")) };
    format!("{} {}{query}", entry.method, Operation::place(entry.part, &entry.template))
}

/// Serializes a value with sorted object keys.
fn sorted(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields: BTreeMap<_, _> = fields.iter().collect();
            let fields =
                fields.into_iter().map(|(key, value)| format!("{}:{}", Value::from(key.as_str()), sorted(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(sorted).collect::<Vec<_>>().join(",")),
        other => other.to_string(),
    }
}

/// Replaces the first UUID that appears in a section by `#1`, the second by `#2`, and so on.
fn numbered(line: &str, ids: &mut Vec<String>) -> String {
    let (mut shown, mut rest) = (String::new(), line);
    while let Some(at) = rest.char_indices().map(|(at, _)| at).find(|at| is_uuid(rest.get(*at..at + 36))) {
        let id = &rest[at..at + 36];
        let number = ids.iter().position(|known| known == id).unwrap_or_else(|| {
            ids.push(id.to_owned());
            ids.len() - 1
        });
        let _ = write!(shown, "{}#{}", &rest[..at], number + 1);
        rest = &rest[at + 36..];
    }
    shown + rest
}

fn is_uuid(text: Option<&str>) -> bool {
    text.is_some_and(|text| {
        text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
    })
}

/// Lines between the common head and the common tail, as `diff` shows them.
fn difference(expected: &[String], actual: &[String]) -> String {
    let same = expected.iter().zip(actual).take_while(|(one, other)| one == other).count();
    let (expected, actual) = (&expected[same..], &actual[same..]);
    let tail = expected.iter().rev().zip(actual.iter().rev()).take_while(|(one, other)| one == other).count();
    let gone = expected[..expected.len() - tail].iter().map(|line| format!("- {line}\n"));
    let new = actual[..actual.len() - tail].iter().map(|line| format!("+ {line}\n"));
    format!("  after {same} equal lines\n{}", gone.chain(new).collect::<String>())
}
