//! One read of many machines: looked up in batches or found in a listing, whichever takes fewer calls.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bowline_core::{InstanceRef, InstanceState, Opaque};
use futures::stream::{self, StreamExt};

use crate::layers::cache::Question;
use crate::layers::listing::{self, Answered, Listing};
use crate::layers::operation::Operation;
use crate::layers::places::Places;
use crate::{
    CloudProvider, Error, ErrorKind, Identity, InstanceCapabilities, InstancePage, Instances, PageGuard, PageToken,
    Result,
};

/// Reads machines from one provider.
pub(crate) struct Reader {
    provider: Arc<dyn CloudProvider>,
    places: Arc<Places>,
    /// How many machines the last listing had; 0 if none was made yet.
    machines: AtomicUsize,
}

impl Reader {
    pub(crate) fn new(provider: Arc<dyn CloudProvider>, places: Arc<Places>) -> Reader {
        Reader { provider, places, machines: AtomicUsize::new(0) }
    }

    /// By what the machine is recognised. What is foreign, or could only be found by a name where names do not help, is
    /// not this provider's: it is told so here, because in a listing a foreign ID could look like one of its own.
    pub(crate) fn identify(&self, asked: &InstanceRef) -> Result<Identity> {
        let (instances, limits) = self.instances()?;
        let own = match asked.provider_id.as_ref() {
            Some(id) => self.provider.owns(id),
            None => limits.lookup_by_name,
        };
        if own { instances.identify(asked) } else { Ok(Identity::NotMine) }
    }

    /// Reads all of `questions` and hands each answer on as soon as it is there.
    pub(crate) async fn read(&self, questions: Vec<Question>, answer: impl Fn(Question, Result<InstanceState>)) {
        let (instances, limits) = match self.instances() {
            Ok(found) => found,
            Err(error) => return questions.into_iter().for_each(|question| answer(question, Err(error.clone()))),
        };
        let answer = |question: Question, found: Result<InstanceState>| {
            let found = found.and_then(|state| self.vetted(&question, state));
            answer(question, found);
        };
        let machines = Some(self.machines.load(Ordering::Relaxed)).filter(|machines| *machines > 0);
        if listing::is_cheaper(questions.len(), machines, limits) {
            self.list(instances, limits, questions, &answer).await;
        } else {
            self.find(instances, limits, questions, &answer).await;
        }
    }

    async fn find(
        &self,
        instances: &dyn Instances,
        limits: &InstanceCapabilities,
        questions: Vec<Question>,
        answer: &impl Fn(Question, Result<InstanceState>),
    ) {
        let chunks = into_chunks(questions, limits.batch_lookup.max(1));
        let reads = stream::iter(chunks).for_each_concurrent(limits.max_parallel.max(1), |chunk| async move {
            let asked: Vec<_> = chunk.iter().map(|question| question.asked.clone()).collect();
            let found = self.places.run_each(Operation::FindInstances, chunk.len(), instances.find(&asked)).await;
            chunk.into_iter().zip(found).for_each(|(question, found)| answer(question, found));
        });
        reads.await;
    }

    /// Reads pages until the open questions cost less to look up, and looks those up.
    async fn list(
        &self,
        instances: &dyn Instances,
        limits: &InstanceCapabilities,
        questions: Vec<Question>,
        answer: &impl Fn(Question, Result<InstanceState>),
    ) {
        let expected = questions.len().max(self.machines.load(Ordering::Relaxed));
        let mut listing = Listing::new(
            questions
                .into_iter()
                .map(|question| (question.key.identity.clone(), question.asked.provider_id.clone(), question)),
        );
        let (mut pages, mut brief) = (Pages::default(), Vec::new());
        while let Some(settled) = self.next_page(instances, limits, &mut pages, &mut listing).await {
            for (question, found) in settled {
                match listing.brief(&found) {
                    Some(machine) => brief.push((question, machine)),
                    None => answer(question, found),
                }
            }
            if !listing.is_worth_another_page(expected, limits) {
                break;
            }
        }
        let mut open = listing.open();
        if !brief.is_empty() {
            let beside = open.split_off(open.len().saturating_sub(limits.batch_lookup.max(1)));
            self.describe(instances, brief, beside, answer).await;
        }
        self.find(instances, limits, open, answer).await;
    }

