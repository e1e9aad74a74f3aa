//! Finds machines in a listing, page by page. Pure.
//!
//! A lookup by ID is resolved by the first page that has the machine. A lookup by name is resolved only at the end of the listing,
//! because a second machine of that name may follow. Absence is resolved at the end of a listing that is not empty, if the provider
//! declares it as a proof ([`Absence`]). The caller looks up the rest.

use std::collections::{HashMap, HashSet};

use bowline_core::{Instance, InstanceState, Opaque, ProviderId};

use crate::{Absence, Error, ErrorKind, Identity, InstanceCapabilities, InstancePage, Result, Retry};

/// Lookups of the type `Q`, with the results of the pages so far.
pub(crate) struct Listing<Q> {
    by_id: HashMap<String, Vec<Q>>,
    /// IDs of the same lookups by whole provider ID. Without it, all machines would seem gone if `identify` splits a provider ID
    /// differently than the machines do.
    ids: HashMap<ProviderId, String>,
    by_name: HashMap<String, Named<Q>>,
    /// IDs of the machines so far: a listing that changes while it is read may show a machine twice.
    machines: HashSet<String>,
    /// Number of machines by lower-case name.
    names: HashMap<String, usize>,
    /// [`InstancePage::brief`] of the pages so far.
    brief: HashMap<String, Opaque>,
    /// Number of listed machines that could not be decoded.
    unread: usize,
}

/// Lookups of a name, and the machines that have it.
struct Named<Q> {
    lookups: Vec<Q>,
    found: Vec<InstanceState>,
}

/// A lookup with its result.
pub(crate) type Resolved<Q> = (Q, Result<InstanceState>);

/// Returns whether listing `machines` machines is cheaper than looking up `lookups` of them. Default for `machines`: `lookups`.
pub(crate) fn is_cheaper(lookups: usize, machines: Option<usize>, limits: &InstanceCapabilities) -> bool {
    let Some(page) = limits.list_page else { return false };
    let pages = machines.unwrap_or(lookups).div_ceil(page.max(1)).max(1);
    lookups > pages.saturating_mul(limits.page_cost.unwrap_or(limits.batch_lookup).max(1))
}

impl<Q> Listing<Q> {
    /// Creates a listing for these lookups.
    pub(crate) fn new(lookups: impl IntoIterator<Item = (Identity, Option<ProviderId>, Q)>) -> Listing<Q> {
        let mut listing = Listing::default();
        for (identity, provider_id, lookup) in lookups {
            match identity {
                Identity::Id(id) => {
                    listing.ids.extend(provider_id.map(|provider_id| (provider_id, id.clone())));
                    listing.by_id.entry(id).or_default().push(lookup);
                }
                Identity::Name(name) => listing.by_name.entry(name).or_default().lookups.push(lookup),
                // Resolved before anything is read.
                Identity::NotMine => {}
            }
        }
        listing
    }

    /// Returns the number of machines on the pages so far.
    pub(crate) fn machines(&self) -> usize {
        self.machines.len()
    }

    /// Returns whether reading the rest of a listing of `expected` machines is cheaper than looking up the open lookups. If there
    /// are more machines than expected, as many again as were listed so far are assumed to follow.
    pub(crate) fn is_worth_another_page(&self, expected: usize, limits: &InstanceCapabilities) -> bool {
        let left = expected.checked_sub(self.machines()).filter(|left| *left > 0).unwrap_or(self.machines());
        let named = self.by_name.values().map(|named| named.lookups.len());
        let open = self.by_id.values().map(Vec::len).chain(named).sum();
        is_cheaper(open, Some(left), limits)
    }

    /// Returns the argument of [`describe`](crate::Instances::describe) for a machine that was listed in brief.
    pub(crate) fn brief(&self, found: &Result<InstanceState>) -> Option<Opaque> {
        let instance = found.as_ref().ok().and_then(InstanceState::instance)?;
        self.brief.get(&instance.id).cloned()
    }

    /// Processes one page, and returns the results that it determines.
    pub(crate) fn take(&mut self, page: InstancePage) -> Vec<Resolved<Q>> {
        let mut resolved = Vec::new();
        self.unread += page.unread;
        self.brief.extend(page.brief);
        for state in page.instances {
            let Some(instance) = state.instance() else { continue };
            if self.machines.insert(instance.id.clone()) {
                *self.names.entry(instance.name.to_lowercase()).or_default() += 1;
            }
            let lookups = self.take_by_id(instance);
            if let Some(named) = self.by_name.get_mut(&instance.name) {
                named.add(state.clone());
            }
            resolved.extend(lookups.into_iter().map(|lookup| (lookup, Ok(state.clone()))));
        }
        resolved
    }

