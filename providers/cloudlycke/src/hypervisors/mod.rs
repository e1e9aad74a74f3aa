//! Hypervisors: the commands that list and describe machines.
//!
//! A roster takes two processes, whatever the number of machines. The details of a machine take one or two more, and are kept until
//! the machine is switched on or off, for a few minutes at most.

pub(crate) mod libvirt;
pub(crate) mod virtualbox;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bowline_cloud::Result;
use tokio::time::Instant;

use crate::machine::{Details, is_transitional};

/// Time for which details are kept. Memory, CPUs and networks change only while a machine is off.
const DETAILS_AGE: Duration = Duration::from_secs(300);

/// Machines that a hypervisor lists.
#[derive(Debug, Clone, Default)]
pub(crate) struct Roster {
    /// By ID, in lower case.
    pub(crate) machines: BTreeMap<String, Listed>,
}

/// A machine in a roster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    /// Name that the hypervisor has for it.
    pub(crate) name: String,
    pub(crate) running: bool,
}

/// A hypervisor of this host.
#[async_trait]
pub(crate) trait Hypervisor: Send + Sync {
    /// Returns whether the text can be an ID of this hypervisor. No other text becomes an argument of a command.
    fn is_id(&self, text: &str) -> bool;

    /// Lists all machines.
    async fn roster(&self) -> Result<Roster>;

    /// Reads the details of a machine; `None` if the hypervisor reports that it does not exist. `addresses` decides whether its
    /// addresses are read as well.
    async fn describe(&self, id: &str, addresses: bool) -> Result<Option<Details>>;

    /// Returns name and version.
    async fn version(&self) -> Result<String>;
}

/// A hypervisor with the details of its machines.
pub(crate) struct Cached {
    pub(crate) hypervisor: Arc<dyn Hypervisor>,
    known: Mutex<HashMap<String, Known>>,
}

/// Details of a machine, or the time at which they could not be read.
struct Known {
    details: Option<Details>,
    running: bool,
    has_addresses: bool,
    read: Instant,
}

impl Cached {
    pub(crate) fn new(hypervisor: Arc<dyn Hypervisor>) -> Cached {
        Cached { hypervisor, known: Mutex::default() }
    }

    /// Returns whether the details of this machine were never read, even in vain.
    pub(crate) fn is_new(&self, id: &str) -> bool {
        !self.lock().contains_key(id)
    }

    /// Returns the details of a machine; `None` if it does not exist. `addresses` decides whether its addresses are needed.
    pub(crate) async fn describe(&self, id: &str, running: bool, addresses: bool) -> Result<Option<Details>> {
        let wanted = addresses && running;
        if let Some(known) = self.lock().get(id).filter(|known| known.is_valid(running, wanted)) {
            return Ok(known.details.clone());
        }
        let read = Instant::now();
        let described = self.hypervisor.describe(id, wanted).await;
        let details = described.as_ref().ok().cloned().flatten();
        self.lock().insert(id.to_owned(), Known { details, running, has_addresses: wanted, read });
        described
    }

    /// Reads whether a machine exists that the hypervisor did not list, whatever is known of it.
    pub(crate) async fn confirm(&self, id: &str) -> Result<Option<Details>> {
        self.lock().remove(id);
        self.describe(id, false, false).await
    }

    /// Forgets machines that do not exist any more.
    pub(crate) fn retain(&self, is_known: impl Fn(&str) -> bool) {
        self.lock().retain(|id, _| is_known(id));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn is_valid(&self, running: bool, addresses: bool) -> bool {
        let Some(details) = &self.details else { return false };
        let has_all = !addresses || self.has_addresses && !details.addresses.is_empty();
        has_all && self.running == running && !is_transitional(&details.state) && self.read.elapsed() < DETAILS_AGE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(state: &str, running: bool, addresses: usize) -> Known {
        let candidate = crate::machine::Candidate { address: [10, 0, 0, 1].into(), is_default: true };
        let addresses = vec![candidate; addresses];
        let details = Details { state: state.to_owned(), addresses, ..Details::default() };
        Known { details: Some(details), running, has_addresses: true, read: Instant::now() }
    }

    // CL-10
    #[tokio::test(start_paused = true)]
    async fn details_are_kept_for_some_minutes() {
        let (on, off) = (known("running", true, 1), known("poweroff", false, 0));
        assert!(on.is_valid(true, true) && on.is_valid(true, false) && off.is_valid(false, false));
        assert!(!on.is_valid(false, false) && !off.is_valid(true, false), "switched on or off");
        assert!(!known("running", true, 0).is_valid(true, true), "no address yet");
        assert!(!known("stopping", false, 0).is_valid(false, false) && !known("odd", true, 1).is_valid(true, true));
        assert!(!Known { details: None, ..known("running", true, 1) }.is_valid(true, false), "the last read failed");
        tokio::time::advance(DETAILS_AGE).await;
        assert!(!on.is_valid(true, true) && !off.is_valid(false, false));
    }
}
