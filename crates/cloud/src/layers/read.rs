//! One read of many machines: by batched lookups or by a listing, whichever takes fewer calls.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bowline_core::{InstanceRef, InstanceState, Opaque};
use futures::stream::{self, StreamExt};

use crate::layers::cache::Lookup;
use crate::layers::concurrency::ConcurrencyLimits;
use crate::layers::listing::{self, Listing, Resolved};
use crate::layers::operation::Operation;
use crate::{
    CloudProvider, Error, ErrorKind, Identity, InstanceCapabilities, InstancePage, Instances, PageGuard, PageToken,
    Result,
};

/// Reads machines from one provider.
pub(crate) struct Reader {
    provider: Arc<dyn CloudProvider>,
    limits: Arc<ConcurrencyLimits>,
    /// Number of machines in the last listing; 0 before the first one.
    machines: AtomicUsize,
}

impl Reader {
    pub(crate) fn new(provider: Arc<dyn CloudProvider>, limits: Arc<ConcurrencyLimits>) -> Reader {
        Reader { provider, limits, machines: AtomicUsize::new(0) }
    }

    /// Returns the identity of a machine. A foreign ID, or a name without `lookup_by_name`, is `NotMine`. This is decided here
    /// because a foreign ID could match an own one in a listing.
    pub(crate) fn identify(&self, machine: &InstanceRef) -> Result<Identity> {
        let (instances, limits) = self.instances()?;
        let own = match machine.provider_id.as_ref() {
            Some(id) => self.provider.owns(id),
            None => limits.lookup_by_name,
        };
        if own { instances.identify(machine) } else { Ok(Identity::NotMine) }
    }

    /// Reads all of `lookups`, and passes each result to `complete` as soon as it is available.
    pub(crate) async fn read(&self, lookups: Vec<Lookup>, complete: impl Fn(Lookup, Result<InstanceState>)) {
        let (instances, limits) = match self.instances() {
            Ok(found) => found,
            Err(error) => return lookups.into_iter().for_each(|lookup| complete(lookup, Err(error.clone()))),
        };
        let complete = |lookup: Lookup, found: Result<InstanceState>| {
            let found = found.and_then(|state| self.validate(&lookup, state));
            complete(lookup, found);
        };
        let machines = Some(self.machines.load(Ordering::Relaxed)).filter(|machines| *machines > 0);
        if listing::is_cheaper(lookups.len(), machines, limits) {
            self.list(instances, limits, lookups, &complete).await;
        } else {
            self.find(instances, limits, lookups, &complete).await;
        }
    }

    async fn find(
        &self,
        instances: &dyn Instances,
        limits: &InstanceCapabilities,
        lookups: Vec<Lookup>,
        complete: &impl Fn(Lookup, Result<InstanceState>),
    ) {
        let chunks = into_chunks(lookups, limits.batch_lookup.max(1));
        let reads = stream::iter(chunks).for_each_concurrent(limits.max_parallel.max(1), |chunk| async move {
            let refs: Vec<_> = chunk.iter().map(|lookup| lookup.machine.clone()).collect();
            let found = self.limits.run_each(Operation::FindInstances, chunk.len(), instances.find(&refs)).await;
            chunk.into_iter().zip(found).for_each(|(lookup, found)| complete(lookup, found));
        });
        reads.await;
    }

    /// Reads pages until looking up the open lookups is cheaper, and then looks those up.
    async fn list(
        &self,
        instances: &dyn Instances,
        limits: &InstanceCapabilities,
        lookups: Vec<Lookup>,
        complete: &impl Fn(Lookup, Result<InstanceState>),
    ) {
        let expected = lookups.len().max(self.machines.load(Ordering::Relaxed));
        let mut listing = Listing::new(
            lookups.into_iter().map(|lookup| (lookup.key.identity.clone(), lookup.machine.provider_id.clone(), lookup)),
        );
        let (mut pages, mut brief) = (Pages::default(), Vec::new());
        while let Some(resolved) = self.next_page(instances, limits, &mut pages, &mut listing).await {
            for (lookup, found) in resolved {
                match listing.brief(&found) {
                    Some(machine) => brief.push((lookup, machine)),
                    None => complete(lookup, found),
                }
            }
            if !listing.is_worth_another_page(expected, limits) {
                break;
            }
        }
        let mut open = listing.open();
        if !brief.is_empty() {
            let further = open.split_off(open.len().saturating_sub(limits.batch_lookup.max(1)));
            self.describe(instances, brief, further, complete).await;
        }
        self.find(instances, limits, open, complete).await;
    }

    /// Describes machines that were listed in brief, and looks up further ones in the same calls.
    async fn describe(
        &self,
        instances: &dyn Instances,
        brief: Vec<(Lookup, Opaque)>,
        further: Vec<Lookup>,
        complete: &impl Fn(Lookup, Result<InstanceState>),
    ) {
        let (lookups, brief): (Vec<_>, Vec<_>) = brief.into_iter().unzip();
        let refs: Vec<_> = further.iter().map(|lookup| lookup.machine.clone()).collect();
        let described = instances.describe(&brief, &refs);
        let found = self.limits.run_each(Operation::FindInstances, brief.len() + refs.len(), described).await;
        lookups.into_iter().chain(further).zip(found).for_each(|(lookup, found)| complete(lookup, found));
    }