    /// Removes and returns the lookups by ID that this machine resolves.
    fn take_by_id(&mut self, instance: &Instance) -> Vec<Q> {
        let by_id = self.by_id.remove(&instance.id);
        let provider_id = instance.provider_id.as_ref().and_then(|provider_id| self.ids.get(provider_id));
        let by_provider_id = provider_id.and_then(|id| self.by_id.remove(id));
        by_id.into_iter().chain(by_provider_id).flatten().collect()
    }

    /// Returns the results that the end of the listing determines. The remaining lookups stay open.
    pub(crate) fn finish(&mut self, absence: Absence) -> Vec<Resolved<Q>> {
        let inconclusive_reason = self.inconclusive_reason();
        match (absence, inconclusive_reason) {
            (Absence::Proof, Some(message)) => self.fail(&Error::new(ErrorKind::Unexpected, "list instances", message)),
            (_, Some(_)) => Vec::new(),
            (Absence::Proof, None) => {
                let absent = std::mem::take(&mut self.by_id).into_values().flatten();
                let absent: Vec<_> = absent.map(|lookup| (lookup, Ok(InstanceState::Gone))).collect();
                absent.into_iter().chain(self.resolve_names(|_, _| true)).collect()
            }
            (Absence::ProofForNames, None) => self.resolve_names(|found, alike| alike == found && alike <= 1),
            (Absence::Question, None) => self.resolve_names(|found, alike| alike == found && alike == 1),
        }
    }

    /// Returns the reason why the complete listing proves no absence, if there is one.
    fn inconclusive_reason(&self) -> Option<String> {
        match (self.machines.len(), self.unread) {
            // An empty list is much more often caused by a wrong project, region or permission than by a cluster without machines.
            (0, 0) => Some(
                "the cloud lists no machines at all, which does not prove that any is gone; \
                 check project, region and permissions of the credentials"
                    .to_owned(),
            ),
            (_, 0) => None,
            (_, unread) => {
                Some(format!("{unread} of the listed machines cannot be decoded, and any of them may be this one"))
            }
        }
    }

    /// Returns the results for names that are certain, given the number of machines with that name exactly and ignoring case.
    fn resolve_names(&mut self, is_certain: impl Fn(usize, usize) -> bool) -> Vec<Resolved<Q>> {
        let alike = |name: &str| self.names.get(&name.to_lowercase()).copied().unwrap_or(0);
        let (certain, open): (HashMap<_, _>, _) = std::mem::take(&mut self.by_name)
            .into_iter()
            .partition(|(name, named)| is_certain(named.found.len(), alike(name)));
        self.by_name = open;
        let resolved = certain.into_iter().flat_map(|(name, named)| {
            let result = named.result(&name);
            named.lookups.into_iter().map(move |lookup| (lookup, result.clone()))
        });
        resolved.collect()
    }

    /// Fails all open lookups, because a page could not be read.
    pub(crate) fn fail(&mut self, error: &Error) -> Vec<Resolved<Q>> {
        self.open().into_iter().map(|lookup| (lookup, Err(error.clone()))).collect()
    }

    /// Removes and returns the open lookups.
    pub(crate) fn open(&mut self) -> Vec<Q> {
        let named = std::mem::take(&mut self.by_name).into_values().flat_map(|named| named.lookups);
        std::mem::take(&mut self.by_id).into_values().flatten().chain(named).collect()
    }
}

impl<Q> Default for Listing<Q> {
    fn default() -> Listing<Q> {
        let (by_id, ids, by_name) = (HashMap::new(), HashMap::new(), HashMap::new());
        let (machines, names, brief) = (HashSet::new(), HashMap::new(), HashMap::new());
        Listing { by_id, ids, by_name, machines, names, brief, unread: 0 }
    }
}

impl<Q> Named<Q> {
    /// Adds a machine, unless the listing has already shown it.
    fn add(&mut self, state: InstanceState) {
        let id = state.instance().map(|instance| &instance.id);
        if !self.found.iter().any(|known| known.instance().map(|instance| &instance.id) == id) {
            self.found.push(state);
        }
    }

    fn result(&self, name: &str) -> Result<InstanceState> {
        match self.found.as_slice() {
            [] => Ok(InstanceState::Gone),
            [one] => Ok(one.clone()),
            several => {
                let ids: Vec<_> = several.iter().filter_map(InstanceState::instance).map(|i| i.id.as_str()).collect();
                let message = format!("{} machines are named {name}: {}", ids.len(), ids.join(", "));
                // The operator fixes this in the cloud, which sends no notification, so it is retried.
                Err(Error::new(ErrorKind::InvalidConfig, "list instances", message).retry(Retry::Backoff))
            }
        }
    }
}

impl<Q> Default for Named<Q> {
    fn default() -> Named<Q> {
        Named { lookups: Vec::new(), found: Vec::new() }
    }
}
