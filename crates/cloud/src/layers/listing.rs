//! Finding machines in a listing: pure, page by page.
//!
//! An ID is settled by the first page that has it. A name is settled by the end of the listing alone, because a second
//! machine of that name may still come. Absence is settled by the end of a listing that shows anything at all.

use std::collections::{HashMap, HashSet};

use bowline_core::{Instance, InstanceState, ProviderId};

use crate::{Error, ErrorKind, Identity, InstanceCapabilities, InstancePage, Result, Retry};

/// Questions of the type `Q` and what the pages so far say to them.
pub(crate) struct Listing<Q> {
    by_id: HashMap<String, Vec<Q>>,
    /// The same questions by the whole ID that was asked with. A provider whose `identify` cuts an ID otherwise than its
    /// machines have it would else make all of them gone.
    ids: HashMap<ProviderId, String>,
    by_name: HashMap<String, Named<Q>>,
    /// The machines so far, by ID: pages that move while they are read show one twice.
    machines: HashSet<String>,
}

/// Questions for a name, and the machines that have it.
struct Named<Q> {
    questions: Vec<Q>,
    found: Vec<InstanceState>,
}

/// A question with its answer.
pub(crate) type Answered<Q> = (Q, Result<InstanceState>);

/// Whether listing all takes fewer calls than looking up `asked` machines. While it is not known how many machines there
/// are, as many as are asked for are assumed.
pub(crate) fn is_cheaper(asked: usize, machines: Option<usize>, limits: &InstanceCapabilities) -> bool {
    let Some(page) = limits.list_page else { return false };
    let pages = machines.unwrap_or(asked).div_ceil(page.max(1)).max(1);
    pages < asked.div_ceil(limits.batch_lookup.max(1))
}

impl<Q> Listing<Q> {
    /// Looks for these.
    pub(crate) fn new(questions: impl IntoIterator<Item = (Identity, Option<ProviderId>, Q)>) -> Listing<Q> {
        let (by_id, ids, by_name) = (HashMap::new(), HashMap::new(), HashMap::new());
        let mut listing = Listing { by_id, ids, by_name, machines: HashSet::new() };
        for (identity, provider_id, question) in questions {
            match identity {
                Identity::Id(id) => {
                    listing.ids.extend(provider_id.map(|whole| (whole, id.clone())));
                    listing.by_id.entry(id).or_default().push(question);
                }
                Identity::Name(name) => listing.by_name.entry(name).or_default().questions.push(question),
                // Answered before anything is read.
                Identity::NotMine => {}
            }
        }
        listing
    }

    /// How many machines the pages so far had.
    pub(crate) fn machines(&self) -> usize {
        self.machines.len()
    }

    /// Nothing is looked for any more.
    pub(crate) fn is_settled(&self) -> bool {
        self.by_id.is_empty() && self.by_name.is_empty()
    }

    /// Looks through one page; returns what it settles.
    pub(crate) fn take(&mut self, page: InstancePage) -> Vec<Answered<Q>> {
        let mut settled = Vec::new();
        for state in page.instances {
            let Some(instance) = state.instance() else { continue };
            self.machines.insert(instance.id.clone());
            let questions = self.asked_for(instance);
            if let Some(named) = self.by_name.get_mut(&instance.name) {
                named.add(state.clone());
            }
            settled.extend(questions.into_iter().map(|question| (question, Ok(state.clone()))));
        }
        settled
    }

    /// The questions that this machine answers.
    fn asked_for(&mut self, instance: &Instance) -> Vec<Q> {
        let by_id = self.by_id.remove(&instance.id);
        let whole = instance.provider_id.as_ref().and_then(|whole| self.ids.get(whole));
        let by_whole = whole.and_then(|id| self.by_id.remove(id));
        by_id.into_iter().chain(by_whole).flatten().collect()
    }

    /// The last page has been seen.
    pub(crate) fn finish(self) -> Vec<Answered<Q>> {
        if self.machines.is_empty() {
            // A wrong project, region or right shows as an empty list much more often than a cluster without machines.
            let message = "the cloud lists no machines at all, which is no proof that any is gone; \
                           check project, region and rights of the credentials";
            return self.fail(&Error::new(ErrorKind::Unexpected, "list instances", message));
        }
        let absent = self.by_id.into_values().flatten().map(|question| (question, Ok(InstanceState::Gone)));
        let named = self.by_name.into_iter().flat_map(|(name, named)| {
            let answer = named.answer(&name);
            named.questions.into_iter().map(move |question| (question, answer.clone()))
        });
        absent.chain(named).collect()
    }

    /// There is a page that cannot be seen: all that is not settled yet fails.
    pub(crate) fn fail(self, error: &Error) -> Vec<Answered<Q>> {
        let named = self.by_name.into_values().flat_map(|named| named.questions);
        self.by_id.into_values().flatten().chain(named).map(|question| (question, Err(error.clone()))).collect()
    }
}

impl<Q> Named<Q> {
    /// A machine that is listed twice, because pages moved meanwhile, is still one machine.
    fn add(&mut self, state: InstanceState) {
        let id = state.instance().map(|instance| &instance.id);
        if !self.found.iter().any(|known| known.instance().map(|instance| &instance.id) == id) {
            self.found.push(state);
        }
    }

    fn answer(&self, name: &str) -> Result<InstanceState> {
        match self.found.as_slice() {
            [] => Ok(InstanceState::Gone),
            [one] => Ok(one.clone()),
            several => {
                let ids: Vec<_> = several.iter().filter_map(InstanceState::instance).map(|i| i.id.as_str()).collect();
                let message = format!("{} machines are named {name}: {}", ids.len(), ids.join(", "));
                // A person mends it in the cloud, where nothing tells us: so look again now and then.
                Err(Error::new(ErrorKind::InvalidConfig, "list instances", message).retry(Retry::Backoff))
            }
        }
    }
}

impl<Q> Default for Named<Q> {
    fn default() -> Named<Q> {
        Named { questions: Vec::new(), found: Vec::new() }
    }
}
