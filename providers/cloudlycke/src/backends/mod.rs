//! Sources of machines.

pub(crate) mod demo;
pub(crate) mod domains;
pub(crate) mod inventory;
pub(crate) mod vagrant;

use async_trait::async_trait;
use bowline_cloud::{Error, Result};

use crate::identity::Names;
use crate::machine::Details;

/// A source of machines that are read together.
#[async_trait]
pub(crate) trait Backend: Send + Sync {
    /// Reads all machines, without their details. A machine that exists is never missing: what cannot be read is an error.
    async fn survey(&self) -> Result<Vec<Machine>>;

    /// Reads the details of a machine that has none in the survey; `None` if the hypervisor certainly does not know it.
    async fn describe(&self, machine: &Machine) -> Result<Option<Details>> {
        Ok(machine.details.clone())
    }

    /// Returns whether the details of a machine were never read, so that the next read includes them.
    fn is_new(&self, machine: &Machine) -> bool {
        let _ = machine;
        false
    }

    /// Describes the source for operators: paths and versions.
    async fn about(&self) -> Result<Vec<(&'static str, String)>>;
}

/// A machine in a survey.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(crate) names: Names,
    pub(crate) standing: Standing,
    /// Details, if the survey includes them.
    pub(crate) details: Option<Details>,
}

/// Whether a machine exists.
#[derive(Debug, Clone)]
pub(crate) enum Standing {
    /// It exists and is on, or off.
    Listed { running: bool },
    /// The hypervisor does not list it, which its details confirm.
    Unlisted,
    /// It is listed and has no ID yet, or is beyond the limits of the configuration: neither existing nor gone.
    Unclear(Error),
}

impl Machine {
    /// Returns whether the machine can be that of a Node.
    pub(crate) fn is_candidate(&self) -> bool {
        !matches!(self.standing, Standing::Unclear(_))
    }
}
