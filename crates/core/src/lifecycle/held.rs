//! Reasons why the deletion of a Node is held back, with messages for the operator.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::well_known::ALLOW_DELETION;
use crate::{Node, NodeName};

/// A Node whose machine seems to be gone and whose deletion is held back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Name of the Node.
    pub node: NodeName,
    /// UID of the Node, for Events.
    pub uid: String,
    /// Provider that reports the machine as gone.
    pub provider: Arc<str>,
    /// Reason why the deletion is held back.
    pub reason: HoldReason,
}

/// Reason why the deletion of a Node is held back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HoldReason {
    /// The Node already has a deletion timestamp; there is nothing left to do.
    Leaving,
    /// The Node is so new that the cloud may not list its machine yet.
    TooYoung {
        /// Time since the Node was created.
        age: Duration,
        /// Minimum age for a deletion.
        grace: Duration,
    },
    /// One uncached read reported the machine as gone; a second one has to confirm it.
    AwaitingSecondLook {
        /// Time until the second read.
        left: Duration,
    },
    /// The cloud reports no machine of the provider's other Nodes either.
    NoWitness {
        /// Number of other Nodes.
        others: usize,
    },
    /// Too many Nodes of the provider would be deleted.
    Brake {
        /// Number of Nodes whose machines are missing.
        missing: usize,
        /// Number of Nodes deleted within the window.
        gone: usize,
        /// Maximum number of deletions within the window.
        allowed: usize,
        /// Total number of Nodes.
        of: usize,
        /// Length of the window.
        window: Duration,
    },
}

impl Held {
    pub(super) fn new(node: &Node, provider: &Arc<str>, reason: HoldReason) -> Held {
        Held { node: node.name.clone(), uid: node.uid.clone(), provider: provider.clone(), reason }
    }

    /// Returns the command that releases the deletion, if an operator has to decide.
    pub fn release_command(&self) -> Option<String> {
        let command = || format!("kubectl annotate node {} {ALLOW_DELETION}=true", self.node);
        self.reason.needs_operator().then(command)
    }
}

impl HoldReason {
    /// Returns whether an operator should act, because time alone may not resolve it.
    pub fn needs_operator(&self) -> bool {
        matches!(self, HoldReason::NoWitness { .. } | HoldReason::Brake { .. })
    }

    /// Returns the reason as one word, for metrics and for deduplicating Events.
    pub fn as_str(&self) -> &'static str {
        match self {
            HoldReason::Leaving => "Leaving",
            HoldReason::TooYoung { .. } => "TooYoung",
            HoldReason::AwaitingSecondLook { .. } => "AwaitingSecondLook",
            HoldReason::NoWitness { .. } => "NoWitness",
            HoldReason::Brake { .. } => "Brake",
        }
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Held { node, provider, reason, .. } = self;
        write!(f, "node {node} is not deleted although {provider} reports its machine as gone: {reason}")?;
        if let Some(command) = self.release_command() {
            write!(f, ". Check the credentials, project and region of {provider}; ")?;
            write!(f, "if the machine is really gone: {command}")?;
        }
        Ok(())
    }
}

impl fmt::Display for HoldReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HoldReason::Leaving => write!(f, "it is already being deleted"),
            HoldReason::TooYoung { age, grace } => write!(
                f,
                "it was created {} ago, and a cloud may not list a machine within its first {}",
                seconds(*age),
                seconds(*grace)
            ),
            HoldReason::AwaitingSecondLook { left } => {
                write!(f, "another read, in {} at the earliest, has to confirm it", seconds(*left))
            }
            HoldReason::NoWitness { others } => {
                write!(f, "no machine of its {others} other nodes is visible either, which suggests a wrong account")
            }
            HoldReason::Brake { missing, gone, allowed, of, window } => write!(
                f,
                "of its {of} nodes, {missing} have no machine and {gone} were deleted in the last {}, \
                 but at most {allowed} may be deleted in that time",
                seconds(*window)
            ),
        }
    }
}

/// Formats whole seconds, rounded up: `0s` would mean that no time is left.
fn seconds(duration: Duration) -> String {
    format!("{}s", duration.as_secs() + u64::from(duration.subsec_nanos() > 0))
}
