//! Cloud-specific part of a simulator.

use crate::records::Views;
use crate::wire::{Call, Reply};

/// A cloud: its state, and its answer to one request. The harness does the rest.
pub trait Service: Send + 'static {
    /// Answers a request. The harness handles faults and time.
    fn answer(&mut self, call: &Call) -> Reply;

    /// Classifies a request for the journal, counts and faults. The default uses method and path; clouds that send the name of the
    /// operation in the query or the body override it.
    fn operation(&self, call: &Call) -> Operation {
        Operation::of_path(call)
    }

    /// Whether a request only reads, so that stale and empty views apply to it. The default is GET and HEAD; clouds that send reads as
    /// POST override it. A write must not be a read: it would change the view.
    fn is_read(&self, call: &Call) -> bool {
        call.is_read()
    }

    /// Completes the jobs that are due. Called before each request, and before a view is frozen.
    fn settle(&mut self) {}

    /// Records that support stale and empty views; `None` if the cloud does not support such faults.
    fn views(&mut self) -> Option<&mut dyn Views> {
        None
    }
}

/// Kind of request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// Service that is called, if the cloud has several.
    pub part: &'static str,
    /// Kind of request: the path with `{id}` for IDs, or the name of the operation.
    pub template: String,
    /// Path with the IDs.
    pub path: String,
    /// Whether it is a write.
    pub is_write: bool,
}

impl Operation {
    /// Classifies by method and path. A segment with a digit is an ID, except for versions such as `v2`.
    pub fn of_path(call: &Call) -> Operation {
        let is_version =
            |segment: &str| segment.starts_with('v') && segment[1..].starts_with(|c: char| c.is_ascii_digit());
        let is_id = |segment: &str| segment.contains(|c: char| c.is_ascii_digit()) && !is_version(segment);
        let kind = |segment: &String| if is_id(segment) { "{id}".to_owned() } else { segment.clone() };
        let template = call.path.iter().map(kind).collect::<Vec<_>>().join("/");
        Operation { part: "", template, path: call.path.join("/"), is_write: !call.is_read() }
    }

    /// `network/ports`, or `ports` if the cloud has only one service. A path that begins with the service is kept: `ec2 DescribeVpcs`.
    pub(crate) fn place(part: &str, path: &str) -> String {
        let names_part = path.strip_prefix(part).is_some_and(|rest| rest.starts_with(' '));
        if part.is_empty() || names_part { path.to_owned() } else { format!("{part}/{path}") }
    }
}
