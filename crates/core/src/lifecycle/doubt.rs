//! Why a Node stays although its machine seems gone, in words that help the operator.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::well_known::ALLOW_DELETION;
use crate::{Node, NodeName};

/// A Node whose machine seems gone, and which stays nevertheless.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The Node.
    pub node: NodeName,
    /// Its UID, for an Event about it.
    pub uid: String,
    /// The provider that has no machine for it.
    pub provider: Arc<str>,
    /// Why it stays.
    pub doubt: HoldReason,
}

/// What speaks against deleting a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HoldReason {
    /// Somebody asked for its deletion already; there is nothing left to do.
    Leaving,
    /// The cloud may not list its machine yet.
    TooYoung {
        /// How long ago it was registered.
        age: Duration,
        /// How old it has to be.
        grace: Duration,
    },
    /// One look has shown its machine gone; another one has to.
    AwaitingSecondLook {
        /// The time until that look.
        left: Duration,
    },
    /// The cloud shows no machine of the provider's other Nodes either.
    NoWitness {
        /// How many others there are.
        others: usize,
    },
    /// Too many of the provider's Nodes would go.
    Brake {
        /// How many have lost their machines.
        missing: usize,
        /// How many went within the window.
        gone: usize,
        /// How many may go within the window.
        allowed: usize,
        /// Out of how many Nodes.
        of: usize,
        /// How long a deletion counts.
        window: Duration,
    },
}

impl Held {
    pub(super) fn new(node: &Node, provider: &Arc<str>, doubt: HoldReason) -> Held {
        Held { node: node.name.clone(), uid: node.uid.clone(), provider: provider.clone(), doubt }
    }
}

impl HoldReason {
    /// Time alone may not resolve it: somebody should look.
    pub fn needs_operator(&self) -> bool {
        matches!(self, HoldReason::NoWitness { .. } | HoldReason::Brake { .. })
    }

    /// One word for metrics and Events.
    pub fn word(&self) -> &'static str {
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
        let Held { node, provider, doubt, .. } = self;
        write!(f, "node {node} is kept although {provider} has no machine for it: {doubt}")?;
        if doubt.needs_operator() {
            write!(f, ". Check the credentials, project and region of {provider}; ")?;
            write!(f, "if the machine is gone for good: kubectl annotate node {node} {ALLOW_DELETION}=true")?;
        }
        Ok(())
    }
}

impl fmt::Display for HoldReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HoldReason::Leaving => write!(f, "its deletion is under way already"),
            HoldReason::TooYoung { age, grace } => write!(
                f,
                "it was registered {} ago, and within {} of that a cloud may not list the machine yet",
                seconds(*age),
                seconds(*grace)
            ),
            HoldReason::AwaitingSecondLook { left } => {
                write!(f, "another look, {} from now at the earliest, has to show the same", seconds(*left))
            }
            HoldReason::NoWitness { others } => {
                write!(f, "no machine of its {others} other nodes is visible either, as with a wrong account")
            }
            HoldReason::Brake { missing, gone, allowed, of, window } => write!(
                f,
                "of its {of} nodes, {missing} have lost their machines and {gone} were deleted in the last {}, \
                 but only {allowed} may go in that time",
                seconds(*window)
            ),
        }
    }
}

/// Whole seconds, the next one up: `0s` would say that nothing is left.
fn seconds(duration: Duration) -> String {
    format!("{}s", duration.as_secs() + u64::from(duration.subsec_nanos() > 0))
}