    /// Describes machines that were listed in brief, and looks up others in the same calls.
    async fn describe(
        &self,
        instances: &dyn Instances,
        brief: Vec<(Question, Opaque)>,
        beside: Vec<Question>,
        answer: &impl Fn(Question, Result<InstanceState>),
    ) {
        let (questions, brief): (Vec<_>, Vec<_>) = brief.into_iter().unzip();
        let asked: Vec<_> = beside.iter().map(|question| question.asked.clone()).collect();
        let described = instances.describe(&brief, &asked);
        let found = self.places.run_each(Operation::FindInstances, brief.len() + asked.len(), described).await;
        questions.into_iter().chain(beside).zip(found).for_each(|(question, found)| answer(question, found));
    }

    /// Returns what the next page settles; `None` after the last. A page that cannot be read fails all open questions.
    async fn next_page(
        &self,
        instances: &dyn Instances,
        limits: &InstanceCapabilities,
        pages: &mut Pages,
        listing: &mut Listing<Question>,
    ) -> Option<Vec<Answered<Question>>> {
        if pages.is_over {
            return None;
        }
        let page = match self.page(instances, pages.next.as_ref()).await {
            Ok(page) => page,
            Err(error) => return Some(listing.fail(&error)),
        };
        let (next, known) = (page.next.clone(), listing.machines());
        let mut settled = listing.take(page);
        match pages.turn(next, listing.machines() - known) {
            Err(error) => settled.extend(listing.fail(&error)),
            Ok(()) if pages.is_over => {
                self.machines.store(listing.machines(), Ordering::Relaxed);
                settled.extend(listing.finish(limits.absence));
            }
            // Recorded before the end, so that a listing that was not worth its pages is not started again.
            Ok(()) => _ = self.machines.fetch_max(listing.machines(), Ordering::Relaxed),
        }
        Some(settled)
    }

    /// A page of a listing. One with a machine that cannot be recognised proves nobody's absence.
    async fn page(&self, instances: &dyn Instances, token: Option<&PageToken>) -> Result<InstancePage> {
        let page = self.places.run(Operation::ListInstances, instances.list(token)).await?;
        match page.instances.iter().all(has_id) {
            true => Ok(page),
            false => Err(wrong("shows a machine without an ID")),
        }
    }

    /// The answer, unless it cannot be right. Answers in another order than the questions would put one machine's addresses
    /// on another's Node, and an ID that is nobody's, once written, would leave the Node nobody's for ever.
    fn vetted(&self, question: &Question, state: InstanceState) -> Result<InstanceState> {
        let Some(found) = state.instance() else { return Ok(state) };
        let message = match (&question.key.identity, &found.provider_id) {
            // The whole ID will do: a provider may cut it otherwise than its machines have it.
            (Identity::Id(id), whole)
                if found.id != *id && (whole.is_none() || *whole != question.asked.provider_id) =>
            {
                format!("asked about the machine {id}, the provider answered about {}", found.id)
            }
            (_, Some(id)) if !self.provider.owns(id) => {
                format!("the provider gave the machine {} the ID {id}, which is not one of its own", found.id)
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
    /// Goes on to the next page, behind one with `new` machines that were not known.
    fn turn(&mut self, next: Option<PageToken>, new: usize) -> Result<()> {
        if let Some(token) = &next {
            self.guard.on(&token.0, new).map_err(wrong)?;
        }
        (self.is_over, self.next) = (next.is_none(), next);
        Ok(())
    }
}

fn wrong(why: &str) -> Error {
    Error::new(ErrorKind::Unexpected, Operation::ListInstances.to_string(), format!("the cloud's listing {why}"))
}

fn has_id(state: &InstanceState) -> bool {
    state.instance().is_some_and(|instance| !instance.id.is_empty())
}

/// Batches of at most `size`, none with two items of one key: a further one of the key comes after all first ones.
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

/// Pieces of at most `size`, in order.
fn into_chunks<T>(items: Vec<T>, size: usize) -> Vec<Vec<T>> {
    let mut chunks = Vec::with_capacity(items.len().div_ceil(size));
    let mut items = items.into_iter().peekable();
    while items.peek().is_some() {
        chunks.push(items.by_ref().take(size).collect());
    }
    chunks
}
