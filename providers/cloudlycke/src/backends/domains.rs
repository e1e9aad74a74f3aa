//! All machines of a hypervisor, without Vagrant (CL-51).

use std::sync::Arc;

use async_trait::async_trait;
use bowline_cloud::{ErrorKind, Result};

use super::{Backend, Machine, Standing};
use crate::hypervisors::{Cached, Hypervisor, Listed};
use crate::identity::Names;
use crate::machine::{Details, failure};

/// Machines of a hypervisor.
pub(crate) struct Domains {
    cached: Cached,
    /// Names of machines whose addresses are in the configuration.
    addressed: Vec<String>,
}

impl Domains {
    pub(crate) fn new(hypervisor: Arc<dyn Hypervisor>, addressed: Vec<String>) -> Domains {
        Domains { cached: Cached::new(hypervisor), addressed }
    }
}

#[async_trait]
impl Backend for Domains {
    async fn survey(&self) -> Result<Vec<Machine>> {
        let roster = self.cached.hypervisor.roster().await?;
        if roster.machines.is_empty() {
            let message = "the hypervisor lists no machine at all, which does not prove that any is gone; fix: check the user and \
                 libvirtUri";
            return Err(failure(ErrorKind::Unexpected, message));
        }
        self.cached.retain(|id| roster.machines.contains_key(id));
        let machine = |(id, Listed { name, running }): (String, Listed)| Machine {
            names: Names { name, own: Some(id), ..Names::default() },
            standing: Standing::Listed { running },
            details: None,
        };
        Ok(roster.machines.into_iter().map(machine).collect())
    }

    async fn describe(&self, machine: &Machine) -> Result<Option<Details>> {
        let Some(id) = machine.names.own.as_deref() else { return Ok(None) };
        let running = matches!(machine.standing, Standing::Listed { running: true });
        self.cached.describe(id, running, !self.addressed.contains(&machine.names.name)).await
    }

    fn is_new(&self, machine: &Machine) -> bool {
        machine.names.own.as_deref().is_some_and(|id| self.cached.is_new(id))
    }

    async fn about(&self) -> Result<Vec<(&'static str, String)>> {
        Ok(vec![("hypervisor", self.cached.hypervisor.version().await?)])
    }
}