    /// Returns the results of the next page; `None` after the last page. A page that fails also fails all open lookups.
    async fn next_page(
        &self,
        instances: &dyn Instances,
        limits: &InstanceCapabilities,
        pages: &mut Pages,
        listing: &mut Listing<Lookup>,
    ) -> Option<Vec<Resolved<Lookup>>> {
        if pages.is_over {
            return None;
        }
        let page = match self.page(instances, pages.next.as_ref()).await {
            Ok(page) => page,
            Err(error) => return Some(listing.fail(&error)),
        };
        let (next, known) = (page.next.clone(), listing.machines());
        let mut resolved = listing.take(page);
        match pages.advance(next, listing.machines() - known) {
            Err(error) => resolved.extend(listing.fail(&error)),
            Ok(()) if pages.is_over => {
                self.machines.store(listing.machines(), Ordering::Relaxed);
                resolved.extend(listing.finish(limits.absence));
            }
            // Recorded before the end, so that a listing that was abandoned as too expensive is not started again.
            Ok(()) => _ = self.machines.fetch_max(listing.machines(), Ordering::Relaxed),
        }
        Some(resolved)
    }

    /// Reads a page. A machine without an ID makes the page an error, because it could be any machine.
    async fn page(&self, instances: &dyn Instances, token: Option<&PageToken>) -> Result<InstancePage> {
        let page = self.limits.run(Operation::ListInstances, instances.list(token)).await?;
        match page.instances.iter().all(has_id) {
            true => Ok(page),
            false => Err(invalid_listing("contains a machine without an ID")),
        }
    }

    /// Rejects results that cannot be correct. Results in the wrong order would put one machine's addresses on another's Node, and
    /// a provider ID that no provider owns, once written, would leave the Node without an owner forever.
    fn validate(&self, lookup: &Lookup, state: InstanceState) -> Result<InstanceState> {
        let Some(found) = state.instance() else { return Ok(state) };
        let message = match (&lookup.key.identity, &found.provider_id) {
            // An equal provider ID is sufficient: `identify` may split it differently than the machines do.
            (Identity::Id(id), whole)
                if found.id != *id && (whole.is_none() || *whole != lookup.machine.provider_id) =>
            {
                format!("the provider returned the machine {} for {id}", found.id)
            }
            (_, Some(id)) if !self.provider.owns(id) => {
                format!(
                    "the provider returned the provider ID {id} for the machine {}, which it does not own",
                    found.id
                )
            }
            _ => return Ok(state),
        };
        Err(Error::new(ErrorKind::Unexpected, Operation::FindInstances.to_string(), message))
    }

    fn instances(&self) -> Result<(&dyn Instances, &InstanceCapabilities)> {
        let instances = self.provider.instances().zip(self.provider.capabilities().instances.as_ref());
        instances.ok_or_else(|| super::unsupported(&*self.provider, Operation::FindInstances, "instances"))
    }
}

/// Position in a listing.
#[derive(Default)]
struct Pages {
    next: Option<PageToken>,
    /// The last page has been read.
    is_over: bool,
    guard: PageGuard,
}

impl Pages {
    /// Advances to the next page, after one with `new` machines.
    fn advance(&mut self, next: Option<PageToken>, new: usize) -> Result<()> {
        if let Some(token) = &next {
            self.guard.check(&token.0, new).map_err(invalid_listing)?;
        }
        (self.is_over, self.next) = (next.is_none(), next);
        Ok(())
    }
}

fn invalid_listing(why: &str) -> Error {
    Error::new(ErrorKind::Unexpected, Operation::ListInstances.to_string(), format!("the cloud's listing {why}"))
}

fn has_id(state: &InstanceState) -> bool {
    state.instance().is_some_and(|instance| !instance.id.is_empty())
}

/// Splits items into batches of at most `size`, none with two items of one key. A second item of a key comes after all first ones.
pub(crate) fn into_batches<T, K: Eq + Hash>(
    items: impl IntoIterator<Item = T>,
    size: usize,
    key: impl Fn(&T) -> K,
) -> Vec<Vec<T>> {
    let (mut rounds, mut seen) = (Vec::<Vec<T>>::new(), HashMap::<K, usize>::new());
    for item in items {
        let round = seen.entry(key(&item)).or_default();
        match rounds.get_mut(*round) {
            Some(items) => items.push(item),
            None => rounds.push(vec![item]),
        }
        *round += 1;
    }
    rounds.into_iter().flat_map(|round| into_chunks(round, size)).collect()
}

/// Splits items into chunks of at most `size`, in order.
fn into_chunks<T>(items: Vec<T>, size: usize) -> Vec<Vec<T>> {
    let mut chunks = Vec::with_capacity(items.len().div_ceil(size));
    let mut items = items.into_iter().peekable();
    while items.peek().is_some() {
        chunks.push(items.by_ref().take(size).collect());
    }
    chunks
}
