//! What decides whether a case runs.

use std::fmt;

use bowline_cloud::{Capabilities, InstanceCapabilities};

/// Something a provider may claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Capability {
    /// It tells what machines there are.
    Instances,
    /// It looks up several at once.
    BatchLookup,
    /// It lists them all.
    Listing,
    /// It takes several calls at once.
    Parallel,
    /// It finds a machine by the node's name.
    LookupByName,
    /// It gives no ID twice.
    UniqueIds,
    /// It tells a stopped machine from a running one.
    ShutdownState,
    /// It tells zone and region.
    Zones,
    /// It has further labels for nodes.
    AdditionalLabels,
}

/// What a case asks of a provider before it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Need {
    /// The provider claims it.
    Has(Capability),
    /// The provider tells of machines and does not claim it: what cannot be done has rules, too.
    Lacks(Capability),
}

impl Capability {
    /// All of them.
    pub const ALL: [Capability; 9] = [
        Capability::Instances,
        Capability::BatchLookup,
        Capability::Listing,
        Capability::Parallel,
        Capability::LookupByName,
        Capability::UniqueIds,
        Capability::ShutdownState,
        Capability::Zones,
        Capability::AdditionalLabels,
    ];

    /// Whether it is claimed.
    pub fn is_claimed(self, capabilities: &Capabilities) -> bool {
        capabilities.instances.as_ref().is_some_and(|instances| self.is_in(instances))
    }

    fn is_in(self, instances: &InstanceCapabilities) -> bool {
        match self {
            Capability::Instances => true,
            Capability::BatchLookup => instances.batch_lookup > 1,
            Capability::Listing => instances.list_page.is_some(),
            Capability::Parallel => instances.max_parallel > 1,
            Capability::LookupByName => instances.lookup_by_name,
            Capability::UniqueIds => instances.unique_ids,
            Capability::ShutdownState => instances.shutdown_state,
            Capability::Zones => instances.zones,
            Capability::AdditionalLabels => instances.additional_labels,
        }
    }
}

impl Need {
    /// Whether a case that needs this runs.
    pub fn is_met(self, capabilities: &Capabilities) -> bool {
        match self {
            Need::Has(capability) => capability.is_claimed(capabilities),
            Need::Lacks(capability) => capabilities.instances.is_some() && !capability.is_claimed(capabilities),
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Capability::Instances => "instances",
            Capability::BatchLookup => "batch lookup",
            Capability::Listing => "listing",
            Capability::Parallel => "parallel calls",
            Capability::LookupByName => "lookup by name",
            Capability::UniqueIds => "unique IDs",
            Capability::ShutdownState => "shutdown state",
            Capability::Zones => "zones",
            Capability::AdditionalLabels => "additional labels",
        })
    }
}

/// Why a case with this need does not run.
impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Need::Has(capability) => write!(f, "no {capability}"),
            Need::Lacks(capability) => write!(f, "has {capability}"),
        }
    }
}
