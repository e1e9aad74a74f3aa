//! The part of a simulator that every cloud has of its own.

use crate::records::Views;
use crate::wire::{Call, Reply};

/// A cloud: its state, and how it answers one request. The harness does the rest.
pub trait Service: Send + 'static {
    /// Answers a request. Neither faults nor time are its concern.
    fn answer(&mut self, call: &Call) -> Reply;

    /// Names a request in the journal, in counts and in faults. The default is made of method and path; clouds that send
    /// the name of the operation in the query or the body override it.
    fn operation(&self, call: &Call) -> Operation {
        Operation::of_path(call)
    }

    /// Ends the work that is due by now. Called before each request, and before a view is frozen.
    fn settle(&mut self) {}

    /// The records of which a reader may see an old or empty version; `None` if no fault of this kind makes sense.
    fn views(&mut self) -> Option<&mut dyn Views> {
        None
    }
}

/// The kind of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// The service that it is for, where a cloud has several.
    pub part: &'static str,
    /// The kind of request: the path with `{id}` for IDs, or the name of the operation.
    pub template: String,
    /// The same with the IDs in it.
    pub path: String,
    /// It changes something, or would.
    pub is_write: bool,
}

impl Operation {
    /// By method and path; a segment with a digit in it is an ID, but for versions such as `v2`.
    pub fn of_path(call: &Call) -> Operation {
        let is_version =
            |segment: &str| segment.starts_with('v') && segment[1..].starts_with(|c: char| c.is_ascii_digit());
        let is_id = |segment: &str| segment.contains(|c: char| c.is_ascii_digit()) && !is_version(segment);
        let kind = |segment: &String| if is_id(segment) { "{id}".to_owned() } else { segment.clone() };
        let template = call.path.iter().map(kind).collect::<Vec<_>>().join("/");
        Operation { part: "", template, path: call.path.join("/"), is_write: !call.is_read() }
    }

    /// `network/ports`, or `ports` where a cloud has only one service.
    pub(crate) fn place(part: &str, path: &str) -> String {
        if part.is_empty() { path.to_owned() } else { format!("{part}/{path}") }
    }
}
